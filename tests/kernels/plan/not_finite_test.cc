// NaN and infinity reach what sees them, and nothing else: whatever is finite
// in the reference, which multiplies visible pairs only, is finite in the
// kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/compare.h"

namespace locus::testing {
namespace {

constexpr int64_t kHeads = 2, kDim = 24;

// How many numbers are finite in `expected` but not in `actual`.
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
  // The gradient of a key table is computed by tiles of pairs: a non-finite key
  // may reach other rows of it.
  const bool key_table = encoding.Name() == "deberta" && !AllFinite(k);
  for (size_t n = 0; n < a.params.size() && !key_table; ++n) {
    EXPECT_EQ(Leaks(a.params[n].value, e.params[n].value), 0)
        << a.params[n].name;
  }
}

void ExpectNoLeaksAtLength(int64_t length) {
  AttentionOptions options;
  options.causal = true;
  // Leaves most keys of a tile hidden.
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

// A call whose bias hides some offsets by -infinity, with `beside` the other
// terms that are added, and positions consecutive or scattered.
Call HiddenOffsets(int64_t q_len, int64_t k_len, unsigned beside,
                   bool scattered) {
  Call call;
  const int64_t dims[] = {q_len, k_len, k_len};
  Tensor* inputs[] = {&call.q, &call.k, &call.v};
  for (size_t n = 0; n < 3; ++n) {
    *inputs[n] =
        RandomTensor({1, kHeads, dims[n], kDim}, 1 + n).To(DType::kF32);
  }
  for (int64_t i = 0; i < q_len; ++i) call.q_pos.push_back(k_len - q_len + i);
  for (int64_t j = 0; j < k_len; ++j) {
    call.k_pos.push_back(scattered ? j * 7 % k_len : j);
  }
  const BucketMap map = BucketMap::Identity(1 - k_len, k_len - 1);
  Tensor values = RandomTensor({kHeads, map.count}, 4);
  // Every third offset, and 11 in a row: rows that see few keys are hidden
  // entirely.
  for (int64_t n = 0; n < values.size(0) * map.count; ++n) {
    const int64_t bucket = n % map.count;
    if (bucket % 3 == 0 || bucket / 11 % 4 == 0) {
      values.MutableData<double>()[n] = -INFINITY;
    }
  }
  call.terms.scale.scale = 0.2;
  call.terms.bias = BiasTable{values, map};
  const BucketTable table{.rows = RandomTensor({kHeads, map.count, kDim}, 5),
                          .buckets = map};
  if ((beside & kQTable) != 0) call.terms.q_table = table;
  if ((beside & kKTable) != 0) call.terms.k_table = table;
  return call;
}

// Without a cap such a pair has no weight; with one, its logit is -cap.
TEST(FusedAttentionTest, InfiniteBiasEqualsReference) {
  OnEveryTarget([] {
    for (const double softcap : {0.0, 3.0}) {
      for (const int64_t q_len : {1, 3, 40, 130}) {
        for (const unsigned beside : {0U, unsigned{kQTable}, unsigned{kKTable},
                                      unsigned{kQTable | kKTable}}) {
          for (const bool scattered : {false, true}) {
            SCOPED_TRACE("softcap " + std::to_string(softcap) + ", queries " +
                         std::to_string(q_len) + ", tables " +
                         std::to_string(beside) +
                         (scattered ? ", scattered" : ""));
            Call call =
                HiddenOffsets(q_len, q_len == 40 ? 40 : 130, beside, scattered);
            if (softcap > 0.0) call.options.softcap = softcap;
            call.options.window = Window{.left = 9, .right = 4};
            ExpectForwardEqualsReference(call);
            ExpectBackwardEqualsReference(call, 6);
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace locus::testing
