#include "ring/blocks/operands.h"

#include <algorithm>

#include "ring/blocks/views.h"

namespace locus::ring {
namespace {

// Positions of a piece: as given, or else counted from the beginning of each
// sequence or of all.
std::vector<int64_t> PositionsOf(const Piece& piece, const TokenIds& given,
                                 std::span<const int64_t> begins) {
  if (!given.values.empty()) return given.Of(piece);
  std::vector<int64_t> positions;
  for (int64_t begin : begins) {
    for (int64_t i = 0; i < piece.tokens.count; ++i) {
      positions.push_back(begin + piece.tokens.first + i * piece.tokens.stride);
    }
  }
  return positions;
}

std::vector<int64_t> SegmentsOf(const Piece& piece, const TokenIds& given) {
  return given.values.empty() ? std::vector<int64_t>{} : given.Of(piece);
}

// The rows of a piece as float32: a view if they already are; undefined if x
// is.
Tensor FloatRows(const Tensor& x, const Piece& piece) {
  if (!x.defined()) return {};
  const Tensor rows = TokensOf(x, piece.Rows());
  return rows.dtype() == DType::kF32 ? rows : Convert(rows, DType::kF32);
}

// How many keys of a piece come before each of these lengths of the sequence.
std::vector<int64_t> CountsBefore(const Piece& piece,
                                  std::span<const int64_t> lengths) {
  std::vector<int64_t> counts;
  for (int64_t length : lengths) {
    counts.push_back(CountBefore(piece.tokens, length));
  }
  return counts;
}

// The part of consecutive positions within [lo, hi].
Chunk Within(const std::vector<int64_t>& positions, int64_t lo, int64_t hi) {
  const int64_t first = positions.front();
  const int64_t begin = std::max<int64_t>(lo - first, 0);
  const int64_t end =
      std::min<int64_t>(hi - first + 1, static_cast<int64_t>(positions.size()));
  return {.first = begin, .count = std::max<int64_t>(end - begin, 0)};
}

std::vector<int64_t> Part(const std::vector<int64_t>& values,
                          const Chunk& part) {
  const auto first = values.begin() + part.first;
  return {first, first + part.count};
}

Chunk Part(const Chunk& whole, const Chunk& part) {
  return {.first = whole.first + part.first * whole.stride,
          .count = part.count,
          .stride = whole.stride};
}

Tensor Part(const Tensor& x, const Chunk& part) {
  return x.defined() ? TokensOf(x, part) : Tensor();
}

// The dropout of these tokens as in the whole sequence.
Dropout Part(const Dropout& whole, const Chunk& queries, const Chunk& keys) {
  Dropout part = whole;
  part.first_query += queries.first * whole.query_stride;
  part.query_stride *= queries.stride;
  part.first_key += keys.first * whole.key_stride;
  part.key_stride *= keys.stride;
  return part;
}

// Storage for the biases of a rank's keys, if there are any.
Tensor EmptyKeyBias(const Call& call, int owner) {
  if (!call.key_bias.given()) return {};
  return Tensor::Empty(DType::kF32,
                       {call.key_bias.batch, call.key_bias.heads,
                        call.key_counts[static_cast<size_t>(owner)]});
}

template <typename T>
std::span<std::byte> Raw(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

std::span<std::byte> Raw(Tensor& x) {
  if (!x.defined()) return {};
  return {MutableBytesOf(x),
          static_cast<size_t>(x.NumElements() * DTypeBytes(x.dtype()))};
}

}  // namespace

std::shared_ptr<Block> OwnBlock(const Call& call, int rank, const Tensor& k,
                                const Tensor& v,
                                const AttentionOptions& options) {
  const auto copy = [](std::span<const int64_t> ids) {
    return std::vector<int64_t>(ids.begin(), ids.end());
  };
  return std::make_shared<Block>(
      Block{.owner = rank,
            .k = Convert(k, k.dtype()),
            .v = Convert(v, v.dtype()),
            .key_bias = options.key_bias.defined()
                            ? Convert(options.key_bias, DType::kF32)
                            : EmptyKeyBias(call, rank),
            .positions = copy(options.k_positions),
            .segments = copy(options.k_segments)});
}

std::shared_ptr<Block> EmptyBlock(const Call& call, int owner, DType dtype) {
  const Shape& s = call.shape;
  const int64_t tokens = call.key_counts[static_cast<size_t>(owner)];
  const auto ids = [&](bool given, bool per_sequence) {
    const int64_t count = per_sequence ? call.batch * tokens : tokens;
    return std::vector<int64_t>(given ? static_cast<size_t>(count) : 0);
  };
  const auto rows = [&](int64_t dim) {
    return Tensor::Empty(dtype, {call.batch, s.kv_heads, tokens, dim});
  };
  return std::make_shared<Block>(Block{
      .owner = owner,
      .k = rows(s.head_dim),
      .v = rows(call.ValueDim()),
      .key_bias = EmptyKeyBias(call, owner),
      .positions = ids(call.k_positions_given, call.k_positions_per_sequence),
      .segments = ids(call.segmented, call.k_segments_per_sequence)});
}

Message ToMessage(const std::shared_ptr<Block>& block) {
  return {.parts = {Raw(block->k), Raw(block->v), Raw(block->key_bias),
                    Raw(block->positions), Raw(block->segments)},
          .memory = block};
}

Message ToMessage(const std::vector<Tensor>& tensors) {
  const auto memory = std::make_shared<std::vector<Tensor>>(tensors);
  Message message{.memory = memory};
  for (Tensor& x : *memory) message.parts.push_back(Raw(x));
  return message;
}

std::vector<QueryPiece> QueryPieces(const Call& call, int rank, const Tensor& q,
                                    const AttentionOptions& options) {
  const auto ids = [&](std::span<const int64_t> values) {
    return TokenIds{
        .values = values, .length = call.q_len, .batch = call.batch};
  };
  std::vector<QueryPiece> pieces;
  for (const Piece& piece : call.queries[static_cast<size_t>(rank)]) {
    pieces.push_back({.piece = piece,
                      .rows = piece.Rows(),
                      .tokens = piece.tokens,
                      .q = FloatRows(q, piece),
                      .table_queries = FloatRows(options.table_queries, piece),
                      .positions = PositionsOf(piece, ids(options.q_positions),
                                               call.q_first),
                      .segments = SegmentsOf(piece, ids(options.q_segments))});
  }
  return pieces;
}

KeyPiece MakeKeyPiece(const Call& call, const Block& block,
                      const Piece& piece) {
  const auto ids = [&](const std::vector<int64_t>& values) {
    return TokenIds{.values = values,
                    .length = call.key_counts[static_cast<size_t>(block.owner)],
                    .batch = call.batch};
  };
  constexpr int64_t kFirst[] = {0};
  KeyPiece keys{.piece = piece,
                .rows = piece.Rows(),
                .tokens = piece.tokens,
                .k = FloatRows(block.k, piece),
                .v = FloatRows(block.v, piece),
                .key_bias = FloatRows(block.key_bias, piece),
                .positions = PositionsOf(piece, ids(block.positions), kFirst),
                .segments = SegmentsOf(piece, ids(block.segments)),
                .lengths = CountsBefore(piece, call.key_lengths),
                .prefix = CountsBefore(piece, call.prefix_lengths)};
  if (std::ranges::count(keys.prefix, 0) == std::ssize(keys.prefix)) {
    keys.prefix.clear();
  }
  return keys;
}

bool CanTrim(const Call& call, const QueryPiece& q, const KeyPiece& k) {
  return (call.causal || call.window) && !call.segmented && k.prefix.empty() &&
         !call.q_positions_given && !call.k_positions_given &&
         call.q_first.size() == 1 && q.piece.tokens.stride == 1 &&
         k.piece.tokens.stride == 1;
}

QueryPiece Trimmed(const Call& call, const QueryPiece& q, const KeyPiece& k) {
  // -ahead <= m - n <= back for some key n.
  const Range offsets = call.Offsets();
  const Chunk part = Within(q.positions, k.positions.front() + offsets.lo,
                            k.positions.back() + offsets.hi);
  QueryPiece out = q;
  out.rows = Part(q.rows, part);
  out.tokens = Part(q.tokens, part);
  out.q = Part(q.q, part);
  out.table_queries = Part(q.table_queries, part);
  out.positions = Part(q.positions, part);
  return out;
}

KeyPiece Trimmed(const Call& call, const KeyPiece& k, const QueryPiece& q) {
  const Range offsets = call.Offsets();
  const Chunk part = Within(k.positions, q.positions.front() - offsets.hi,
                            q.positions.back() - offsets.lo);
  KeyPiece out = k;
  out.rows = Part(k.rows, part);
  out.tokens = Part(k.tokens, part);
  out.k = Part(k.k, part);
  out.v = Part(k.v, part);
  out.key_bias = Part(k.key_bias, part);
  out.positions = Part(k.positions, part);
  for (int64_t& length : out.lengths) {
    length = std::clamp<int64_t>(length - part.first, 0, part.count);
  }
  return out;
}

AttentionOptions PairOptions(const AttentionOptions& options,
                             const QueryPiece& q, const KeyPiece& k) {
  return {.causal = options.causal,
          .window = options.window,
          .chunk = options.chunk,
          .softcap = options.softcap,
          .q_positions = q.positions,
          .k_positions = k.positions,
          .key_lengths = k.lengths,
          .q_segments = q.segments,
          .k_segments = k.segments,
          .prefix_lengths = k.prefix,
          .mask = PairsOf(options.mask, q.rows, k.tokens),
          .key_bias = k.key_bias,
          .pair_bias = PairsOf(options.pair_bias, q.rows, k.tokens),
          .table_queries = q.table_queries,
          .dropout = Part(options.dropout, q.tokens, k.tokens),
          .threads = options.threads,
          .return_lse = true,
          .return_weights = options.return_weights};
}

}  // namespace locus::ring
