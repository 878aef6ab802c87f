#include "locus/encodings/xpos.h"

#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(xpos);

namespace locus::testing {
namespace {

// Sum over pairs, with everything a function of the offset o = m - n:
//   zeta^(o / b) ((q_a k_a + q_b k_b) cos(o w) + (q_a k_b - q_b k_a) sin(o w)),
//   zeta = (2p / d + gamma) / (1 + gamma), w = base^(-2p / d).
PaperScore XPosScore(PairLayout layout, const XPosOptions& x) {
  return [=](int64_t, const auto& q, const auto& k, int64_t m, int64_t n) {
    const size_t dim = q.size();
    const double o = double(m - n);
    double sum = 0.0;
    for (size_t p = 0; p < dim / 2; ++p) {
      const size_t a = layout == PairLayout::kInterleaved ? 2 * p : p;
      const size_t b =
          layout == PairLayout::kInterleaved ? 2 * p + 1 : p + dim / 2;
      const double share = double(2 * p) / double(dim);
      const double zeta = (share + x.gamma) / (1.0 + x.gamma);
      const double angle = o / std::pow(x.base, share);
      sum += std::pow(zeta, o / x.scale_base) *
             ((q[a] * k[a] + q[b] * k[b]) * std::cos(angle) +
              (q[a] * k[b] - q[b] * k[a]) * std::sin(angle));
    }
    return sum / std::sqrt(double(dim));
  };
}

TEST(XPosTest, MatchesPaperFormula) {
  const XPosOptions options[] = {
      {}, {.base = 100.0, .scale_base = 16.0, .gamma = 0.7}};
  for (const XPosOptions& o : options) {
    for (PairLayout layout : {PairLayout::kInterleaved, PairLayout::kHalves}) {
      for (bool causal : {false, true}) {
        for (int64_t first : {int64_t{0}, kFar}) {
          const PaperCase c{.causal = causal, .first_position = first};
          EXPECT_LE(PaperError(XPos(8, layout, o), c, XPosScore(layout, o)),
                    AngleTolerance(first));
        }
      }
    }
  }
}

// The paper multiplies q by zeta^(m/b) and k by zeta^(-n/b); the library by
// zeta^((m-n)/b), which cannot overflow far from 0. The two agree near 0.
TEST(XPosTest, EqualsScaledQueriesAndKeys) {
  const XPosOptions o{.scale_base = 16.0};
  const double error = PaperError(
      XPos(8, PairLayout::kHalves, o), {},
      [&](int64_t, const auto& q, const auto& k, int64_t m, int64_t n) {
        const auto turned = [&](const std::vector<double>& x, double pos,
                                double sign) {
          std::vector<double> y(8);
          for (size_t p = 0; p < 4; ++p) {
            const double angle = pos * std::pow(10000.0, -double(p) / 4.0);
            const double zeta = (double(p) / 4.0 + 0.4) / 1.4;
            const double s = std::pow(zeta, sign * pos / 16.0);
            y[p] = s * (x[p] * std::cos(angle) - x[p + 4] * std::sin(angle));
            y[p + 4] =
                s * (x[p] * std::sin(angle) + x[p + 4] * std::cos(angle));
          }
          return y;
        };
        return ScaledDot(turned(q, double(m), 1.0), turned(k, double(n), -1.0));
      });
  EXPECT_LE(error, kPaperTolerance);
}

TEST(XPosTest, ScoresDependOnTheOffsetOnly) {
  const XPos xpos(8, PairLayout::kInterleaved);
  const Tensor q = RandomTensor({1, 1, 9, 8}, 1);
  const Tensor k = RandomTensor({1, 1, 9, 8}, 2);
  const auto scores = [&](int64_t first) {
    const std::vector<int64_t> positions = PositionsFrom(first, 9);
    AttentionOptions options;
    options.q_positions = positions;
    options.k_positions = positions;
    return reference::Scorer(
               q, k, xpos.Lower(Shape::SelfAttention(1, 8, 9)).terms, options)
        .Of(0, 0);
  };
  for (int64_t first : {int64_t{1}, int64_t{5000}, kFar}) {
    EXPECT_LE(RelativeError(scores(first), scores(0)), AngleTolerance(first));
  }
}

TEST(XPosTest, RefusesBadInput) {
  const PairLayout layout = PairLayout::kHalves;
  EXPECT_EQ(ErrorOf([&] { XPos(7, layout); }),
            "xPos' head_dim must be even, got 7");
  EXPECT_EQ(ErrorOf([&] { XPos(8, layout, {.base = NAN}); }),
            "xPos' base must be positive and finite, got nan");
  EXPECT_EQ(ErrorOf([&] { XPos(8, layout, {.scale_base = 0.0}); }),
            "xPos' scale_base must be positive and finite, got 0");
  EXPECT_EQ(ErrorOf([&] { XPos(8, layout, {.gamma = -1.0}); }),
            "xPos' gamma must be positive and finite, got -1");
  EXPECT_EQ(
      ErrorOf([&] { XPos(8, layout).Lower(Shape::SelfAttention(1, 16, 4)); }),
      "xPos was made for heads of 8 channels, but the call has 16");
}

}  // namespace
}  // namespace locus::testing
