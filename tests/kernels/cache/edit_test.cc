// Removing tokens from a cache, moving them to other positions, copying caches.
#include <fmt/format.h>

#include "kernels/cache/calls.h"

namespace locus::testing {
namespace {

std::vector<int64_t> PositionsIn(const KvCache& cache, int64_t b = 0) {
  const auto list = cache.positions(b);
  return {list.begin(), list.end()};
}

// A copy of tokens `kept` of x [B, H, L, D] f32.
Tensor Chosen(const Tensor& x, const std::vector<int64_t>& kept) {
  std::vector<float> rows;
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (int64_t h = 0; h < x.size(1); ++h) {
      for (int64_t j : kept) {
        for (int64_t d = 0; d < x.size(3); ++d) {
          rows.push_back(static_cast<float>(x.At(b, h, j, d)));
        }
      }
    }
  }
  return Tensor::From(
      {x.size(0), x.size(1), static_cast<int64_t>(kept.size()), x.size(3)},
      std::move(rows));
}

TEST(KvCacheEditTest, TruncatesOneSequence) {
  const Sequence x = RandomSequence(12, /*batch=*/2);
  const Terms terms = RopeTerms(10000.0);
  KvCache cache(Config(2));
  cache.Append(Part(x.k, 0, 10), Part(x.v, 0, 10), terms);
  cache.Truncate(4, 1);
  EXPECT_EQ(cache.size(0), 10);
  EXPECT_EQ(cache.size(1), 4);
  // Each sequence continues after its own last token.
  cache.Append(Part(x.k, 10, 12), Part(x.v, 10, 12), terms);
  EXPECT_EQ(PositionsIn(cache, 1), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  const Tensor q = Part(x.q, 11, 12);
  const Tensor out = cache.Decode(q, terms).out;
  const std::vector<int64_t> kept = {0, 1, 2, 3, 10, 11};
  const Tensor alone = Attention(Only(q, 1), Chosen(Only(x.k, 1), kept),
                                 Chosen(Only(x.v, 1), kept), terms)
                           .out;
  EXPECT_LE(RelativeError(Only(out, 1), alone), 2 * kTolerance);
}

// Remaining tokens attend at their own positions as if the others had never
// existed, whether keys are rotated when stored or when read.
TEST(KvCacheEditTest, EvictedTokensLeaveTheOthersAlone) {
  const Sequence x = RandomSequence(300, /*batch=*/2);
  std::vector<int64_t> kept;
  for (int64_t j = 0; j < 300; ++j) {
    if (j < 4 || j >= 190) kept.push_back(j);
  }
  for (std::string_view name : {"rope", "xpos", "alibi"}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(::testing::Message() << name << " " << DTypeName(dtype));
      const auto encoding = FindEncoding(name).example(
          {.heads = kQueryHeads, .head_dim = kHeadDim, .length = 300});
      KvCache cache(Config(2, dtype)), expected(Config(2, dtype));
      cache.Append(x.k, x.v, *encoding);
      cache.Evict(4, 190);
      expected.Append(Chosen(x.k, kept), Chosen(x.v, kept), *encoding,
                      {.positions = kept});
      EXPECT_EQ(PositionsIn(cache, 0), kept);
      EXPECT_EQ(PositionsIn(cache, 1), kept);
      EXPECT_EQ(cache.keys().ToVector(), expected.keys().ToVector());
      EXPECT_EQ(cache.values().ToVector(), expected.values().ToVector());
      const Tensor q = Part(x.q, 299, 300);
      EXPECT_EQ(cache.Decode(q, *encoding).out.ToVector(),
                expected.Decode(q, *encoding).out.ToVector());
    }
  }
}

TEST(KvCacheEditTest, EvictsFromOneSequence) {
  const Sequence x = RandomSequence(20, /*batch=*/2);
  const Terms terms = RopeTerms(10000.0);
  KvCache cache(Config(2));
  cache.Append(x.k, x.v, terms);
  const std::vector<double> before = cache.keys().ToVector();
  cache.Evict(0, 0);
  EXPECT_EQ(cache.keys().ToVector(), before);
  cache.Evict(5, 20, 1);
  cache.Evict(1, 3, 1);
  EXPECT_EQ(cache.size(0), 20);
  const std::vector<int64_t> kept = {0, 3, 4};
  EXPECT_EQ(PositionsIn(cache, 1), kept);
  const std::vector<int64_t> at = {19};
  const Tensor q = Part(x.q, 19, 20);
  const Tensor out = cache.Decode(q, terms, {.q_positions = at}).out;
  for (int64_t b = 0; b < 2; ++b) {
    const std::vector<int64_t> all = PositionsIn(cache, b);
    const Tensor alone =
        Attention(Only(q, b), Chosen(Only(x.k, b), all),
                  Chosen(Only(x.v, b), all), terms,
                  {.causal = true, .q_positions = at, .k_positions = all})
            .out;
    EXPECT_LE(RelativeError(Only(out, b), alone), 2 * kTolerance);
  }
}

// Shifted keys equal keys appended at the new positions.
// An empty cache takes no memory, so it may have any number of heads.
TEST(KvCacheEditTest, EvictsNothingAtOnce) {
  KvCache cache({.kv_heads = int64_t{1} << 53, .head_dim = 4});
  cache.Evict(0, 0);
  EXPECT_EQ(cache.size(), 0);
}

TEST(KvCacheEditTest, ShiftedKeysEqualKeysAppendedThere) {
  const Sequence x = RandomSequence(600, /*batch=*/2);
  Rotation gained = RopeRotation(500.0);
  gained.gain = 1.3;
  Rotation partial = RopeRotation(700.0, PairLayout::kHalves);
  partial.rotary_dim = 8;
  partial.first_channel = 4;
  partial.theta.resize(4);
  Rotation rounded = RopeRotation(10000.0);
  rounded.angles = AngleMode::kFloat32;
  Rotation decaying = RopeRotation(300.0);
  decaying.log_decay.assign(8, -0.01);
  Rotation of_heads = RopeRotation(600.0);
  SetHeads(of_heads, kKeyHeads);
  const Rotation all[] = {
      RopeRotation(10000.0), gained, partial, rounded, decaying, of_heads};
  for (size_t n = 0; n < std::size(all); ++n) {
    for (int64_t delta : {-100, 1, 123456}) {
      SCOPED_TRACE(::testing::Message() << n << " by " << delta);
      Terms terms;
      terms.rotate = all[n];
      KvCache cache(Config(2)), expected(Config(2));
      std::vector<int64_t> from, to;
      for (int64_t i = 0; i < 600; ++i) {
        from.push_back(1000 + i);
        to.push_back(1000 + i + (i >= 5 ? delta : 0));
      }
      cache.Append(x.k, x.v, terms, {.positions = from});
      cache.Shift(delta, {}, 5);
      expected.Append(x.k, x.v, terms, {.positions = to});
      EXPECT_EQ(PositionsIn(cache, 0), to);
      EXPECT_EQ(PositionsIn(cache, 1), to);
      EXPECT_LE(RelativeError(cache.keys(), expected.keys()), 4 * kEps);
      const bool stored = all[n].log_decay.empty();
      EXPECT_EQ(cache.keys().ToVector() == expected.keys().ToVector(), !stored);
      const Tensor q = Part(x.q, 0, 1);
      EXPECT_LE(RelativeError(cache.Decode(q, terms).out,
                              expected.Decode(q, terms).out),
                3 * kTolerance);
    }
  }
}

TEST(KvCacheEditTest, ShiftsOneSequenceAndOneStretch) {
  const Sequence x = RandomSequence(6, /*batch=*/2);
  const Terms terms = RopeTerms(10000.0);
  KvCache cache(Config(2));
  cache.Append(x.k, x.v, terms);
  cache.Shift(10, 1);
  cache.Shift(-2, 1, 3, 5);
  EXPECT_EQ(PositionsIn(cache, 0), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(PositionsIn(cache, 1),
            (std::vector<int64_t>{10, 11, 12, 11, 12, 15}));
  KvCache expected(Config(2));
  const std::vector<int64_t> at = {0, 1, 2, 3, 4, 5, 10, 11, 12, 11, 12, 15};
  expected.Append(x.k, x.v, terms, {.positions = at});
  EXPECT_LE(RelativeError(cache.keys(), expected.keys()), 4 * kEps);
  EXPECT_EQ(cache.values().ToVector(), expected.values().ToVector());
}

// If all tokens move together, queries that move along see no change.
TEST(KvCacheEditTest, ShiftThereAndBack) {
  const Sequence x = RandomSequence(50);
  const Terms terms = RopeTerms(10000.0);
  KvCache cache(Config());
  cache.Append(x.k, x.v, terms);
  const Tensor q = Part(x.q, 49, 50);
  const Tensor before = cache.Decode(q, terms).out;
  cache.Shift(1 << 20);
  EXPECT_LE(RelativeError(cache.Decode(q, terms).out, before), 3 * kTolerance);
  cache.Shift(-(1 << 20));
  EXPECT_EQ(cache.positions()[49], 49);
  EXPECT_LE(RelativeError(cache.Decode(q, terms).out, before), 3 * kTolerance);
}

TEST(KvCacheEditTest, ForksAreIndependent) {
  const Sequence x = RandomSequence(40, /*batch=*/2);
  const Terms terms = RopeTerms(10000.0);
  KvCache cache(Config(2, DType::kF16));
  const std::vector<int64_t> lengths = {30, 11};
  cache.Append(Part(x.k, 0, 30), Part(x.v, 0, 30), terms, {.lengths = lengths});
  KvCache fork = cache.Fork();
  EXPECT_EQ(fork.capacity(), cache.capacity());
  EXPECT_EQ(fork.table_id(), cache.table_id());
  EXPECT_EQ(fork.config().q_heads, kQueryHeads);
  const Tensor q = Part(x.q, 0, 1);
  const std::vector<double> before = cache.Decode(q, terms).out.ToVector();
  EXPECT_EQ(fork.Decode(q, terms).out.ToVector(), before);
  // Changes of one do not affect the other, in either direction.
  fork.Append(Part(x.k, 30, 40), Part(x.v, 30, 40), terms);
  fork.Shift(7);
  fork.Evict(0, 2);
  EXPECT_EQ(cache.Decode(q, terms).out.ToVector(), before);
  EXPECT_EQ(cache.size(), 30);
  const std::vector<double> of_fork = fork.Decode(q, terms).out.ToVector();
  cache.Clear();
  cache.Append(x.k, x.k, Terms());
  EXPECT_EQ(fork.Decode(q, terms).out.ToVector(), of_fork);
  EXPECT_EQ(PositionsIn(fork, 1).front(), 9);
}

TEST(KvCacheEditTest, RefusalsChangeNothing) {
  const Sequence x = RandomSequence(10, /*batch=*/2);
  const Terms terms = RopeTerms(10000.0);
  KvCache cache(Config(2));
  const std::vector<int64_t> lengths = {10, 6};
  cache.Append(x.k, x.v, terms, {.lengths = lengths});
  const std::vector<double> keys = Part(cache.keys(), 0, 6).ToVector();
  const auto error = [&](const auto& change) {
    std::string words = ErrorOf([&] { change(); });
    EXPECT_EQ(cache.size(0), 10);
    EXPECT_EQ(cache.size(1), 6);
    EXPECT_EQ(PositionsIn(cache, 0).back(), 9);
    EXPECT_EQ(Part(cache.keys(), 0, 6).ToVector(), keys);
    return words;
  };
  EXPECT_EQ(error([&] { cache.Truncate(-1); }),
            "a cache cannot keep -1 tokens");
  EXPECT_EQ(error([&] { cache.Truncate(1, 2); }),
            "a cache of 2 sequences has no sequence 2");
  EXPECT_EQ(error([&] { cache.Evict(0, 1, -1); }),
            "a cache of 2 sequences has no sequence -1");
  // The range must be valid in every sequence.
  EXPECT_EQ(error([&] { cache.Evict(3, 8); }),
            "tokens [3, 8) do not lie in [0, 6), the tokens of sequence 1");
  EXPECT_EQ(error([&] { cache.Evict(5, 4, 0); }),
            "tokens [5, 4) do not lie in [0, 10), the tokens of sequence 0");
  EXPECT_EQ(error([&] { cache.Evict(-1, 4, 0); }),
            "tokens [-1, 4) do not lie in [0, 10), the tokens of sequence 0");
  EXPECT_EQ(error([&] { cache.Shift(1, 0, 0, 11); }),
            "tokens [0, 11) do not lie in [0, 10), the tokens of sequence 0");
  EXPECT_EQ(error([&] { cache.Shift(1, 7); }),
            "a cache of 2 sequences has no sequence 7");
  EXPECT_EQ(error([&] { cache.Shift(std::numeric_limits<int64_t>::max()); }),
            fmt::format("a shift by 9223372036854775807 takes position {} of "
                        "sequence 0 out of [{}, {}]",
                        0, kLowestPosition, kHighestPosition));
  EXPECT_EQ(
      error([&] { cache.Shift(kLowestPosition - 1, 1); }),
      fmt::format("a shift by {} takes position 0 of sequence 1 out of "
                  "[{}, {}]",
                  kLowestPosition - 1, kLowestPosition, kHighestPosition));
}

// A packed position has three coordinates, so a shift is ambiguous.
TEST(KvCacheEditTest, PackedPositionsAreNotShifted) {
  const Sequence x = RandomSequence(3);
  const auto mrope = FindEncoding("mrope").example(
      {.heads = kQueryHeads, .head_dim = kHeadDim, .length = 3});
  const std::vector<int64_t> at = {0, 1, PackPosition(2, 2, 3)};
  KvCache cache(Config());
  cache.Append(x.k, x.v, *mrope, {.positions = at});
  EXPECT_EQ(ErrorOf([&] { cache.Shift(1); }),
            fmt::format("sequence 0 has packed position {}, which cannot be "
                        "shifted",
                        at[2]));
  cache.Shift(1, 0, 0, 2);
  EXPECT_EQ(cache.positions()[1], 2);
}

}  // namespace
}  // namespace locus::testing
