// A cache of int8: quantized rows with one scale each.
#include <limits>

#include "kernels/cache/calls.h"
#include "kernels/simd/rows.h"

namespace locus::testing {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// For integer products, queries and weights become int16: their error is 2^-16
// of the largest, far below that of the rows.
constexpr double kIntegers = 16 * 0x1p-16;

// Stored rows as the floats that they represent.
Tensor Dequantized(const Tensor& rows, const Tensor& scales) {
  std::vector<float> values;
  for (int64_t b = 0; b < rows.size(0); ++b) {
    for (int64_t h = 0; h < rows.size(1); ++h) {
      for (int64_t j = 0; j < rows.size(2); ++j) {
        for (int64_t d = 0; d < rows.size(3); ++d) {
          values.push_back(static_cast<float>(rows.At(b, h, j, d)) *
                           static_cast<float>(scales.At(b, h, j, 0)));
        }
      }
    }
  }
  return Tensor::From(rows.shape(), std::move(values));
}
Tensor KeysOf(const KvCache& cache) {
  return Dequantized(cache.keys(), cache.key_scales());
}
Tensor ValuesOf(const KvCache& cache) {
  return Dequantized(cache.values(), cache.value_scales());
}

// Row (b, h, j) of x [B, H, L, D].
std::vector<double> RowAt(const Tensor& x, int64_t b, int64_t h, int64_t j) {
  std::vector<double> row;
  for (int64_t d = 0; d < x.size(3); ++d) row.push_back(x.At(b, h, j, d));
  return row;
}

double LargestOf(const std::vector<double>& row) {
  double largest = 0.0;
  for (double x : row) largest = std::max(largest, std::abs(x));
  return largest;
}

TEST(QuantizeTest, FollowsItsFormulaAndBound) {
  OnEveryTarget([] {
    for (int64_t count : {1, 3, 16, 17, 64, 81, 128}) {
      for (double size : {1e-44, 1e-37, 1e-20, 1.0, 3e37}) {
        SCOPED_TRACE(::testing::Message() << count << " of size " << size);
        const Tensor random = RandomTensor({count}, 7);
        std::vector<float> x;
        double most = 0.0;
        for (double value : random.ToVector()) {
          x.push_back(static_cast<float>(value * size));
          most = std::max(most, std::abs(static_cast<double>(x.back())));
        }
        std::vector<int8_t> q(x.size(), 99);
        const float scale = kernels::Quantize(x.data(), count, q.data());
        EXPECT_EQ(scale,
                  std::max(static_cast<float>(most) / 127.0F, 0x1p-126F));
        const double bound =
            std::max(most / 254.0, 0x1p-127) * (1.0 + 4.0 * kEps);
        for (size_t d = 0; d < x.size(); ++d) {
          EXPECT_EQ(q[d], std::nearbyint(x[d] / scale)) << d;
          EXPECT_LE(std::abs(x[d] - q[d] * static_cast<double>(scale)), bound);
        }
      }
    }
  });
}

TEST(QuantizeTest, TiesGoToEvenAndEndsAre127) {
  OnEveryTarget([] {
    const std::vector<float> x = {127.0F, -127.0F, 0.5F, 1.5F, 2.5F,
                                  -0.5F,  -1.5F,   0.0F, -2.5F};
    std::vector<int8_t> q(x.size());
    EXPECT_EQ(kernels::Quantize(x.data(), 9, q.data()), 1.0F);
    EXPECT_EQ(q, (std::vector<int8_t>{127, -127, 0, 2, 2, 0, -2, 0, -2}));
  });
}

TEST(QuantizeTest, WhatIsNotFiniteMakesTheRowNaN) {
  OnEveryTarget([] {
    for (float odd : {kNaN, -kNaN, kInf, -kInf}) {
      for (size_t at : {size_t{0}, size_t{15}, size_t{16}}) {
        std::vector<float> x(17, 1.0F);
        x[at] = odd;
        std::vector<int8_t> q(17, 99);
        EXPECT_TRUE(std::isnan(kernels::Quantize(x.data(), 17, q.data())));
        EXPECT_EQ(q, std::vector<int8_t>(17, 0));
      }
    }
    const std::vector<float> zeros(17, -0.0F);
    std::vector<int8_t> q(17, 99);
    EXPECT_EQ(kernels::Quantize(zeros.data(), 17, q.data()), 0x1p-126F);
    EXPECT_EQ(q, std::vector<int8_t>(17, 0));
  });
}

// Dimensions of keys and values for which every SIMD target reads both as
// integers (whole pairs of vectors: multiples of 32 with AVX-512, of 16 with
// AVX2, of 8 with SSE4), both as floats (whole vectors), one of each, and
// copied (with a remainder). Rows are shorter and longer than a cache line.
struct Dims {
  int64_t key, value;
};
constexpr Dims kDims[] = {{32, 32},  {160, 96}, {16, 16}, {32, 16}, {16, 32},
                          {24, 16},  {16, 24},  {24, 20}, {20, 24}, {33, 33},
                          {144, 80}, {72, 88},  {68, 76}};

// Every driver reads the integers as the floats that they represent, at any
// length and however rows divide into vectors.
TEST(KvCacheInt8Test, EqualsAttentionOverTheStoredFloats) {
  struct Lengths {
    int64_t queries, keys;
  };
  constexpr Lengths kLengths[] = {{1, 1},  {1, 300}, {2, 4},  {2, 45},
                                  {5, 40}, {5, 300}, {40, 4}, {40, 70}};
  OnEveryTarget([&] {
    for (const auto& [dim, value_dim] : kDims) {
      for (const auto& [queries, keys] : kLengths) {
        SCOPED_TRACE(::testing::Message()
                     << queries << " over " << keys << ", dims " << dim << ", "
                     << value_dim);
        const auto random = [](int64_t heads, int64_t n, int64_t d,
                               uint64_t seed) {
          return RandomTensor({1, heads, n, d}, seed).To(DType::kF32);
        };
        const Tensor q = random(4, queries, dim, 1);
        KvCache cache({.kv_heads = 2,
                       .head_dim = dim,
                       .value_dim = value_dim,
                       .dtype = DType::kI8,
                       .q_heads = 4});
        Terms terms;
        terms.scale.scale = 1.0 / std::sqrt(static_cast<double>(dim));
        cache.Append(random(2, keys, dim, 2), random(2, keys, value_dim, 3),
                     terms);
        const reference::Forward expected =
            reference::Attention(q, KeysOf(cache), ValuesOf(cache), terms, {});
        const AttentionResult actual =
            cache.Decode(q, terms, {.causal = false, .return_lse = true});
        EXPECT_LE(RelativeError(actual.out, expected.out), kIntegers);
        EXPECT_LE(RelativeError(actual.lse, expected.lse), kIntegers);
      }
    }
  });
}

// Tokens that are not in the order of their positions in memory, sequences of
// different lengths, causality, a value table. Returned weights must not
// include the scales of the values.
TEST(KvCacheInt8Test, WeightsAreThoseOverTheStoredFloats) {
  OnEveryTarget([] {
    for (int64_t queries : {1, 40}) {
      const Sequence all = RandomSequence(300);
      const Tensor q = Part(all.q, 300 - queries, 300);
      KvCache cache(Config(1, DType::kI8));
      Terms terms;
      terms.scale.scale = 0.25;
      cache.Append(all.k, all.v, terms);
      const AttentionResult actual =
          cache.Decode(q, terms, {.return_weights = true});
      const reference::Forward expected =
          reference::Attention(q, KeysOf(cache), ValuesOf(cache), terms,
                               {.causal = true, .return_weights = true});
      EXPECT_LE(RelativeError(actual.weights, expected.weights), kIntegers);
      EXPECT_LE(RelativeError(actual.out, expected.out), kIntegers);
    }
  });
}

TEST(KvCacheInt8Test, ScatteredRaggedTokens) {
  OnEveryTarget([] {
    for (const auto& [dim, value_dim] : kDims) {
      SCOPED_TRACE(::testing::Message() << "dims " << dim << ", " << value_dim);
      const auto random = [](int64_t heads, int64_t n, int64_t d,
                             uint64_t seed) {
        return RandomTensor({2, heads, n, d}, seed).To(DType::kF32);
      };
      std::vector<int64_t> positions;
      for (int64_t i = 0; i < 90; ++i) positions.push_back(i * 37 % 90);
      const std::vector<int64_t> lengths = {90, 55};
      const BucketMap clip = BucketMap::Clip(-3, 3);
      Terms terms;
      terms.v_table =
          BucketTable{RandomTensor({1, clip.count, value_dim}, 5), clip};
      terms.scale.scale = 1.0 / std::sqrt(static_cast<double>(dim));
      KvCache cache({.batch = 2,
                     .kv_heads = kKeyHeads,
                     .head_dim = dim,
                     .value_dim = value_dim,
                     .dtype = DType::kI8,
                     .q_heads = kQueryHeads});
      cache.Append(random(kKeyHeads, 90, dim, 2),
                   random(kKeyHeads, 90, value_dim, 3), terms,
                   {.positions = positions, .lengths = lengths});
      const std::vector<int64_t> at = {88, 40};
      const Tensor q = random(kQueryHeads, 2, dim, 1);
      const Tensor out = cache.Decode(q, terms, {.q_positions = at}).out;
      const Tensor k = KeysOf(cache), v = ValuesOf(cache);
      for (int64_t b = 0; b < 2; ++b) {
        const int64_t n = lengths[static_cast<size_t>(b)];
        const reference::Forward expected = reference::Attention(
            Only(q, b), Part(Only(k, b), 0, n), Part(Only(v, b), 0, n), terms,
            {.causal = true,
             .q_positions = at,
             .k_positions = Part(positions, 0, n)});
        EXPECT_LE(RelativeError(Only(out, b), expected.out), kIntegers);
      }
    }
  });
}

// Rotated keys are rotated before they are stored; others (xPos, and with a key
// table) when they are read.
TEST(KvCacheInt8Test, EveryEncodingTokenByToken) {
  constexpr int64_t kLength = 37;
  for (const EncodingInfo& info : Encodings()) {
    SCOPED_TRACE(info.name);
    const auto encoding = info.example(
        {.heads = kQueryHeads, .head_dim = kHeadDim, .length = kLength});
    const Sequence x = RandomSequence(kLength);
    const std::vector<int64_t> positions = PositionsOf(info, kLength);
    const Tensor whole = Attention(x.q, x.k, x.v, *encoding,
                                   {.causal = true,
                                    .q_positions = positions,
                                    .k_positions = positions})
                             .out;
    KvCache cache(Config(1, DType::kI8));
    for (int64_t i = 0; i < kLength; i = i == 0 ? 7 : i + 1) {
      const int64_t end = i == 0 ? 7 : i + 1;
      cache.Append(Part(x.k, i, end), Part(x.v, i, end), *encoding,
                   {.positions = Part(positions, i, end)});
      // Errors of 1 in 254 of a row's largest channel: more than rounding
      // errors, but far from a wrong result.
      EXPECT_LE(RelativeError(cache.Decode(Part(x.q, i, end), *encoding).out,
                              Part(whole, i, end)),
                3e-2)
          << "token " << i;
    }
  }
}

TEST(KvCacheInt8Test, KeyTableBesideARotation) {
  const Sequence x = RandomSequence(40);
  Terms terms = RopeTerms(10000.0);
  const BucketMap clip = BucketMap::Clip(-3, 3);
  terms.k_table = BucketTable{RandomTensor({1, clip.count, kHeadDim}, 5), clip};
  KvCache cache(Config(1, DType::kI8));
  cache.Append(x.k, x.v, terms);
  const Tensor q = Part(x.q, 39, 40);
  const reference::Forward expected =
      reference::Attention(q, KeysOf(cache), ValuesOf(cache), terms, {});
  EXPECT_LE(RelativeError(cache.Decode(q, terms).out, expected.out), kIntegers);
}

// The error bound that the header promises for a row, after rotation.
TEST(KvCacheInt8Test, RowsAreWithinTheirBound) {
  const Sequence x = RandomSequence(200);
  const Terms terms = RopeTerms(10000.0);
  KvCache exact(Config()), cache(Config(1, DType::kI8));
  exact.Append(x.k, x.v, terms);
  cache.Append(x.k, x.v, terms);
  const auto expect_bound = [](const Tensor& stored, const Tensor& want,
                               double factor) {
    for (int64_t h = 0; h < kKeyHeads; ++h) {
      for (int64_t j = 0; j < want.size(2); ++j) {
        const std::vector<double> a = RowAt(stored, 0, h, j);
        const std::vector<double> e = RowAt(want, 0, h, j);
        const double bound = factor * LargestOf(e) / 254.0 * (1.0 + 8.0 * kEps);
        for (size_t d = 0; d < a.size(); ++d) {
          EXPECT_LE(std::abs(a[d] - e[d]), bound);
        }
      }
    }
  };
  expect_bound(KeysOf(cache), exact.keys(), 1.0);
  expect_bound(ValuesOf(cache), exact.values(), 1.0);
  // A second error, of a row whose largest channel may have grown by sqrt(2),
  // in addition to the first, which was rotated.
  exact.Shift(1234);
  cache.Shift(1234);
  expect_bound(KeysOf(cache), exact.keys(), 2.0 * std::sqrt(2.0));
  expect_bound(ValuesOf(cache), exact.values(), 1.0);
  exact.Rerotate(RopeRotation(500.0));
  cache.Rerotate(RopeRotation(500.0));
  expect_bound(KeysOf(cache), exact.keys(), 3.0 * std::sqrt(2.0) + 1.0);
}

TEST(KvCacheInt8Test, OutputErrorOnGaussianData) {
  constexpr int64_t kDim = 128, kKeys = 1024;
  const auto gaussian = [](std::vector<int64_t> shape, uint64_t seed) {
    return RandomTensor(std::move(shape), seed).To(DType::kF32);
  };
  const Tensor q = gaussian({1, 8, 1, kDim}, 1);
  const Tensor k = gaussian({1, 2, kKeys, kDim}, 2);
  const Tensor v = gaussian({1, 2, kKeys, kDim}, 3);
  Terms terms;
  terms.scale.scale = 1.0 / std::sqrt(static_cast<double>(kDim));
  KvCache cache(
      {.kv_heads = 2, .head_dim = kDim, .dtype = DType::kI8, .q_heads = 8});
  cache.Append(k, v, terms);
  const reference::Forward exact = reference::Attention(q, k, v, terms, {});
  const std::vector<double> got = cache.Decode(q, terms).out.ToVector();
  const std::vector<double> want = exact.out.ToVector();
  double error = 0.0;
  for (size_t n = 0; n < want.size(); ++n) {
    error = std::max(error, std::abs(got[n] - want[n]));
  }
  EXPECT_LE(error, 1e-2 * LargestOf(want));
}

// A non-finite row affects only the queries that see it.
TEST(KvCacheInt8Test, NaNReachesOnlyWhatSeesIt) {
  OnEveryTarget([] {
    constexpr int64_t kLength = 300, kOdd = 200;
    for (int64_t queries : {3, 150}) {
      for (bool in_keys : {true, false}) {
        for (float odd : {kNaN, kInf}) {
          SCOPED_TRACE(::testing::Message()
                       << queries << " queries, "
                       << (in_keys ? "key " : "value ") << odd);
          Sequence x = RandomSequence(kLength);
          const Sequence clean = RandomSequence(kLength);
          Tensor& spoilt = in_keys ? x.k : x.v;
          spoilt.MutableData<float>()[kOdd * kHeadDim + 3] = odd;
          KvCache cache(Config(1, DType::kI8)), good(Config(1, DType::kI8));
          cache.Append(x.k, x.v, Terms());
          good.Append(clean.k, clean.v, Terms());
          std::vector<int64_t> at;
          for (int64_t i = 0; i < queries; ++i) {
            at.push_back(kOdd - queries / 2 + i);
          }
          const Tensor q = Part(x.q, 0, queries);
          const Tensor out = cache.Decode(q, Terms(), {.q_positions = at}).out;
          const Tensor want = good.Decode(q, Terms(), {.q_positions = at}).out;
          for (int64_t h = 0; h < kQueryHeads; ++h) {
            for (int64_t i = 0; i < queries; ++i) {
              // Key head 0 serves query heads 0 and 1.
              const bool sees = h < 2 && at[static_cast<size_t>(i)] >= kOdd;
              for (int64_t d = 0; d < kHeadDim; ++d) {
                if (sees) {
                  EXPECT_TRUE(std::isnan(out.At(0, h, i, d)));
                } else {
                  EXPECT_EQ(out.At(0, h, i, d), want.At(0, h, i, d));
                }
              }
            }
          }
        }
      }
    }
  });
}

TEST(KvCacheInt8Test, EditsKeepRowsWithTheirScales) {
  const Sequence x = RandomSequence(130, /*batch=*/2);
  const Terms terms = RopeTerms(10000.0);
  KvCache cache(Config(2, DType::kI8)), expected(Config(2, DType::kI8));
  // The cache grows several times.
  for (int64_t i = 0; i < 130; i += 10) {
    cache.Append(Part(x.k, i, i + 10), Part(x.v, i, i + 10), terms);
  }
  cache.Evict(0, 50);
  std::vector<int64_t> at;
  for (int64_t i = 50; i < 130; ++i) at.push_back(i);
  expected.Append(Part(x.k, 50, 130), Part(x.v, 50, 130), terms,
                  {.positions = at});
  const KvCache fork = cache.Fork();
  for (const KvCache* each :
       std::initializer_list<const KvCache*>{&cache, &fork}) {
    EXPECT_EQ(each->keys().ToVector(), expected.keys().ToVector());
    EXPECT_EQ(each->values().ToVector(), expected.values().ToVector());
    EXPECT_EQ(each->key_scales().ToVector(), expected.key_scales().ToVector());
    EXPECT_EQ(each->value_scales().ToVector(),
              expected.value_scales().ToVector());
  }
  EXPECT_FALSE(KvCache(Config()).key_scales().defined());
}

TEST(KvCacheInt8Test, BitsDoNotDependOnThreads) {
  const Sequence x = RandomSequence(3000, /*batch=*/2);
  const Terms terms = RopeTerms(10000.0);
  KvCache one(Config(2, DType::kI8)), many(Config(2, DType::kI8));
  one.Append(x.k, x.v, terms, {.threads = 1});
  many.Append(x.k, x.v, terms, {.threads = 5});
  EXPECT_EQ(one.keys().ToVector(), many.keys().ToVector());
  const Tensor q = Part(x.q, 2998, 3000);
  const std::vector<double> out =
      one.Decode(q, terms, {.threads = 1}).out.ToVector();
  for (int threads : {2, 7}) {
    EXPECT_EQ(one.Decode(q, terms, {.threads = threads}).out.ToVector(), out);
  }
}

// Integers without a scale are not accepted as any other operand.
TEST(KvCacheInt8Test, NothingElseTakesIntegers) {
  const Tensor x = Tensor::Zeros(DType::kI8, {1, 1, 2, 4});
  EXPECT_EQ(ErrorOf([&] { Attention(x, x, x, Terms()); }),
            "q, k and v must be all f32, all bf16 or all f16, got i8 [1, 1, 2, "
            "4], i8 [1, 1, 2, 4] and i8 [1, 1, 2, 4]");
  Rotation rotation = RopeRotation(100.0);
  EXPECT_EQ(ErrorOf([&] { Rotate(x, rotation); }),
            "rotation needs floating-point x, got i8 [1, 1, 2, 4]");
  const KvCache cache(Config());
  EXPECT_EQ(ErrorOf([&] { cache.Decode(x, Terms()); }),
            "q must be f32, bf16 or f16 [batch, heads, length, dim], got i8 "
            "[1, 1, 2, 4]");
  const AttentionResult part{.out = x,
                             .lse = Tensor::Zeros(DType::kF32, {1, 1, 2})};
  EXPECT_EQ(ErrorOf([&] { Merge(part, part); }),
            "results to merge must be floating-point, got i8 [1, 1, 2, 4]");
}

}  // namespace
}  // namespace locus::testing
