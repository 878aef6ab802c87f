#include "locus/encodings/tupe.h"

#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(tupe);

namespace locus::testing {
namespace {

constexpr int64_t kHeads = 4;

// reset(v)_mn = theta_1 if m is [CLS], theta_2 if only n is, else v_mn, for
//   v_mn = (p_m U_q).(p_n U_k) / sqrt(2d) + b_(m-n)
// and s = x_m W_q.W_k x_n / sqrt(2d) + reset(v). `bucket` finds the column of
// the bias.
PaperScore UntiedScore(const Tensor& q_pos, const Tensor& k_pos,
                       const TupeOptions& o,
                       const std::function<int64_t(int64_t, int64_t)>& bucket) {
  return [=](int64_t h, const auto& q, const auto& k, int64_t m, int64_t n) {
    const double content = ScaledDot(q, k, /*factor=*/2.0);
    if (o.cls.defined() && m == o.cls_position) {
      return content + o.cls.At(h, 0);
    }
    if (o.cls.defined() && n == o.cls_position) {
      return content + o.cls.At(h, 1);
    }
    const double bias = o.bias.defined() ? o.bias.At(h, bucket(m, n)) : 0.0;
    return content + bias +
           Dot(RowOf(q_pos, h, m), RowOf(k_pos, h, n)) /
               std::sqrt(2.0 * double(q.size()));
  };
}

TEST(TupeTest, MatchesPaperFormula) {
  // The position vectors may have another width than the head.
  const Tensor q_pos = RandomTensor({kHeads, 20, 5}, 1);
  const Tensor k_pos = RandomTensor({kHeads, 20, 5}, 2);
  for (bool with_bias : {false, true}) {
    for (bool with_cls : {false, true}) {
      TupeOptions o;
      if (with_bias) o.bias = RandomTensor({kHeads, 2 * 17 - 1}, 3);
      if (with_cls) o.cls = RandomTensor({kHeads, 2}, 4);
      for (int64_t cls_position : {0, 5}) {
        o.cls_position = cls_position;
        for (bool causal : {false, true}) {
          for (int64_t first : {0, 3}) {
            const PaperCase c{.causal = causal, .first_position = first};
            EXPECT_LE(PaperError(Tupe(q_pos, k_pos, o), c,
                                 UntiedScore(q_pos, k_pos, o,
                                             [](int64_t m, int64_t n) {
                                               return m - n + 16;
                                             })),
                      kPaperTolerance);
          }
        }
      }
    }
  }
}

TEST(TupeTest, TakesGivenBucketsAndFloat32Tables) {
  const Tensor q_pos = RandomTensor({kHeads, 17, 8}, 1).To(DType::kF32);
  const Tensor k_pos = RandomTensor({kHeads, 17, 8}, 2).To(DType::kF32);
  TupeOptions o;
  o.bias = RandomTensor({kHeads, 7}, 3).To(DType::kF32);
  o.buckets = BucketMap::Clip(-2, 4);
  for (bool with_cls : {false, true}) {
    if (with_cls) o.cls = RandomTensor({kHeads, 2}, 4).To(DType::kF32);
    EXPECT_LE(
        PaperError(Tupe(q_pos, k_pos, o), {},
                   UntiedScore(q_pos, k_pos, o,
                               [](int64_t m, int64_t n) {
                                 return std::clamp<int64_t>(m - n, -2, 4) + 2;
                               })),
        kPaperTolerance);
  }
}

TEST(TupeTest, ServesALongTable) {
  const Tensor q_pos = RandomTensor({1, kFar + 17, 1}, 1);
  const Tensor k_pos = RandomTensor({1, kFar + 17, 1}, 2);
  const PaperCase c{.heads = 1, .kv_heads = 1, .first_position = kFar};
  EXPECT_LE(
      PaperError(Tupe(q_pos, k_pos), c, UntiedScore(q_pos, k_pos, {}, nullptr)),
      kPaperTolerance);
}

TEST(TupeTest, PullBackMatchesFiniteDifferences) {
  for (bool with_bias : {false, true}) {
    for (bool with_cls : {false, true}) {
      TupeOptions o;
      if (with_bias) o.bias = RandomTensor({2, 11}, 3);
      if (with_cls) o.cls = RandomTensor({2, 2}, 4);
      const Tupe tupe(RandomTensor({2, 7, 3}, 1), RandomTensor({2, 7, 3}, 2),
                      o);
      for (bool causal : {false, true}) {
        EXPECT_LE(PullBackError(tupe, {.batch = 1,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .length = 6,
                                       .head_dim = 4,
                                       .causal = causal}),
                  kDifferenceTolerance);
      }
    }
  }
}

TEST(TupeTest, RefusesBadInput) {
  const Tensor p = RandomTensor({2, 6, 4}, 1);
  const auto build = [&](const TupeOptions& o) {
    return ErrorOf([&] { Tupe(p, p, o); });
  };
  EXPECT_EQ(ErrorOf([&] {
              Tupe(p, RandomTensor({2, 5, 4}, 1));
            }),
            "TUPE needs q_pos and k_pos [heads, L, E], got f64 [2, 6, 4] and "
            "f64 [2, 5, 4]");
  EXPECT_EQ(build({.bias = RandomTensor({3, 11}, 1)}),
            "TUPE's bias must be [2, buckets], got f64 [3, 11]");
  EXPECT_EQ(build({.bias = RandomTensor({2, 10}, 1)}),
            "TUPE's bias by offset must have 2M - 1 columns, got f64 [2, 10]");
  EXPECT_EQ(build({.bias = RandomTensor({2, 10}, 1),
                   .buckets = BucketMap::Clip(-1, 1)}),
            "TUPE's bias f64 [2, 10] does not fit 3 buckets");
  EXPECT_EQ(build({.cls = RandomTensor({2}, 1)}),
            "TUPE's cls must be [2, 2], got f64 [2]");
  const auto lower = [&](const Shape& shape) {
    return ErrorOf([&] { Tupe(p, p).Lower(shape); });
  };
  EXPECT_EQ(lower(Shape::SelfAttention(2, 4, 7)),
            "TUPE covers positions 0 .. 5, but the call has position 6");
  Shape negative = Shape::SelfAttention(2, 4, 3);
  negative.min_q_pos = -1;
  EXPECT_EQ(lower(negative),
            "TUPE covers positions 0 .. 5, but the call has position -1");
  EXPECT_EQ(lower(Shape::SelfAttention(4, 4, 3)),
            "TUPE was made for 2 heads, but the call has 4");
}

}  // namespace
}  // namespace locus::testing
