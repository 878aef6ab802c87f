// Forward: partial results of each pair of pieces, merged by lse. Sinks are
// merged once, when all keys have passed.
#include <algorithm>
#include <cmath>
#include <future>
#include <limits>

#include "locus/threads.h"
#include "ring/agreement/metadata.h"
#include "ring/attention/pairs.h"
#include "ring/blocks/kv_ring.h"
#include "ring/blocks/views.h"

namespace locus::ring {
namespace {

// Zeros and lse = -inf: the result of queries that see no key.
AttentionResult EmptyResult(const Call& call) {
  const int64_t heads = call.shape.q_heads;
  AttentionResult result{
      .out = Tensor::Zeros(DType::kF32,
                           {call.batch, heads, call.q_len, call.ValueDim()}),
      .lse = Tensor::Empty(DType::kF32, {call.batch, heads, call.q_len})};
  std::fill_n(result.lse.MutableData<float>(), result.lse.NumElements(),
              -std::numeric_limits<float>::infinity());
  return result;
}

// Merges a partial result of some rows into the whole.
void MergeRows(const AttentionResult& part, const Chunk& rows,
               AttentionResult& whole) {
  AttentionResult before{.out = TokensOf(whole.out, rows),
                         .lse = TokensOf(whole.lse, rows)};
  const AttentionResult both = Merge(before, part);
  CopyTokens(both.out, before.out);
  CopyTokens(both.lse, before.lse);
}

// The same on several threads, each with a range of rows, since Merge uses a
// single thread for so few.
void MergeInParallel(const AttentionResult& part, const Chunk& rows,
                     int threads, AttentionResult& whole) {
  // Below this, starting a thread takes longer than the work.
  constexpr int64_t kRowsPerThread = 256;
  const int64_t wanted = threads > 0 ? threads : UsableCpus();
  const int64_t workers =
      std::clamp<int64_t>(rows.count / kRowsPerThread, 1, wanted);
  std::vector<std::future<void>> others;
  for (int64_t n = workers; n-- > 0;) {
    const int64_t begin = rows.count * n / workers;
    const int64_t count = rows.count * (n + 1) / workers - begin;
    const auto merge = [&part, &rows, &whole, begin, count] {
      const Chunk some{.first = begin, .count = count};
      MergeRows({TokensOf(part.out, some), TokensOf(part.lse, some)},
                {.first = rows.first + begin, .count = count}, whole);
    };
    if (n > 0) {
      others.push_back(std::async(std::launch::async, merge));
    } else {
      merge();
    }
  }
  for (std::future<void>& other : others) other.get();
}

// Weights of this rank's queries over the keys of all ranks, if wanted. Those
// of a pair of pieces sum to 1 until the final lse is known:
//
//   p_ij = exp(s_ij - lse_i) = exp(s_ij - part_i) exp(part_i - lse_i)
class Weights {
 public:
  Weights(const Call& call, bool wanted) {
    if (!wanted) return;
    weights_ = Tensor::Zeros(DType::kF32, {call.batch, call.shape.q_heads,
                                           call.q_len, call.k_total});
  }

  void Add(const AttentionResult& part, const Chunk& rows, const Chunk& keys) {
    if (!weights_.defined()) return;
    CopyTokens(part.weights, PairsOf(weights_, rows, keys));
    parts_.push_back({.rows = rows, .keys = keys, .lse = part.lse});
  }

  // Returns an undefined tensor if they are not wanted.
  Tensor Finish(const Tensor& lse) {
    for (const Part& part : parts_) {
      Tensor weights = PairsOf(weights_, part.rows, part.keys);
      const Tensor final_lse = TokensOf(lse, part.rows);
      for (int64_t b = 0; b < weights.size(0); ++b) {
        for (int64_t h = 0; h < weights.size(1); ++h) {
          for (int64_t i = 0; i < weights.size(2); ++i) {
            const double own = part.lse.At(b, h, i);
            if (std::isinf(own)) continue;  // it saw no key
            Scale(weights, b, h, i,
                  static_cast<float>(std::exp(own - final_lse.At(b, h, i))));
          }
        }
      }
    }
    return weights_;
  }

 private:
  struct Part {
    Chunk rows = {};
    Chunk keys = {};
    Tensor lse = {};
  };

  static void Scale(Tensor& x, int64_t b, int64_t h, int64_t i, float factor) {
    const std::vector<int64_t>& s = x.strides();
    float* row = x.MutableData<float>() + b * s[0] + h * s[1] + i * s[2];
    for (int64_t j = 0; j < x.size(3); ++j) row[j * s[3]] *= factor;
  }

  Tensor weights_;
  std::vector<Part> parts_;
};

}  // namespace

AttentionResult Attention(MPI_Comm comm, const Tensor& q, const Tensor& k,
                          const Tensor& v, const Encoding& encoding,
                          const Options& options) {
  const Group group(comm, options.deadline_seconds);
  const AttentionOptions& o = options.attention;
  const Call call = ExchangeMetadata(
      group,
      {.q = q, .k = k, .v = v, .encoding = encoding, .options = options});
  const Neighbours ring{.rank = group.rank(), .size = group.size()};
  const std::vector<QueryPiece> queries = QueryPieces(call, ring.rank, q, o);
  AttentionResult result = EmptyResult(call);
  Weights weights(call, o.return_weights);
  Stats stats;
  AsyncTransport transport(group);
  KvRing kv_ring(call, transport, ring, OwnBlock(call, ring.rank, k, v, o));
  for (int step = 0; step < ring.size; ++step) {
    const std::shared_ptr<Block> block = kv_ring.Begin(step);
    if (block != nullptr) {
      const Stopwatch watch(stats.compute_seconds);
      ForEachPair(
          call, queries, *block, call.keys[static_cast<size_t>(block->owner)],
          stats, [&](const QueryPiece& rows, const KeyPiece& keys) {
            const AttentionResult part = locus::Attention(
                rows.q, keys.k, keys.v, call.terms, PairOptions(o, rows, keys));
            MergeInParallel(part, rows.rows, o.threads, result);
            weights.Add(part, rows.rows, keys.tokens);
          });
    }
    kv_ring.End();
  }
  if (o.sinks.defined()) result = AddSinks(result, o.sinks, o.threads);
  result.weights = weights.Finish(result.lse);
  result.out = Convert(result.out, q.dtype());
  if (!o.return_lse) result.lse = {};
  Report(transport, stats, options.stats);
  return result;
}

}  // namespace locus::ring
