// Forward: partial results of each pair of pieces, joined by lse.
#include <algorithm>
#include <future>
#include <limits>

#include "locus/threads.h"
#include "ring/journey.h"
#include "ring/pairs.h"
#include "ring/views.h"

namespace locus::ring {
namespace {

// Zeros and lse = -inf: what a query gives that sees no key.
AttentionResult Nothing(const Sizes& s) {
  AttentionResult result{
      .out = Tensor::Zeros(DType::kF32,
                           {s.batch, s.q_heads, s.q_len, s.value_dim}),
      .lse = Tensor::Empty(DType::kF32, {s.batch, s.q_heads, s.q_len})};
  std::fill_n(result.lse.MutableData<float>(), result.lse.NumElements(),
              -std::numeric_limits<float>::infinity());
  return result;
}

// Joins what some rows saw to what they saw before.
void JoinRows(const AttentionResult& part, const Chunk& rows,
              AttentionResult& whole) {
  AttentionResult before{.out = TokensOf(whole.out, rows),
                         .lse = TokensOf(whole.lse, rows)};
  const AttentionResult both = Merge(before, part);
  CopyTokens(both.out, before.out);
  CopyTokens(both.lse, before.lse);
}

// The same on several threads, a stretch of rows each: the engine alone would
// leave this to one.
void Join(const AttentionResult& part, const Chunk& rows, int threads,
          AttentionResult& whole) {
  // Below this, starting a thread takes longer than the work.
  constexpr int64_t kRowsPerThread = 256;
  const int64_t wanted = threads > 0 ? threads : UsableCpus();
  const int64_t workers =
      std::clamp<int64_t>(rows.count / kRowsPerThread, 1, wanted);
  std::vector<std::future<void>> others;
  for (int64_t n = workers; n-- > 0;) {
    const int64_t begin = rows.count * n / workers;
    const int64_t count = rows.count * (n + 1) / workers - begin;
    const auto join = [&part, &rows, &whole, begin, count] {
      const Chunk some{.first = begin, .count = count};
      JoinRows({TokensOf(part.out, some), TokensOf(part.lse, some)},
               {.first = rows.first + begin, .count = count}, whole);
    };
    if (n > 0) {
      others.push_back(std::async(std::launch::async, join));
    } else {
      join();
    }
  }
  for (std::future<void>& other : others) other.get();
}

}  // namespace

AttentionResult Attention(MPI_Comm comm, const Tensor& q, const Tensor& k,
                          const Tensor& v, const Encoding& encoding,
                          const Options& options) {
  const Group group(comm, options.deadline_seconds);
  const Call call = Meet(group, q, k, v, encoding, options);
  const Neighbours ring{.rank = group.rank(), .size = group.size()};
  const std::vector<QueryPiece> queries =
      QueryPieces(call, ring.rank, q, options.attention);
  AttentionResult result = Nothing(call.sizes);
  Stats stats;
  Courier courier(group);
  Journey journey(call, courier, ring,
                  OwnBlock(k, v, ring.rank, options.attention));
  for (int step = 0; step < ring.size; ++step) {
    const std::shared_ptr<Block> block = journey.Begin(step);
    if (block != nullptr) {
      const Stopwatch watch(stats.compute_seconds);
      ForEachPair(
          call, queries, *block, call.keys[static_cast<size_t>(block->owner)],
          stats, [&](const QueryPiece& rows, const KeyPiece& keys) {
            Join(locus::Attention(rows.q, keys.k, keys.v, call.terms,
                                  PairOptions(options.attention, rows, keys)),
                 rows.rows, options.attention.threads, result);
          });
    }
    journey.End();
  }
  result.out = Convert(result.out, q.dtype());
  if (!options.attention.return_lse) result.lse = {};
  Report(courier, stats, options.stats);
  return result;
}

}  // namespace locus::ring
