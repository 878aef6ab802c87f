// Rotation tables of cached keys: mismatches, changes, growing tables.
#include <fmt/format.h>

#include "kernels/cache/calls.h"

namespace locus::testing {
namespace {

TEST(KvCacheTableTest, KeyTableBesideARotationSeesUnrotatedKeys) {
  const Sequence x = RandomSequence(40);
  Terms terms = RopeTerms(10000.0);
  const BucketMap clip = BucketMap::Clip(-3, 3);
  terms.k_table = BucketTable{RandomTensor({1, clip.count, kHeadDim}, 5), clip};
  KvCache cache(Config());
  cache.Append(x.k, x.v, terms);
  const Tensor q = Part(x.q, 39, 40);
  EXPECT_LE(RelativeError(cache.Decode(q, terms).out,
                          Attention(q, x.k, x.v, terms).out),
            2 * kTolerance);
  EXPECT_EQ(cache.keys().ToVector(), x.k.ToVector());

  KvCache rotated(Config());
  rotated.Append(x.k, x.v, RopeTerms(10000.0));
  EXPECT_EQ(ErrorOf([&] { rotated.Decode(q, terms); }),
            fmt::format("a key table sees unrotated keys, but this cache holds "
                        "keys that were appended without one and rotated by "
                        "table {:016x}",
                        terms.rotate->Id()));
}

TEST(KvCacheTableTest, RefusesAnotherTable) {
  const Sequence x = RandomSequence(3);
  const Terms old_terms = RopeTerms(10000.0), new_terms = RopeTerms(20000.0);
  const uint64_t old_id = old_terms.rotate->Id();
  const uint64_t new_id = new_terms.rotate->Id();
  KvCache cache(Config());
  EXPECT_EQ(cache.table_id(), 0U);
  cache.Append(x.k, x.v, old_terms);
  EXPECT_EQ(cache.table_id(), old_id);
  const std::vector<double> keys = cache.keys().ToVector();
  EXPECT_EQ(ErrorOf([&] { cache.Append(x.k, x.v, new_terms); }),
            fmt::format("the cached keys are rotated by table {:016x}, but the "
                        "new ones would be rotated by table {:016x}: Rerotate "
                        "the cache first",
                        old_id, new_id));
  EXPECT_EQ(cache.size(), 3);
  EXPECT_EQ(cache.keys().ToVector(), keys);
  EXPECT_EQ(ErrorOf([&] { cache.Decode(x.q, new_terms); }),
            fmt::format("the cached keys are rotated by table {:016x}, but the "
                        "queries would be rotated by table {:016x}: Rerotate "
                        "the cache first",
                        old_id, new_id));
  EXPECT_EQ(ErrorOf([&] { cache.Decode(x.q, Terms()); }),
            fmt::format("the cached keys are rotated by table {:016x}, but the "
                        "queries would be rotated by table none: Rerotate the "
                        "cache first",
                        old_id));
  cache.Clear();
  EXPECT_EQ(cache.table_id(), 0U);
  cache.Append(x.k, x.v, new_terms);
  EXPECT_EQ(cache.table_id(), new_id);
}

// Every change from one table to another, compared with appended keys.
TEST(KvCacheTableTest, RerotatedKeysEqualAppendedKeys) {
  const Sequence x = RandomSequence(600, /*batch=*/2);
  Rotation gained = RopeRotation(500.0);
  gained.gain = 1.3;
  Rotation partial = RopeRotation(700.0);
  partial.rotary_dim = 8;
  partial.first_channel = 4;
  partial.theta.resize(4);
  Rotation decaying = RopeRotation(300.0);
  decaying.log_decay.assign(8, -0.01);
  Rotation of_heads = RopeRotation(600.0);
  SetHeads(of_heads, kKeyHeads);
  const std::vector<Rotation> all = {RopeRotation(10000.0),
                                     gained,
                                     RopeRotation(800.0, PairLayout::kHalves),
                                     partial,
                                     decaying,
                                     of_heads};
  const std::vector<int64_t> lengths = {600, 411};
  const AppendOptions options{.lengths = lengths};
  for (size_t from = 0; from < all.size(); ++from) {
    for (size_t to = 0; to < all.size(); ++to) {
      SCOPED_TRACE(::testing::Message() << from << " to " << to);
      Terms old_terms, new_terms;
      old_terms.rotate = all[from];
      new_terms.rotate = all[to];
      KvCache rerotated(Config(2)), appended(Config(2));
      rerotated.Append(x.k, x.v, old_terms, options);
      rerotated.Rerotate(all[to]);
      appended.Append(x.k, x.v, new_terms, options);
      EXPECT_EQ(rerotated.table_id(), all[to].Id());
      for (int64_t b = 0; b < 2; ++b) {
        const int64_t n = lengths[static_cast<size_t>(b)];
        // Each of up to three products has one or two roundings.
        EXPECT_LE(RelativeError(Part(Only(rerotated.keys(), b), 0, n),
                                Part(Only(appended.keys(), b), 0, n)),
                  4 * kEps);
      }
      EXPECT_LE(RelativeError(rerotated.Decode(Part(x.q, 0, 1), new_terms).out,
                              appended.Decode(Part(x.q, 0, 1), new_terms).out),
                2 * kTolerance);
    }
  }
}

// Dynamic NTK: the table changes with every token past the trained length.
TEST(KvCacheTableTest, GrowingTablesAreFollowed) {
  constexpr int64_t kLength = 24;
  const Rope rope(kHeadDim, PairLayout::kHalves,
                  {.scaling = DynamicScaling{.factor = 2.0, .max_length = 16}});
  const Sequence x = RandomSequence(kLength);
  KvCache cache(Config());
  cache.Append(Part(x.k, 0, 16), Part(x.v, 0, 16), rope);
  EXPECT_NE(ErrorOf([&] {
              cache.Append(Part(x.k, 16, 17), Part(x.v, 16, 17), rope);
            }).find("Rerotate the cache first"),
            std::string::npos);
  for (int64_t i = 16; i < kLength; ++i) {
    cache.Rerotate(rope, /*length=*/i + 1);
    cache.Append(Part(x.k, i, i + 1), Part(x.v, i, i + 1), rope);
    const AttentionResult whole =
        Attention(Part(x.q, 0, i + 1), Part(x.k, 0, i + 1), Part(x.v, 0, i + 1),
                  rope, {.causal = true});
    const AttentionResult step = cache.Decode(Part(x.q, i, i + 1), rope);
    // Keys have been rotated up to eight times.
    EXPECT_LE(RelativeError(step.out, Part(whole.out, i, i + 1)),
              4 * kTolerance);
  }
}

}  // namespace
}  // namespace locus::testing
