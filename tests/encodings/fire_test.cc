#include "locus/encodings/fire.h"

#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(fire);

namespace locus::testing {
namespace {

constexpr int64_t kHeads = 4, kWidth = 6;

Tensor Scalar(double value) {
  return Tensor::From({1}, std::vector<double>{value});
}

// Random weights; the hidden units switch at points inside and outside [0, 1].
FireParams RandomParams(double c, double threshold, uint64_t seed = 1) {
  return {.w1 = RandomTensor({kWidth}, seed),
          .b1 = RandomTensor({kWidth}, seed + 1, 0.5),
          .w2 = RandomTensor({kHeads, kWidth}, seed + 2),
          .b2 = RandomTensor({kHeads}, seed + 3),
          .c = Scalar(c),
          .threshold = Scalar(threshold)};
}

// x = psi(|m - n|) / (psi(max(m, L)) + eps), psi(d) = ln(|c d| + 1).
double Distance(const FireParams& p, int64_t m, int64_t n, double eps) {
  const double c = p.c.At(0), threshold = std::abs(p.threshold.At(0));
  const auto psi = [c](double d) { return std::log(std::abs(c * d) + 1.0); };
  return psi(double(m - n)) / (psi(std::max(double(m), threshold)) + eps);
}

// f(x) = W2 relu(w1 x + b1) + b2, unit by unit.
PaperScore FireScore(const FireParams& p, double eps) {
  return [=](int64_t h, const auto& q, const auto& k, int64_t m, int64_t n) {
    const double x = Distance(p, m, n, eps);
    double f = p.b2.At(h);
    for (int64_t u = 0; u < p.w1.size(0); ++u) {
      f += p.w2.At(h, u) * std::max(0.0, p.w1.At(u) * x + p.b1.At(u));
    }
    return ScaledDot(q, k) + f;
  };
}

TEST(FireTest, MatchesPaperFormula) {
  // The threshold is above all positions, among them, or below.
  for (double threshold : {100.0, 7.5, -7.5, 0.25}) {
    for (double c : {0.1, 3.0, -0.7}) {
      for (bool causal : {false, true}) {
        for (int64_t first : {int64_t{0}, kFar}) {
          const FireParams p = RandomParams(c, threshold);
          const PaperCase case_{.causal = causal, .first_position = first};
          EXPECT_LE(PaperError(Fire(p), case_, FireScore(p, 1e-6)),
                    kPaperTolerance)
              << "threshold " << threshold << ", c " << c;
        }
      }
    }
  }
}

TEST(FireTest, TakesFloat32TablesAndAnotherEpsilon) {
  FireParams p = RandomParams(0.1, 9.0);
  for (Tensor* t : {&p.w1, &p.b1, &p.w2, &p.b2, &p.c, &p.threshold}) {
    *t = t->To(DType::kF32);
  }
  EXPECT_LE(PaperError(Fire(p, /*epsilon=*/0.5), {}, FireScore(p, 0.5)),
            kPaperTolerance);
}

TEST(FireTest, TakesUnitsThatNeverSwitch) {
  // Slope 0, bias 0, both 0, and a switch past the largest double.
  FireParams p = RandomParams(0.5, 5.0);
  p.w1 = Tensor::From({kWidth}, std::vector<double>{0, 0, 1, -1, 0, 1e-300});
  p.b1 = Tensor::From({kWidth}, std::vector<double>{1, -1, 0, 0, 0, -1e20});
  EXPECT_LE(PaperError(Fire(p), {}, FireScore(p, 1e-6)), kPaperTolerance);
}

// The least distance of any w1 x + b1 of the call to the kink of its relu.
double KinkDistance(const FireParams& p, const PaperCase& c) {
  double least = INFINITY;
  for (int64_t m = c.first_position; m < c.first_position + c.length; ++m) {
    const int64_t end = c.causal ? m + 1 : c.first_position + c.length;
    for (int64_t n = c.first_position; n < end; ++n) {
      const double x = Distance(p, m, n, 1e-6);
      for (int64_t u = 0; u < p.w1.size(0); ++u) {
        least = std::min(least, std::abs(p.w1.At(u) * x + p.b1.At(u)));
      }
    }
  }
  return least;
}

TEST(FireTest, PullBackMatchesFiniteDifferences) {
  // Central differences are wrong across a kink. Here x <= 12, |dx/dc| and
  // |dx/dL| are below 30 and |w1| is below 3, so a step of 1e-5 changes
  // w1 x + b1 by less than 1e-3: parameters are redrawn until every unit is at
  // least that far from its kink for every pair. The threshold is half a
  // position away from every m.
  constexpr double kClear = 1e-3;
  for (double threshold : {100.0, 4.5, -4.5, 0.5}) {
    for (double c : {0.2, 1.5, -0.7}) {
      for (bool causal : {false, true}) {
        const PaperCase case_{.batch = 1, .length = 9, .causal = causal};
        uint64_t seed = 1;
        FireParams p = RandomParams(c, threshold, seed);
        while (KinkDistance(p, case_) < kClear) {
          p = RandomParams(c, threshold, seed += 10);
          ASSERT_LT(seed, 1000u) << "no draw is clear of the kinks";
        }
        EXPECT_LE(PullBackError(Fire(p), case_), kDifferenceTolerance)
            << "threshold " << threshold << ", c " << c;
      }
    }
  }
}

TEST(FireTest, RefusesBadInput) {
  const auto build = [](auto change) {
    FireParams p = RandomParams(0.1, 16.0);
    change(p);
    return ErrorOf([&] { Fire fire(p); });
  };
  EXPECT_EQ(build([](FireParams& p) { p.b1 = RandomTensor({5}, 1); }),
            "FIRE needs w1, b1 [width], w2 [heads, width] and b2 [heads], got "
            "f64 [6], f64 [5], f64 [4, 6] and f64 [4]");
  EXPECT_EQ(build([](FireParams& p) { p.c = RandomTensor({2}, 1); }),
            "FIRE's c and threshold must be [1], got f64 [2]");
  EXPECT_EQ(build([](FireParams& p) { p.c = Scalar(0.0); }),
            "FIRE's c and threshold must not be 0, got 0 and 16");
  EXPECT_EQ(build([](FireParams& p) { p.threshold = Scalar(NAN); }),
            "FIRE's parameter f64 [1] holds a value that is not finite: nan");
  EXPECT_EQ(ErrorOf([] { Fire(RandomParams(0.1, 16.0), /*epsilon=*/NAN); }),
            "FIRE's epsilon must be finite and not negative, got nan");
  EXPECT_EQ(
      ErrorOf([] {
        Fire(RandomParams(0.1, 16.0)).Lower(Shape::SelfAttention(3, 8, 4));
      }),
      "FIRE was made for 4 heads, but the call has 3");
}

}  // namespace
}  // namespace locus::testing
