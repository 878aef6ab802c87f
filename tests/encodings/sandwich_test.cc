#include "locus/encodings/sandwich.h"

#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(sandwich);

namespace locus::testing {
namespace {

// q.k / sqrt(d) + E[m].E[n] / (8 (h + 1) / H), with the inner product of two
// sinusoidal rows computed channel by channel. `from` is subtracted from both
// positions: far from 0 the sines themselves lose digits.
PaperScore SandwichScore(int64_t heads, int dim, double base, int64_t from) {
  return [=](int64_t h, const auto& q, const auto& k, int64_t m, int64_t n) {
    double inner = 0.0;
    for (int i = 0; i < dim / 2; ++i) {
      const double period = std::pow(base, 2.0 * i / dim);
      const double a = double(m - from) / period, b = double(n - from) / period;
      inner += std::sin(a) * std::sin(b) + std::cos(a) * std::cos(b);
    }
    return ScaledDot(q, k) + inner / (8.0 * double(h + 1) / double(heads));
  };
}

TEST(SandwichTest, MatchesPaperFormula) {
  for (auto [dim, base] : {std::pair<int, double>{128, 10000.0}, {6, 50.0}}) {
    for (bool causal : {false, true}) {
      for (int64_t first : {int64_t{0}, kFar}) {
        const PaperCase c{.causal = causal, .first_position = first};
        EXPECT_LE(PaperError(Sandwich(4, dim, base), c,
                             SandwichScore(4, dim, base, first)),
                  kPaperTolerance);
      }
    }
  }
}

TEST(SandwichTest, IsTheInnerProductOfSinusoids) {
  const Tensor e = Sinusoidal(128).Embed(PositionsFrom(0, 40));
  const Terms terms = Sandwich(8).Lower(Shape::SelfAttention(8, 16, 40)).terms;
  for (int64_t m : {0, 1, 17, 39}) {
    for (int64_t n : {0, 5, 39}) {
      const double inner = Dot(RowOf(e, 0, m), RowOf(e, 0, n));
      // Head h of 8 divides by h + 1; 64 sums of products, each below 1.
      for (int64_t h : {0, 3, 7}) {
        EXPECT_NEAR(BiasAt(*terms.bias, h, m, n), inner / double(h + 1),
                    64 * kPaperTolerance);
      }
    }
  }
}

TEST(SandwichTest, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] { Sandwich(0); }),
            "Sandwich's number of heads must be a positive number, at most "
            "2^24, got 0");
  EXPECT_EQ(ErrorOf([] { Sandwich(4, 7); }),
            "Sandwich's dim must be even, got 7");
  EXPECT_EQ(ErrorOf([] { Sandwich(4, 8, NAN); }),
            "Sandwich's base must be positive and finite, got nan");
  EXPECT_EQ(ErrorOf([] { Sandwich(4).Lower(Shape::SelfAttention(2, 8, 4)); }),
            "Sandwich was made for 4 heads, but the call has 2");
}

}  // namespace
}  // namespace locus::testing
