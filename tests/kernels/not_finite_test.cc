// NaN and infinity reach what sees them, and nothing else: whatever is finite
// in the reference, which meets visible pairs alone, is finite in the kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/compare.h"

namespace locus::testing {
namespace {

constexpr int64_t kHeads = 2, kDim = 24;

// How many numbers are finite in `expected` and not in `actual`.
int64_t Leaks(const Tensor& actual, const Tensor& expected) {
  const std::vector<double> a = actual.ToVector(), e = expected.ToVector();
  EXPECT_EQ(a.size(), e.size());
  int64_t leaks = 0;
  for (size_t n = 0; n < a.size(); ++n) {
    leaks += std::isfinite(e[n]) && !std::isfinite(a[n]) ? 1 : 0;
  }
  return leaks;
}

bool AllFinite(const Tensor& tensor) {
  for (double x : tensor.ToVector()) {
    if (!std::isfinite(x)) return false;
  }
  return true;
}

struct Operands {
  Tensor x[4];  // q, k, v, d_out

  explicit Operands(int64_t length) {
    for (size_t n = 0; n < 4; ++n) {
      x[n] = RandomTensor({1, kHeads, length, kDim}, 1 + n)
                 .To(DType::kF64)
                 .To(DType::kF32);
    }
  }
};

void ExpectNoLeaks(const Operands& o, const Encoding& encoding,
                   const AttentionOptions& options) {
  const auto& [q, k, v, d_out] = o.x;
  const AttentionResult fused = Attention(q, k, v, encoding, options);
  const auto exact = reference::Attention(q, k, v, encoding, options);
  EXPECT_FALSE(AllFinite(exact.out) && AllFinite(d_out));
  EXPECT_EQ(Leaks(fused.out, exact.out), 0);
  EXPECT_EQ(Leaks(fused.lse, exact.lse), 0);
  const auto a = AttentionBackward(d_out, q, k, v, fused, encoding, options);
  const auto e =
      reference::AttentionBackward(d_out, q, k, v, encoding, options);
  EXPECT_EQ(Leaks(a.d_q, e.d_q), 0);
  EXPECT_EQ(Leaks(a.d_k, e.d_k), 0);
  EXPECT_EQ(Leaks(a.d_v, e.d_v), 0);
  ASSERT_EQ(a.params.size(), e.params.size());
  // A table that keys meet is summed by tiles of pairs: a key that is not
  // finite may reach other rows of it.
  const bool key_table = encoding.Name() == "deberta" && !AllFinite(k);
  for (size_t n = 0; n < a.params.size() && !key_table; ++n) {
    EXPECT_EQ(Leaks(a.params[n].value, e.params[n].value), 0)
        << a.params[n].name;
  }
}

void ExpectNoLeaksAtLength(int64_t length) {
  AttentionOptions options;
  options.causal = true;
  // Leaves most keys of a tile unseen.
  options.window = Window{.left = 9, .right = 0};
  options.return_lse = true;
  for (const EncodingInfo& info : Encodings()) {
    const auto encoding =
        info.example({.heads = kHeads, .head_dim = kDim, .length = length});
    for (size_t which = 0; which < 4; ++which) {
      for (const float bad : {NAN, INFINITY}) {
        SCOPED_TRACE(std::string(info.name) + ", length " +
                     std::to_string(length) + ", operand " +
                     std::to_string(which) + ", " + std::to_string(bad));
        Operands o(length);
        o.x[which].MutableData<float>()[(length / 2) * kDim + 3] = bad;
        ExpectNoLeaks(o, *encoding, options);
      }
    }
  }
}

TEST(FusedAttentionTest, NotANumberStaysWhereTheReferenceHasIt) {
  // Queries and keys of one tile, and of two.
  OnEveryTarget([] { ExpectNoLeaksAtLength(40); });
  ExpectNoLeaksAtLength(130);
}

}  // namespace
}  // namespace locus::testing
