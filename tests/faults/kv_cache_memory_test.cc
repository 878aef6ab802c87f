// A cache when memory runs out: an operation that throws has changed nothing.
#include "faults/failing_new.h"
#include "locus/locus.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

constexpr int64_t kBatch = 2, kHeads = 4, kDim = 32;

Tensor Random(int64_t heads, int64_t length, uint64_t seed) {
  return RandomTensor({kBatch, heads, length, kDim}, seed).To(DType::kF32);
}

// The stored rows, with zeros where a shorter sequence has none.
Tensor Stored(const KvCache& cache, const Tensor& view) {
  std::vector<double> rows = view.ToVector();
  const int64_t length = cache.size(), heads = kBatch * kHeads;
  for (int64_t row = 0; row < heads * length; ++row) {
    if (row % length >= cache.size(row / length / kHeads)) {
      std::fill_n(rows.begin() + row * kDim, kDim, 0.0);
    }
  }
  return Tensor::From(view.shape(), std::move(rows));
}

// The observable state of a cache.
std::vector<Tensor> Seen(const KvCache& cache, const Encoding& encoding) {
  std::vector<Tensor> seen = {Stored(cache, cache.keys()),
                              Stored(cache, cache.values())};
  for (int64_t b = 0; b < kBatch; ++b) {
    const auto positions = cache.positions(b);
    std::vector<double> numbers(positions.begin(), positions.end());
    const auto count = static_cast<int64_t>(numbers.size());
    seen.push_back(Tensor::From({count}, std::move(numbers)));
  }
  const std::vector<int64_t> at = {500};
  seen.push_back(cache
                     .Decode(Random(2 * kHeads, 1, 9), encoding,
                             {.q_positions = at, .threads = 2})
                     .out);
  return seen;
}

// A cache with `length` tokens, fewer in the second of two sequences.
KvCache Filled(const Encoding& encoding, int64_t length, DType dtype) {
  KvCache cache({.batch = kBatch,
                 .kv_heads = kHeads,
                 .head_dim = kDim,
                 .dtype = dtype,
                 .q_heads = 2 * kHeads});
  if (length == 0) return cache;
  const std::vector<int64_t> lengths = {length, length - 1};
  cache.Append(Random(kHeads, length, 1), Random(kHeads, length, 2), encoding,
               {.lengths = lengths});
  return cache;
}

// Runs change(cache) with every allocation failing, each time on a new cache:
// the cache is unchanged or as it should be, and the next attempt succeeds.
template <typename Change>
void ExpectAllOrNothing(const Encoding& encoding, int64_t length, DType dtype,
                        const Change& change, const Encoding& after) {
  KvCache wanted = Filled(encoding, length, dtype);
  const std::vector<Tensor> before = Seen(wanted, encoding);
  const uint64_t table_before = wanted.table_id();
  change(wanted);
  const std::vector<Tensor> expected = Seen(wanted, after);
  const uint64_t table_after = wanted.table_id();
  KvCache cache = Filled(encoding, length, dtype);
  ForEveryAllocation([&] { return Try([&] { change(cache); }); },
                     [&](Outcome outcome) {
                       if (outcome == Outcome::kThrew) {
                         EXPECT_EQ(cache.table_id(), table_before);
                         EXPECT_TRUE(SameBits(Seen(cache, encoding), before))
                             << "it changed";
                         change(cache);
                       }
                       EXPECT_EQ(cache.table_id(), table_after);
                       EXPECT_TRUE(SameBits(Seen(cache, after), expected));
                       cache = Filled(encoding, length, dtype);
                     });
}

TEST(KvCacheMemoryTest, AppendGrowsOrChangesNothing) {
  const Rope rope(kDim, PairLayout::kHalves);
  const NoPosition none;
  struct Case {
    int64_t length, added;
    int threads;
  };
  // From an empty cache, within the capacity and beyond it; 520 tokens are
  // enough for two threads.
  for (const Case& c : std::initializer_list<Case>{
           {0, 3, 1}, {10, 3, 1}, {62, 3, 1}, {62, 520, 2}}) {
    SCOPED_TRACE(::testing::Message() << c.added << " tokens to " << c.length);
    const Tensor k = Random(kHeads, c.added, 3), v = Random(kHeads, c.added, 4);
    const auto append = [&](KvCache& cache) {
      cache.Append(k, v, rope, {.threads = c.threads});
    };
    ExpectAllOrNothing(rope, c.length, DType::kBF16, append, rope);
    if (HasFailure()) return;
  }
  const Tensor k = Random(kHeads, 70, 3);
  ExpectAllOrNothing(
      none, 10, DType::kF32, [&](KvCache& cache) { cache.Append(k, k, none); },
      none);
}

// Keys are rotated in place.
TEST(KvCacheMemoryTest, RerotateTurnsAllKeysOrNone) {
  const Rope rope(kDim, PairLayout::kHalves);
  const Rope other(kDim, PairLayout::kHalves, {.base = 5e5});
  const Rope other_pairs(kDim, PairLayout::kInterleaved);
  const NoPosition none;
  for (const Encoding* to :
       std::initializer_list<const Encoding*>{&other, &other_pairs, &none}) {
    ExpectAllOrNothing(
        rope, 300, DType::kF32, [&](KvCache& cache) { cache.Rerotate(*to); },
        *to);
    if (HasFailure()) return;
  }
}

TEST(KvCacheMemoryTest, ShiftMovesAllTokensOrNone) {
  const Rope rope(kDim, PairLayout::kHalves);
  ExpectAllOrNothing(
      rope, 300, DType::kBF16, [](KvCache& cache) { cache.Shift(17, {}, 4); },
      rope);
}

// Both caches are as they should be, or there is no fork.
TEST(KvCacheMemoryTest, ForkLeavesTheCacheAlone) {
  const Rope rope(kDim, PairLayout::kHalves);
  const KvCache cache = Filled(rope, 100, DType::kBF16);
  ExpectSurvivesEveryAllocation([&] {
    const KvCache fork = cache.Fork();
    return Seen(fork, rope);
  });
}

TEST(KvCacheMemoryTest, DecodeChangesNothing) {
  const Rope rope(kDim, PairLayout::kHalves);
  const KvCache cache = Filled(rope, 300, DType::kF16);
  // Few queries are decoded, many use the tiled driver.
  for (int64_t queries : {1, 60}) {
    const Tensor q = Random(2 * kHeads, queries, 5);
    for (int threads : {1, 2}) {
      ExpectSurvivesEveryAllocation([&] {
        const AttentionResult result =
            cache.Decode(q, rope, {.threads = threads, .return_lse = true});
        return std::vector<Tensor>{result.out, result.lse};
      });
      if (HasFailure()) return;
    }
  }
}

TEST(KvCacheMemoryTest, NewCache) {
  ForEveryAllocation(
      [&] {
        return Try([] {
          const KvCache cache(
              {.batch = 2, .kv_heads = 2, .head_dim = 8, .capacity = 100});
        });
      },
      [](Outcome) {});
}

// Sizes whose product overflows are an Error, and sizes beyond any machine are
// std::bad_alloc.
TEST(KvCacheMemoryTest, ImpossibleCapacities) {
  const auto make = [](int64_t capacity) {
    const KvCache cache(
        {.batch = 2, .kv_heads = 2, .head_dim = 8, .capacity = capacity});
  };
  EXPECT_THROW(make(int64_t{1} << 61), Error);
#ifndef __clang__  // whose AddressSanitizer would end the process
  EXPECT_THROW(make(int64_t{1} << 52), std::bad_alloc);
#endif
}

}  // namespace
}  // namespace locus::testing
