// Partial results over disjoint keys, put together.
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
  // Causal: early queries see nothing of the later parts.
  AttentionResult merged;
  for (int64_t begin = 0; begin < length; begin += 37) {
    const int64_t end = std::min(length, begin + 37);
    options.k_positions = std::span(positions).subspan(
        static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    const auto part =
        Attention(q, Keys(k, begin, end), Keys(v, begin, end), alibi, options);
    merged = begin == 0 ? part : Merge(merged, part);
  }
  // Each merge rounds a few times more.
  EXPECT_LE(RelativeError(merged.out, whole.out), 8 * kEps);
  EXPECT_LE(RelativeError(merged.lse, whole.lse), 8 * kEps);
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
