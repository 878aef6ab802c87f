#include "locus/encodings/rope_learned.h"

#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(rope_learned);
LOCUS_COVERS(rope_mixed);

namespace locus::testing {
namespace {

constexpr PairLayout kLayouts[] = {PairLayout::kInterleaved,
                                   PairLayout::kHalves};

// Frequencies are multiplied by coordinates up to 16, and the third derivative
// has their cube: a step of 1e-6 leaves 1e-12 of that.
constexpr double kThetaStep = 1e-6;

// q.k with pair p rotated by angle(p), over the first 2 `pairs` channels.
double TurnedDot(const std::vector<double>& q, const std::vector<double>& k,
                 PairLayout layout, size_t pairs,
                 const std::function<double(size_t)>& angle) {
  double sum = 0.0;
  for (size_t p = 0; p < pairs; ++p) {
    const size_t a = layout == PairLayout::kInterleaved ? 2 * p : p;
    const size_t b = layout == PairLayout::kInterleaved ? a + 1 : a + pairs;
    sum += (q[a] * k[a] + q[b] * k[b]) * std::cos(angle(p)) +
           (q[a] * k[b] - q[b] * k[a]) * std::sin(angle(p));
  }
  for (size_t d = 2 * pairs; d < q.size(); ++d) sum += q[d] * k[d];
  return sum / std::sqrt(double(q.size()));
}

Tensor Values(std::vector<int64_t> shape, std::vector<double> values) {
  return Tensor::From(std::move(shape), std::move(values));
}

Tensor Alpha() { return Values({4}, {0.3, -0.2, 0.05, -0.7}); }

TEST(RopeLearnedTest, MatchesFormula) {
  for (int64_t pairs : {4, 2}) {  // of 4
    const Tensor alpha = RandomTensor({pairs}, 3);
    for (PairLayout layout : kLayouts) {
      for (int64_t first : {int64_t{0}, kFar}) {
        const PaperCase c{.causal = first == 0, .first_position = first};
        const auto score = [&](int64_t, const auto& q, const auto& k, int64_t m,
                               int64_t n) {
          return TurnedDot(q, k, layout, size_t(pairs), [&](size_t p) {
            return double(m - n) * std::exp(alpha.At(p)) /
                   std::pow(500.0, double(p) / double(pairs));
          });
        };
        // exp(alpha) may be 4, which scales the angles by as much.
        EXPECT_LE(PaperError(RopeLearned(alpha, layout, 500.0), c, score),
                  AngleTolerance(8 * first));
      }
    }
  }
}

// alpha[h, p] belongs to key head h, which a group of two query heads shares.
TEST(RopeLearnedTest, HeadsHaveTheirOwn) {
  const Tensor alpha = RandomTensor({2, 3}, 3);
  for (PairLayout layout : kLayouts) {
    const auto score = [&](int64_t h, const auto& q, const auto& k, int64_t m,
                           int64_t n) {
      return TurnedDot(q, k, layout, 3, [&](size_t p) {
        return double(m - n) * std::exp(alpha.At(h / 2, p)) /
               std::pow(500.0, double(p) / 3.0);
      });
    };
    EXPECT_LE(PaperError(RopeLearned(alpha, layout, 500.0),
                         {.heads = 4, .kv_heads = 2}, score),
              kPaperTolerance);
  }
}

TEST(RopeLearnedTest, ZerosAreRope) {
  const Tensor zeros = Tensor::Zeros(DType::kF64, {4});
  const Tensor x = RandomTensor({2, 4, 13, 8}, 1);
  for (PairLayout layout : kLayouts) {
    EXPECT_EQ(reference::Attention(x, x, x, RopeLearned(zeros, layout))
                  .out.ToVector(),
              reference::Attention(x, x, x, Rope(8, layout)).out.ToVector());
  }
}

TEST(RopeLearnedTest, PullBackMatchesFiniteDifferences) {
  for (PairLayout layout : kLayouts) {
    for (bool causal : {false, true}) {
      for (const Tensor& alpha : {Alpha(), RandomTensor({2, 4}, 3)}) {
        EXPECT_LE(PullBackError(
                      RopeLearned(alpha, layout),
                      {.batch = 1, .heads = 4, .kv_heads = 2, .causal = causal},
                      kThetaStep),
                  kDifferenceTolerance);
      }
    }
  }
}

TEST(RopeLearnedTest, RefusesBadInput) {
  const auto build = [](const Tensor& alpha, double base = 10000.0) {
    return ErrorOf([&] { RopeLearned(alpha, PairLayout::kHalves, base); });
  };
  EXPECT_EQ(build(Alpha()), "");
  EXPECT_EQ(build(RandomTensor({2, 2, 2}, 1)),
            "learned RoPE needs alpha [rotary_dim / 2] or [heads, rotary_dim / "
            "2], got f64 [2, 2, 2]");
  EXPECT_EQ(build(Values({2}, {0.0, NAN})),
            "learned RoPE's alpha f64 [2] holds a value that is not finite: "
            "nan");
  EXPECT_EQ(build(Alpha(), -1.0),
            "learned RoPE's base must be positive and finite, got -1");
  const Tensor x = RandomTensor({1, 1, 3, 6}, 1);
  EXPECT_EQ(ErrorOf([&] {
              reference::Attention(x, x, x,
                                   RopeLearned(Alpha(), PairLayout::kHalves));
            }),
            "8 rotary channels from 0 on do not fit a head of 6");
  EXPECT_EQ(ErrorOf([&] {
              const Tensor far = Values({3}, {50.0, 0.0, 0.0});
              reference::Attention(x, x, x,
                                   RopeLearned(far, PairLayout::kHalves));
            }),
            "a frequency must lie in [-1e+18, 1e+18], got "
            "5.184705528587072e+21");
}

// A key is rotated once for all query heads of its group.
TEST(RopeLearnedTest, HeadsAreKeyHeads) {
  const Tensor q = RandomTensor({1, 4, 3, 8}, 1),
               k = RandomTensor({1, 2, 3, 8}, 2);
  const RopeLearned rope(RandomTensor({4, 2}, 1), PairLayout::kHalves);
  EXPECT_EQ(ErrorOf([&] { reference::Attention(q, q, q, rope); }), "");
  EXPECT_EQ(ErrorOf([&] { reference::Attention(q, k, k, rope); }),
            "frequencies per head must be those of the 2 key heads, whose 4 "
            "query heads share a rotated key, got 4 heads");
}

Tensor Theta(int64_t pairs) { return RandomTensor({pairs, 2}, 7); }

TEST(RopeMixedTest, MatchesFormula) {
  constexpr int64_t kColumns = 5;
  const Tensor theta = Theta(4);
  for (PairLayout layout : kLayouts) {
    for (int64_t first : {0, 1000}) {
      const PaperCase c{.causal = first == 0, .first_position = first};
      const auto score = [&](int64_t, const auto& q, const auto& k, int64_t m,
                             int64_t n) {
        return TurnedDot(q, k, layout, 4, [&](size_t p) {
          return double(m / kColumns - n / kColumns) * theta.At(p, 0) +
                 double(m % kColumns - n % kColumns) * theta.At(p, 1);
        });
      };
      EXPECT_LE(PaperError(RopeMixed(theta, layout, kColumns), c, score),
                AngleTolerance(4 * first));
    }
  }
}

TEST(RopeMixedTest, HeadsHaveTheirOwn) {
  constexpr int64_t kColumns = 5;
  const Tensor theta = RandomTensor({2, 3, 2}, 7);
  for (PairLayout layout : kLayouts) {
    const auto score = [&](int64_t h, const auto& q, const auto& k, int64_t m,
                           int64_t n) {
      return TurnedDot(q, k, layout, 3, [&](size_t p) {
        return double(m / kColumns - n / kColumns) * theta.At(h / 2, p, 0) +
               double(m % kColumns - n % kColumns) * theta.At(h / 2, p, 1);
      });
    };
    EXPECT_LE(PaperError(RopeMixed(theta, layout, kColumns),
                         {.heads = 4, .kv_heads = 2}, score),
              kPaperTolerance);
  }
}

// Tokens before the grid leave q and k unchanged; others rotate by their
// coordinates, including offsets.
TEST(RopeMixedTest, PrefixIsNotRotated) {
  const Tensor theta = Theta(3);
  const RopeMixedOptions options{.prefix = 2, .offsets = {0.5, -1.5}};
  const auto score = [&](int64_t, const auto& q, const auto& k, int64_t m,
                         int64_t n) {
    const auto angle = [&](int64_t position, size_t p) {
      if (position < 2) return 0.0;
      const int64_t cell = position - 2;
      return (double(cell / 4) + 0.5) * theta.At(p, 0) +
             (double(cell % 4) - 1.5) * theta.At(p, 1);
    };
    return TurnedDot(q, k, PairLayout::kHalves, 3,
                     [&](size_t p) { return angle(m, p) - angle(n, p); });
  };
  EXPECT_LE(
      PaperError(RopeMixed(theta, PairLayout::kHalves, 4, options), {}, score),
      kPaperTolerance);
}

TEST(RopeMixedTest, OneCoordinatePerPairIsAxial) {
  const Rope2D axial(8, PairLayout::kHalves, 4, 100.0);
  const std::vector<double> w =
      axial.Lower(Shape::SelfAttention(1, 8, 1)).terms.rotate->theta;
  const Tensor theta =
      Values({4, 2}, {w[0], 0.0, w[1], 0.0, 0.0, w[2], 0.0, w[3]});
  const Tensor x = RandomTensor({2, 4, 13, 8}, 1);
  const RopeMixed mixed(theta, PairLayout::kHalves, 4);
  EXPECT_LE(RelativeError(reference::Attention(x, x, x, mixed).out,
                          reference::Attention(x, x, x, axial).out),
            kPaperTolerance);
}

TEST(RopeMixedTest, PullBackMatchesFiniteDifferences) {
  for (PairLayout layout : kLayouts) {
    for (int64_t prefix : {0, 3}) {
      for (const Tensor& theta : {Theta(4), RandomTensor({2, 4, 2}, 7)}) {
        const RopeMixed mixed(theta, layout, 4,
                              {.prefix = prefix, .offsets = {0.5, 0.25}});
        EXPECT_LE(PullBackError(mixed, {.batch = 1, .heads = 4, .kv_heads = 2},
                                kThetaStep),
                  kDifferenceTolerance);
      }
    }
  }
}

TEST(RopeMixedTest, RefusesBadInput) {
  const auto build = [](const Tensor& theta, int64_t width = 4,
                        RopeMixedOptions options = {}) {
    return ErrorOf(
        [&] { RopeMixed(theta, PairLayout::kHalves, width, options); });
  };
  EXPECT_EQ(build(Theta(4)), "");
  EXPECT_EQ(build(RandomTensor({4, 3}, 1)),
            "RoPE-mixed needs theta [rotary_dim / 2, 2] or [heads, rotary_dim "
            "/ 2, 2], got f64 [4, 3]");
  EXPECT_EQ(build(Theta(4), 0),
            "RoPE-mixed's width must be a positive number, at most 2^24, got "
            "0");
  EXPECT_EQ(build(Theta(4), 4, {.prefix = -1}),
            "RoPE-mixed's prefix must lie in [0, 2305843009213693951], got -1");
  EXPECT_EQ(build(Theta(4), 4, {.offsets = {0.0, INFINITY}}),
            "an offset of RoPE-mixed is not finite: inf");
  EXPECT_EQ(build(Values({1, 2}, {0.0, INFINITY})),
            "RoPE-mixed's theta f64 [1, 2] holds a value that is not finite: "
            "inf");
}

}  // namespace
}  // namespace locus::testing
