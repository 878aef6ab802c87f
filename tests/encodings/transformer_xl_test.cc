#include "locus/encodings/transformer_xl.h"

#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(transformer_xl);

namespace locus::testing {
namespace {

constexpr int64_t kHeads = 4, kDim = 8, kReach = 17;

// scale * ( (a) q.k + (b) q.R_(m-n) + (c) u.k + (d) v.R_(m-n) )
PaperScore FourTerms(const Tensor& r, const Tensor& u, const Tensor& v,
                     double scale) {
  return [=](int64_t h, const auto& q, const auto& k, int64_t m, int64_t n) {
    const std::vector<double> rel = RowOf(r, h, m - n + r.size(1) / 2);
    return scale * (Dot(q, k) + Dot(q, rel) + Dot(RowOf(u, 0, h), k) +
                    Dot(RowOf(v, 0, h), rel));
  };
}

TEST(TransformerXLTest, MatchesPaperFormula) {
  for (DType dtype : {DType::kF64, DType::kF32}) {
    const Tensor r = RandomTensor({kHeads, 2 * kReach - 1, kDim}, 1).To(dtype);
    const Tensor u = RandomTensor({kHeads, kDim}, 2).To(dtype);
    const Tensor v = RandomTensor({kHeads, kDim}, 3).To(dtype);
    const TransformerXL xl(r, u, v);
    for (bool causal : {false, true}) {
      for (int64_t first : {int64_t{0}, kFar}) {
        PaperCase c{.causal = causal, .first_position = first};
        EXPECT_LE(PaperError(xl, c, FourTerms(r, u, v, 1.0 / std::sqrt(kDim))),
                  kPaperTolerance);
        // A given scale multiplies all four terms.
        c.scale = 0.3;
        EXPECT_LE(PaperError(xl, c, FourTerms(r, u, v, 0.3)), kPaperTolerance);
      }
    }
  }
}

// R_o = W_r s_o, s_o = [sin(o w_0), .., cos(o w_0), ..], w_i = 10000^(-2i/d).
TEST(TransformerXLTest, SinusoidalKeysMatchPaperFormula) {
  constexpr int64_t kModel = 6;
  const Tensor w_r = RandomTensor({2, kDim, kModel}, 4);
  const Tensor r = TransformerXL::SinusoidalKeys(w_r, kReach);
  ASSERT_EQ(r.shape(), (std::vector<int64_t>{2, 2 * kReach - 1, kDim}));
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t o = -kReach + 1; o < kReach; ++o) {
      for (int64_t d = 0; d < kDim; ++d) {
        double sum = 0.0;
        for (int64_t e = 0; e < kModel / 2; ++e) {
          const double angle =
              double(o) / std::pow(10000.0, 2.0 * double(e) / double(kModel));
          sum += w_r.At(h, d, e) * std::sin(angle) +
                 w_r.At(h, d, e + kModel / 2) * std::cos(angle);
        }
        EXPECT_NEAR(r.At(h, o + kReach - 1, d), sum, kPaperTolerance);
      }
    }
  }
}

TEST(TransformerXLTest, PullBackMatchesFiniteDifferences) {
  const TransformerXL xl(RandomTensor({2, 11, 4}, 1), RandomTensor({2, 4}, 2),
                         RandomTensor({2, 4}, 3));
  for (bool causal : {false, true}) {
    for (std::optional<double> scale : {std::optional<double>(), {0.7}}) {
      EXPECT_LE(PullBackError(xl, {.batch = 1,
                                   .heads = 2,
                                   .kv_heads = 1,
                                   .length = 6,
                                   .head_dim = 4,
                                   .causal = causal,
                                   .scale = scale}),
                kDifferenceTolerance);
    }
  }
}

TEST(TransformerXLTest, RefusesBadInput) {
  const Tensor r = RandomTensor({2, 7, 4}, 1), u = RandomTensor({2, 4}, 2);
  EXPECT_EQ(ErrorOf([&] {
              TransformerXL(RandomTensor({2, 6, 4}, 1), u, u);
            }),
            "Transformer-XL needs r [heads, 2M - 1, D], got f64 [2, 6, 4]");
  EXPECT_EQ(ErrorOf([&] {
              TransformerXL(r, u, RandomTensor({4, 2}, 1));
            }),
            "Transformer-XL needs u and v [2, 4], got f64 [2, 4] and f64 "
            "[4, 2]");
  EXPECT_EQ(ErrorOf([&] {
              TransformerXL(r, u, u).Lower(Shape::SelfAttention(3, 4, 2));
            }),
            "Transformer-XL was made for 2 heads, but the call has 3");
  const Tensor x = RandomTensor({1, 2, 5, 4}, 1);
  EXPECT_EQ(
      ErrorOf([&] { reference::Attention(x, x, x, TransformerXL(r, u, u)); }),
      "the query table covers offsets -3 .. 3, but the call has offsets "
      "-4 .. 4");
  EXPECT_EQ(ErrorOf([] {
              TransformerXL::SinusoidalKeys(RandomTensor({2, 4}, 1), 3);
            }),
            "w_r must be [heads, D, model_dim], got f64 [2, 4]");
  EXPECT_EQ(ErrorOf([] {
              TransformerXL::SinusoidalKeys(RandomTensor({2, 4, 5}, 1), 3);
            }),
            "the sinusoids' dim must be even, got 5");
  EXPECT_EQ(ErrorOf([] {
              TransformerXL::SinusoidalKeys(RandomTensor({2, 4, 6}, 1), 0);
            }),
            "reach must be a positive number, at most 2^24, got 0");
}

}  // namespace
}  // namespace locus::testing
