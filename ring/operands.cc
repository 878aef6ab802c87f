#include "ring/operands.h"

#include <algorithm>

#include "ring/views.h"

namespace locus::ring {
namespace {

// Positions of a piece: as given, else counted from where each sequence begins,
// or from where all of them do.
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

// A piece's rows as float32: a view where they are.
Tensor FloatRows(const Tensor& x, const Piece& piece) {
  const Tensor rows =
      TokensOf(x, {.first = piece.begin, .count = piece.tokens.count});
  return rows.dtype() == DType::kF32 ? rows : Convert(rows, DType::kF32);
}

// Where positions, which rise by one, lie in [lo, hi].
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

template <typename T>
std::span<std::byte> Raw(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

std::span<std::byte> Raw(Tensor& x) {
  return {MutableBytesOf(x),
          static_cast<size_t>(x.NumElements() * DTypeBytes(x.dtype()))};
}

}  // namespace

std::shared_ptr<Block> OwnBlock(const Tensor& k, const Tensor& v, int rank,
                                const AttentionOptions& options) {
  const auto copy = [](std::span<const int64_t> ids) {
    return std::vector<int64_t>(ids.begin(), ids.end());
  };
  return std::make_shared<Block>(Block{.owner = rank,
                                       .k = Convert(k, k.dtype()),
                                       .v = Convert(v, v.dtype()),
                                       .positions = copy(options.k_positions),
                                       .segments = copy(options.k_segments)});
}

std::shared_ptr<Block> EmptyBlock(const Call& call, int owner, DType dtype) {
  const Sizes& s = call.sizes;
  const int64_t tokens = call.key_counts[static_cast<size_t>(owner)];
  const auto ids = [&](bool given, bool per_sequence) {
    const int64_t count = per_sequence ? s.batch * tokens : tokens;
    return std::vector<int64_t>(given ? static_cast<size_t>(count) : 0);
  };
  return std::make_shared<Block>(Block{
      .owner = owner,
      .k = Tensor::Empty(dtype, {s.batch, s.kv_heads, tokens, s.head_dim}),
      .v = Tensor::Empty(dtype, {s.batch, s.kv_heads, tokens, s.value_dim}),
      .positions = ids(call.k_positions_given, call.k_positions_per_sequence),
      .segments = ids(call.segmented, call.k_segments_per_sequence)});
}

Parcel ToParcel(const std::shared_ptr<Block>& block) {
  return {.parts = {Raw(block->k), Raw(block->v), Raw(block->positions),
                    Raw(block->segments)},
          .memory = block};
}

Parcel ToParcel(const std::vector<Tensor>& tensors) {
  const auto memory = std::make_shared<std::vector<Tensor>>(tensors);
  Parcel parcel{.memory = memory};
  for (Tensor& x : *memory) parcel.parts.push_back(Raw(x));
  return parcel;
}

std::vector<QueryPiece> QueryPieces(const Call& call, int rank, const Tensor& q,
                                    const AttentionOptions& options) {
  const auto ids = [&](std::span<const int64_t> values) {
    return TokenIds{.values = values,
                    .length = call.sizes.q_len,
                    .batch = call.sizes.batch};
  };
  std::vector<QueryPiece> pieces;
  for (const Piece& piece : call.queries[static_cast<size_t>(rank)]) {
    pieces.push_back(
        {.piece = piece,
         .rows = {.first = piece.begin, .count = piece.tokens.count},
         .q = FloatRows(q, piece),
         .positions =
             PositionsOf(piece, ids(options.q_positions), call.q_first),
         .segments = SegmentsOf(piece, ids(options.q_segments))});
  }
  return pieces;
}

KeyPiece MakeKeyPiece(const Call& call, const Block& block,
                      const Piece& piece) {
  const auto ids = [&](const std::vector<int64_t>& values) {
    return TokenIds{.values = values,
                    .length = call.key_counts[static_cast<size_t>(block.owner)],
                    .batch = call.sizes.batch};
  };
  constexpr int64_t kFirst[] = {0};
  KeyPiece keys{.piece = piece,
                .rows = {.first = piece.begin, .count = piece.tokens.count},
                .k = FloatRows(block.k, piece),
                .v = FloatRows(block.v, piece),
                .positions = PositionsOf(piece, ids(block.positions), kFirst),
                .segments = SegmentsOf(piece, ids(block.segments))};
  for (int64_t length : call.key_lengths) {
    keys.lengths.push_back(CountBefore(piece.tokens, length));
  }
  return keys;
}

bool CanTrim(const Call& call, const QueryPiece& q, const KeyPiece& k) {
  return (call.causal || call.window) && !call.segmented &&
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
  out.rows = {.first = q.rows.first + part.first, .count = part.count};
  out.q = TokensOf(q.q, part);
  out.positions = Part(q.positions, part);
  return out;
}

KeyPiece Trimmed(const Call& call, const KeyPiece& k, const QueryPiece& q) {
  const Range offsets = call.Offsets();
  const Chunk part = Within(k.positions, q.positions.front() - offsets.hi,
                            q.positions.back() - offsets.lo);
  KeyPiece out = k;
  out.rows = {.first = k.rows.first + part.first, .count = part.count};
  out.k = TokensOf(k.k, part);
  out.v = TokensOf(k.v, part);
  out.positions = Part(k.positions, part);
  for (int64_t& length : out.lengths) {
    length = std::clamp<int64_t>(length - part.first, 0, part.count);
  }
  return out;
}

AttentionOptions PairOptions(const AttentionOptions& options,
                             const QueryPiece& q, const KeyPiece& k) {
  return {.causal = options.causal,
          .scale = options.scale,
          .window = options.window,
          .softcap = options.softcap,
          .q_positions = q.positions,
          .k_positions = k.positions,
          .key_lengths = k.lengths,
          .q_segments = q.segments,
          .k_segments = k.segments,
          .threads = options.threads,
          .return_lse = true};
}

}  // namespace locus::ring
