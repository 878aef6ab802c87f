// Attention into tensors of the caller.
#include <cmath>

#include "kernels/compare.h"

namespace locus::testing {
namespace {

// A result filled with stale values.
AttentionResult Stale(DType dtype, const std::vector<int64_t>& out) {
  const auto filled = [](DType type, const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    const std::vector<double> values(static_cast<size_t>(count), NAN);
    return Tensor::From(shape, values).To(type);
  };
  return {.out = filled(dtype, out),
          .lse = filled(DType::kF32, {out[0], out[1], out[2]})};
}

Tensor Input(DType dtype, int64_t length, uint64_t seed) {
  return RandomTensor({2, 3, length, 16}, seed).To(dtype);
}

std::string RefusalOf(const AttentionOptions& options, AttentionResult result,
                      const Tensor& q) {
  return ErrorOf([&] { AttentionInto(q, q, q, Terms(), options, result); });
}

// Short, decoded and tiled calls; the last of 300 queries over 290 keys see
// none, and some calls have none.
TEST(AttentionIntoTest, EqualsAttentionToTheBit) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (auto [q_len, k_len] : {std::pair<int64_t, int64_t>{1, 1},
                                {9, 30},
                                {2, 700},
                                {300, 290},
                                {300, 0},
                                {5, 0},
                                {0, 5}}) {
      const Tensor q = Input(dtype, q_len, 1), k = Input(dtype, k_len, 2),
                   v = Input(dtype, k_len, 3);
      AttentionOptions options;
      options.return_lse = true;
      options.window = Window{.left = 3, .right = 0};
      const AttentionResult expected = Attention(q, k, v, Terms(), options);
      for (const bool by_token : {false, true}) {
        AttentionResult result = Stale(dtype, {2, 3, q_len, 16});
        if (by_token) {
          result.out = Stale(dtype, {2, q_len, 3, 16}).out.Transposed(1, 2);
        }
        const void* memory = result.out.Raw();
        AttentionInto(q, k, v, Terms(), options, result);
        EXPECT_EQ(result.out.Raw(), memory);
        EXPECT_EQ(result.out.ToVector(), expected.out.ToVector())
            << q_len << " x " << k_len << ", by token: " << by_token;
        EXPECT_EQ(result.lse.ToVector(), expected.lse.ToVector())
            << q_len << " x " << k_len << ", by token: " << by_token;
      }
    }
  }
}

TEST(AttentionIntoTest, LogSumIsWantedOnlyIfAskedFor) {
  const Tensor q = Input(DType::kF32, 4, 1);
  AttentionResult result = Stale(DType::kF32, {2, 3, 4, 16});
  result.lse = Tensor();
  AttentionInto(q, q, q, Terms(), {}, result);
  EXPECT_EQ(result.out.ToVector(), Attention(q, q, q, Terms()).out.ToVector());
  AttentionOptions options;
  options.return_lse = true;
  EXPECT_EQ(RefusalOf(options, result, q),
            "result.lse must be contiguous f32 [2, 3, 4], got nothing");
}

TEST(AttentionIntoTest, RefusesWhatDoesNotFit) {
  const Tensor q = Input(DType::kF32, 4, 1);
  EXPECT_EQ(
      RefusalOf({}, {}, q),
      "result.out must be f32 [2, 3, 4, 16] with contiguous rows that share "
      "no memory, got nothing");
  EXPECT_EQ(
      RefusalOf({}, Stale(DType::kF32, {2, 3, 5, 16}), q),
      "result.out must be f32 [2, 3, 4, 16] with contiguous rows that share "
      "no memory, got f32 [2, 3, 5, 16]");
  EXPECT_EQ(
      RefusalOf({}, Stale(DType::kF16, {2, 3, 4, 16}), q),
      "result.out must be f32 [2, 3, 4, 16] with contiguous rows that share "
      "no memory, got f16 [2, 3, 4, 16]");
  AttentionResult columns = Stale(DType::kF32, {2, 3, 16, 4});
  columns.out = columns.out.Transposed(2, 3);
  EXPECT_EQ(
      RefusalOf({}, columns, q),
      "result.out must be f32 [2, 3, 4, 16] with contiguous rows that share "
      "no memory, got f32 [2, 3, 4, 16] with strides [192, 64, 1, 4]");
  AttentionResult shared = Stale(DType::kF32, {2, 3, 4, 16});
  shared.out = Tensor::Borrow(DType::kF32, {2, 3, 4, 16}, {192, 48, 16, 1},
                              shared.out.Raw());
  EXPECT_EQ(
      RefusalOf({}, shared, q),
      "result.out must be f32 [2, 3, 4, 16] with contiguous rows that share "
      "no memory, got f32 [2, 3, 4, 16] with strides [192, 48, 16, 1]");
}

// The last of 300 queries over 290 keys see none, and key lengths cut off keys,
// whose gradients are zeros. 40000 keys are more than one span, over which the
// gradients of queries are accumulated.
TEST(AttentionIntoTest, GradientsGoWhereTheCallerSays) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (auto [q_len, k_len] :
         {std::pair<int64_t, int64_t>{9, 30}, {300, 290}, {3, 40000}, {5, 0}}) {
      const Tensor q = Input(dtype, q_len, 1), k = Input(dtype, k_len, 2),
                   v = Input(dtype, k_len, 3), d_out = Input(dtype, q_len, 4);
      const std::vector<int64_t> lengths = {k_len, k_len / 2};
      for (const bool cut : {false, true}) {
        AttentionOptions options;
        options.return_lse = true;
        options.causal = q_len > k_len;
        if (cut) options.key_lengths = lengths;
        const AttentionResult forward = Attention(q, k, v, Terms(), options);
        const AttentionGrads expected =
            AttentionBackward(d_out, q, k, v, forward, Terms(), options);
        const auto stale = [&](int64_t length) {
          return Stale(dtype, {2, length, 3, 16}).out.Transposed(1, 2);
        };
        const BackwardOptions into{
            .d_q = stale(q_len), .d_k = stale(k_len), .d_v = stale(k_len)};
        AttentionBackward(d_out, q, k, v, forward, Terms(), options, into);
        EXPECT_EQ(into.d_q.ToVector(), expected.d_q.ToVector())
            << q_len << " x " << k_len << ", cut: " << cut;
        EXPECT_EQ(into.d_k.ToVector(), expected.d_k.ToVector())
            << q_len << " x " << k_len << ", cut: " << cut;
        EXPECT_EQ(into.d_v.ToVector(), expected.d_v.ToVector())
            << q_len << " x " << k_len << ", cut: " << cut;
      }
    }
  }
  const Tensor q = Input(DType::kF32, 4, 1);
  AttentionOptions options;
  options.return_lse = true;
  const AttentionResult forward = Attention(q, q, q, Terms(), options);
  EXPECT_EQ(ErrorOf([&] {
              AttentionBackward(q, q, q, q, forward, Terms(), options,
                                {.d_k = Input(DType::kF32, 5, 1)});
            }),
            "d_k must be f32 [2, 3, 4, 16] with contiguous rows that share no "
            "memory, got f32 [2, 3, 5, 16]");
}

TEST(AttentionIntoTest, RefusesToWriteOverItsInputs) {
  const Tensor memory = RandomTensor({2, 2, 3, 4, 16}, 1).To(DType::kF32);
  const auto part = [&](int64_t from) {
    return Tensor::Borrow(DType::kF32, {2, 3, 4, 16}, {},
                          memory.Data<float>() + from);
  };
  const Tensor apart = Input(DType::kF32, 4, 2);
  const auto refusal = [&](const Tensor& q, const Tensor& k, const Tensor& v,
                           int64_t from) {
    AttentionResult result{.out = part(from)};
    return ErrorOf([&] { AttentionInto(q, k, v, Terms(), {}, result); });
  };
  EXPECT_EQ(refusal(part(0), apart, apart, 0),
            "result.out shares memory with q");
  EXPECT_EQ(refusal(apart, part(0), apart, 383),
            "result.out shares memory with k");
  EXPECT_EQ(refusal(apart, apart, part(384), 1),
            "result.out shares memory with v");
  // Rows in reverse order.
  const Tensor reversed = Tensor::Borrow(
      DType::kF32, {2, 3, 4, 16}, {192, 64, -16, 1}, memory.Data<float>() + 48);
  EXPECT_EQ(refusal(apart, reversed, apart, 0),
            "result.out shares memory with k");
  // Adjacent tensors do not overlap.
  EXPECT_EQ(refusal(part(0), part(0), reversed, 384), "");
  EXPECT_EQ(refusal(part(384), part(384), part(384), 0), "");
}

}  // namespace
}  // namespace locus::testing
