// Backward: with the final out and lse, each pair of pieces yields its own
// contribution to every gradient. Gradients of queries stay; gradients of keys
// travel with their block, each rank adds its contribution in order, and the
// last one sends them home. Gradients of sinks and parameters are summed over
// all ranks.
//
// A rank's own keys are computed in two parts: the first while the first block
// arrives, the second at the end, while gradients travel home.
#include <fmt/format.h>

#include <cmath>

#include "locus/error.h"
#include "ring/agreement/metadata.h"
#include "ring/attention/pairs.h"
#include "ring/attention/term_sums.h"
#include "ring/blocks/grad_ring.h"
#include "ring/blocks/views.h"

namespace locus::ring {
namespace {

// Gradients of this rank's queries and of their operands, f32.
struct QueryGrads {
  Tensor d_q = {};
  Tensor table_queries = {};
  Tensor pair_bias = {};

  QueryGrads(const Tensor& q, const AttentionOptions& options,
             const BackwardOptions& backward) {
    const auto like = [](const Tensor& x) {
      return x.defined() ? Tensor::Zeros(DType::kF32, x.shape()) : Tensor();
    };
    d_q = like(q);
    table_queries = like(options.table_queries);
    if (backward.pair_bias) pair_bias = like(options.pair_bias);
  }
  // Adds the gradients from a call with some of the queries and some keys.
  void Add(const AttentionGrads& part, const Chunk& rows, const Chunk& keys) {
    AddTo(part.d_q, TokensOf(d_q, rows));
    if (table_queries.defined()) {
      AddTo(part.operands.table_queries, TokensOf(table_queries, rows));
    }
    if (pair_bias.defined()) {
      AddTo(Convert(part.operands.pair_bias, DType::kF32),
            PairsOf(pair_bias, rows, keys));
    }
  }
};

// The first half of a piece, or the rest of it.
Piece Half(const Call& call, Piece piece, bool first) {
  Chunk& tokens = piece.tokens;
  const int64_t head = tokens.count / 2;
  if (!first) {
    piece.begin += head;
    tokens.first += head * tokens.stride;
  }
  tokens.count = first ? head : tokens.count - head;
  // Given positions may be anywhere within the bounds of the whole.
  if (!call.k_positions_given) {
    piece.positions = {.lo = tokens.first,
                       .hi = tokens.first + (tokens.count - 1) * tokens.stride};
  }
  return piece;
}

// The keys of this rank in two parts; the second may be empty.
struct OwnKeys {
  std::vector<Piece> first = {};
  std::vector<Piece> last = {};

  OwnKeys(const Call& call, const Neighbours& ring)
      : first(call.keys[static_cast<size_t>(ring.rank)]) {
    if (ring.size == 1 || first.empty()) return;
    const Piece piece = first.back();
    if (first.size() > 1) {
      first.pop_back();
      last = {piece};
    } else if (piece.tokens.count > 1) {
      first = {Half(call, piece, /*first=*/true)};
      last = {Half(call, piece, /*first=*/false)};
    }
  }
};

// The inputs of the backward pass besides those of the forward pass.
struct Given {
  const Tensor& d_out;
  const AttentionResult& forward;
  const BackwardOptions& backward;
};

// Describes an invalid input, or returns "".
std::string CheckGiven(const Given& given, const Tensor& q, const Tensor& v,
                       const AttentionOptions& options) {
  if (q.rank() != 4 || v.rank() != 4) return "";  // reported by others
  const auto& [d_out, forward, backward] = given;
  const std::vector<int64_t> rows = {q.size(0), q.size(1), q.size(2)};
  std::vector<int64_t> shape = rows;
  shape.push_back(v.size(3));
  if (d_out.shape() != shape || forward.out.shape() != shape) {
    return fmt::format("d_out and out must be [{}], got {} and {}",
                       fmt::join(shape, ", "), d_out.Describe(),
                       forward.out.Describe());
  }
  if (forward.lse.shape() != rows || forward.lse.dtype() != DType::kF32) {
    return fmt::format("lse must be f32 [{}], got {}", fmt::join(rows, ", "),
                       forward.lse.Describe());
  }
  if (backward.d_lse.defined() && backward.d_lse.shape() != rows) {
    return fmt::format("d_lse must be [{}], got {}", fmt::join(rows, ", "),
                       backward.d_lse.Describe());
  }
  if (backward.pair_bias && !options.pair_bias.defined() && q.size(2) > 0) {
    return "the gradient of a pair bias is asked for, but there is none";
  }
  return "";
}

// Gradients of the parameters over all ranks: those from each rank's pairs,
// summed in the order of ranks.
ParamGrads SumParams(const Group& group, const Call& call,
                     const Encoding& encoding, const TermGrads& terms) {
  ParamGrads params = encoding.PullBack(call.shape, terms);
  for (Param& param : params) {
    param.value = param.value.To(DType::kF64);
    group.Sum(std::span(param.value.MutableData<double>(),
                        static_cast<size_t>(param.value.NumElements())));
  }
  return params;
}

// The gradient of the sinks over all ranks, in the type of the sinks:
//   p_sink = exp(z_h - lse_i)
//     => d z_h = -sum_i exp(z_h - lse_i) (d_out_i.out_i - d_lse_i)
Tensor SumSinks(const Group& group, const Tensor& sinks, const Given& given) {
  const Tensor &d_out = given.d_out, &out = given.forward.out;
  const Tensor &lse = given.forward.lse, &d_lse = given.backward.d_lse;
  std::vector<double> sums(static_cast<size_t>(sinks.size(0)));
  for (int64_t b = 0; b < out.size(0); ++b) {
    for (int64_t h = 0; h < out.size(1); ++h) {
      for (int64_t i = 0; i < out.size(2); ++i) {
        if (std::isinf(lse.At(b, h, i))) continue;
        double delta = d_lse.defined() ? -d_lse.At(b, h, i) : 0.0;
        for (int64_t d = 0; d < out.size(3); ++d) {
          delta += d_out.At(b, h, i, d) * out.At(b, h, i, d);
        }
        sums[static_cast<size_t>(h)] -=
            std::exp(sinks.At(h) - lse.At(b, h, i)) * delta;
      }
    }
  }
  group.Sum(std::span(sums));
  return Tensor::From(sinks.shape(), std::move(sums)).To(sinks.dtype());
}

}  // namespace

EncodingGrads AttentionBackward(MPI_Comm comm, const Tensor& d_out,
                                const Tensor& q, const Tensor& k,
                                const Tensor& v, const AttentionResult& forward,
                                const Encoding& encoding,
                                const Options& options,
                                const BackwardOptions& backward) {
  const Group group(comm, options.deadline_seconds);
  const AttentionOptions& o = options.attention;
  const Given given{.d_out = d_out, .forward = forward, .backward = backward};
  const Call call =
      ExchangeMetadata(group, {.q = q,
                               .k = k,
                               .v = v,
                               .encoding = encoding,
                               .options = options,
                               .pass = Pass::kBackward,
                               .problem = CheckGiven(given, q, v, o)});
  const Neighbours ring{.rank = group.rank(), .size = group.size()};
  const std::vector<QueryPiece> queries = QueryPieces(call, ring.rank, q, o);
  const Tensor d_rows = Convert(d_out, DType::kF32);
  const Tensor out_rows = Convert(forward.out, DType::kF32);
  QueryGrads query_grads(q, o, backward);
  Stats stats;
  TermGrads terms = ZeroGrads(call.terms);
  AsyncTransport transport(group);
  const std::shared_ptr<Block> own_block = OwnBlock(call, ring.rank, k, v, o);
  KvRing kv_ring(call, transport, ring, own_block);
  GradRing grad_ring(call, transport, ring);
  // Adds the contributions of these keys of a block to `share`, to the
  // gradients of the queries and to those of the terms.
  const auto compute = [&](const Block& block, const std::vector<Piece>& pieces,
                           KeyGrads& share) {
    const auto add = [&](const QueryPiece& rows, const KeyPiece& keys) {
      const AttentionResult whole{.out = TokensOf(out_rows, rows.rows),
                                  .lse = TokensOf(forward.lse, rows.rows)};
      BackwardOptions asked = backward;
      if (asked.d_lse.defined()) {
        asked.d_lse = TokensOf(asked.d_lse, rows.rows);
      }
      const AttentionGrads part = locus::AttentionBackward(
          TokensOf(d_rows, rows.rows), rows.q, keys.k, keys.v, whole,
          call.terms, PairOptions(o, rows, keys), asked);
      query_grads.Add(part, rows.rows, keys.tokens);
      share.Add(part, keys.rows);
      Add(part.terms, terms);
    };
    const Stopwatch watch(stats.compute_seconds);
    ForEachPair(call, queries, block, pieces, stats, add);
  };
  const OwnKeys own_keys(call, ring);
  KeyGrads own = KeyGrads::Zeros(call, ring.rank);
  for (int step = 0; step < ring.size; ++step) {
    const std::shared_ptr<Block> block = kv_ring.Begin(step);
    if (step == 0) {
      compute(*block, own_keys.first, own);
    } else if (block != nullptr) {
      grad_ring.Begin(step);
      KeyGrads share = KeyGrads::Zeros(call, block->owner);
      compute(*block, call.keys[static_cast<size_t>(block->owner)], share);
      grad_ring.End(step, share);
    }
    kv_ring.End();
  }
  compute(*own_block, own_keys.last, own);
  own = grad_ring.Finish(own);
  transport.Stop();
  const auto as = [](const Tensor& grad, const Tensor& operand) {
    return grad.defined() && operand.defined() ? Convert(grad, operand.dtype())
                                               : Tensor();
  };
  EncodingGrads grads{
      .d_q = as(query_grads.d_q, q),
      .d_k = as(own.d_k, k),
      .d_v = as(own.d_v, v),
      .operands = {.key_bias = as(own.key_bias, o.key_bias),
                   .pair_bias = as(query_grads.pair_bias, o.pair_bias),
                   .sinks = o.sinks.defined() ? SumSinks(group, o.sinks, given)
                                              : Tensor(),
                   .table_queries =
                       as(query_grads.table_queries, o.table_queries)},
      .params = SumParams(group, call, encoding, terms)};
  Report(transport, stats, options.stats);
  return grads;
}

}  // namespace locus::ring
