// Merging partial results over disjoint keys.
#include <cstring>
#include <memory>

#include "kernels/compare.h"

namespace locus::testing {
namespace {

// Keys [begin, end) of x [1, H, L, D].
Tensor Keys(const Tensor& x, int64_t begin, int64_t end) {
  return Tensor::Borrow(x.dtype(), {1, x.size(1), end - begin, x.size(3)},
                        x.strides(), x.Data<float>() + begin * x.strides()[2]);
}

TEST(MergeTest, PartsEqualTheWhole) {
  const int64_t length = 90;
  const Tensor q = RandomTensor({1, 3, length, 16}, 1).To(DType::kF32);
  const Tensor k = RandomTensor({1, 3, length, 16}, 2).To(DType::kF32);
  const Tensor v = RandomTensor({1, 3, length, 16}, 3).To(DType::kF32);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < length; ++i) positions.push_back(i);
  const Alibi alibi(3);
  AttentionOptions options;
  options.causal = true;
  options.return_lse = true;
  const auto whole = Attention(q, k, v, alibi, options);
  options.q_positions = positions;
  // Causal: early queries see no keys of the later parts.
  AttentionResult merged;
  for (int64_t begin = 0; begin < length; begin += 37) {
    const int64_t end = std::min(length, begin + 37);
    options.k_positions = std::span(positions).subspan(
        static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    const auto part =
        Attention(q, Keys(k, begin, end), Keys(v, begin, end), alibi, options);
    merged = begin == 0 ? part : Merge(merged, part);
  }
  // Each merge adds a few roundings.
  EXPECT_LE(RelativeError(merged.out, whole.out), 8 * kEps);
  EXPECT_LE(RelativeError(merged.lse, whole.lse), 8 * kEps);
}

// Two results [2, 3, 5, dim] of `dtype`; some rows of either saw no key.
AttentionResult Partial(DType dtype, int64_t dim, uint64_t seed) {
  std::vector<float> lse;
  for (int64_t row = 0; row < 30; ++row) {
    const bool nothing = (row + static_cast<int64_t>(seed)) % 7 == 0;
    lse.push_back(nothing ? -INFINITY : std::sin(static_cast<float>(row)) * 9);
  }
  return {.out = RandomTensor({2, 3, 5, dim}, seed).To(dtype),
          .lse = Tensor::From({2, 3, 5}, std::move(lse))};
}

// Every other element of rows twice as long.
Tensor Strided(const Tensor& x) {
  const std::vector<int64_t> shape = x.shape();
  Tensor wide =
      Tensor::Zeros(x.dtype(), {shape[0], shape[1], shape[2], 2 * shape[3]});
  const std::vector<int64_t> strides = wide.strides();
  Tensor every =
      Tensor::Borrow(x.dtype(), shape, {strides[0], strides[1], strides[2], 2},
                     wide.Raw(), std::make_shared<Tensor>(wide));
  const int64_t size = DTypeBytes(x.dtype());
  for (int64_t n = 0; n < x.NumElements(); ++n) {
    std::memcpy(
        static_cast<char*>(const_cast<void*>(wide.Raw())) + 2 * n * size,
        static_cast<const char*>(x.Raw()) + n * size,
        static_cast<size_t>(size));
  }
  return every;
}

// Against the formula in float64, in every type, with and without strides.
TEST(MergeTest, EqualsTheFormula) {
  OnEveryTarget([] {
    for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      for (int64_t dim : {1, 7, 16, 37}) {
        const AttentionResult a = Partial(dtype, dim, 1);
        const AttentionResult b = Partial(dtype, dim, 2);
        const AttentionResult merged = Merge(a, b);
        double rounding = kEps;
        if (dtype == DType::kBF16) rounding = 0x1p-8;
        if (dtype == DType::kF16) rounding = 0x1p-11;
        for (int64_t row = 0; row < 30; ++row) {
          const int64_t i = row % 5, h = row / 5 % 3, n = row / 15;
          const double la = a.lse.At(n, h, i), lb = b.lse.At(n, h, i);
          const double wa = std::exp(la), wb = std::exp(lb);
          EXPECT_NEAR(merged.lse.At(n, h, i), std::log(wa + wb), 10 * kEps);
          for (int64_t d = 0; d < dim; ++d) {
            const double x = a.out.At(n, h, i, d), y = b.out.At(n, h, i, d);
            EXPECT_NEAR(merged.out.At(n, h, i, d),
                        (wa * x + wb * y) / (wa + wb),
                        3 * rounding * (std::abs(x) + std::abs(y)));
          }
        }
        const AttentionResult strided =
            Merge({Strided(a.out), a.lse}, {Strided(b.out), b.lse});
        EXPECT_EQ(strided.out.ToVector(), merged.out.ToVector());
        EXPECT_EQ(strided.lse.ToVector(), merged.lse.ToVector());
      }
    }
  });
}

// If one part saw no key, the other is unchanged.
TEST(MergeTest, NothingChangesNothing) {
  AttentionResult a = Partial(DType::kF32, 37, 1);
  AttentionResult none{
      .out = Tensor::Zeros(DType::kF32, a.out.shape()),
      .lse = Tensor::From({2, 3, 5}, std::vector<float>(30, -INFINITY))};
  for (int64_t row = 0; row < 30; ++row) {
    if (a.lse.Data<float>()[row] != -INFINITY) continue;
    std::fill_n(a.out.MutableData<float>() + row * 37, 37, 0.0F);
  }
  for (const AttentionResult& merged : {Merge(a, none), Merge(none, a)}) {
    EXPECT_EQ(merged.out.ToVector(), a.out.ToVector());
    EXPECT_EQ(merged.lse.ToVector(), a.lse.ToVector());
  }
}

TEST(MergeTest, NaNStaysInItsRow) {
  AttentionResult a = Partial(DType::kF32, 4, 1);
  AttentionResult b = Partial(DType::kF32, 4, 2);
  // The second is merged with a row that saw no key.
  b.lse.MutableData<float>()[3] = NAN;
  b.lse.MutableData<float>()[6] = NAN;
  ASSERT_EQ(a.lse.Data<float>()[6], -INFINITY);
  for (const AttentionResult& merged : {Merge(a, b), Merge(b, a)}) {
    for (int64_t row = 0; row < 30; ++row) {
      const bool bad = row == 3 || row == 6;
      EXPECT_EQ(std::isnan(merged.lse.Data<float>()[row]), bad) << row;
      EXPECT_EQ(std::isnan(merged.out.Data<float>()[row * 4 + 1]), bad) << row;
    }
  }
}

TEST(MergeTest, BitsDoNotDependOnThreads) {
  const auto part = [](uint64_t seed) {
    return AttentionResult{
        .out = RandomTensor({2, 3, 1000, 64}, seed).To(DType::kF32),
        .lse = RandomTensor({2, 3, 1000}, seed + 1).To(DType::kF32)};
  };
  const AttentionResult a = part(1), b = part(3);
  const AttentionResult one = Merge(a, b, /*threads=*/1);
  for (int threads : {2, 3, 0}) {
    const AttentionResult many = Merge(a, b, threads);
    EXPECT_EQ(many.out.ToVector(), one.out.ToVector());
    EXPECT_EQ(many.lse.ToVector(), one.lse.ToVector());
  }
}

TEST(MergeTest, NothingAndNothingIsNothing) {
  AttentionResult none{
      .out = Tensor::Zeros(DType::kF32, {1, 1, 2, 4}),
      .lse = Tensor::From({1, 1, 2}, std::vector<float>(2, -INFINITY))};
  const auto merged = Merge(none, none);
  for (double x : merged.out.ToVector()) EXPECT_EQ(x, 0.0);
  for (double x : merged.lse.ToVector()) EXPECT_EQ(x, -INFINITY);
}

TEST(MergeTest, RefusesResultsThatDoNotMatch) {
  const AttentionResult a{.out = Tensor::Zeros(DType::kF32, {1, 1, 2, 4}),
                          .lse = Tensor::Zeros(DType::kF32, {1, 1, 2})};
  const AttentionResult b{.out = Tensor::Zeros(DType::kF32, {1, 1, 3, 4}),
                          .lse = Tensor::Zeros(DType::kF32, {1, 1, 3})};
  EXPECT_EQ(ErrorOf([&] { Merge(a, b); }),
            "results to merge must be alike, got f32 [1, 1, 2, 4] and f32 [1, "
            "1, 3, 4]");
  EXPECT_EQ(ErrorOf([&] { Merge(a, {.out = a.out}); }),
            "results to merge need lse [1, 1, 2], got f32 [1, 1, 2] and none");
}

}  // namespace
}  // namespace locus::testing
