#include "locus/encodings/sinusoidal.h"

#include "support/encoding_checks.h"
#include "support/input_checks.h"

LOCUS_COVERS(sine);
LOCUS_COVERS(sinusoidal);

namespace locus::testing {
namespace {

constexpr SinusoidLayout kLayouts[] = {SinusoidLayout::kInterleaved,
                                       SinusoidLayout::kHalves,
                                       SinusoidLayout::kHalvesInclusive};

// One row of the three published layouts, each written out separately.
std::vector<double> PaperSinusoid(SinusoidLayout layout, double pos, int d,
                                  double base) {
  std::vector<double> row;
  if (layout == SinusoidLayout::kInterleaved) {
    // PE(p, 2i) = sin(p / base^(2i/d)), PE(p, 2i + 1) = cos(the same)
    for (int j = 0; j < d; ++j) {
      const double angle = pos / std::pow(base, double(j / 2 * 2) / d);
      row.push_back(j % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
    return row;
  }
  const int half = d / 2;
  for (int j = 0; j < d; ++j) {
    const int i = j % half;
    const double exponent = layout == SinusoidLayout::kHalves
                                ? 2.0 * i / d
                                : double(i) / (half - 1);
    const double angle = pos / std::pow(base, exponent);
    row.push_back(j < half ? std::sin(angle) : std::cos(angle));
  }
  return row;
}

TEST(SinusoidalTest, MatchesPaperFormula) {
  for (SinusoidLayout layout : kLayouts) {
    for (double base : {10000.0, 37.0}) {
      for (bool causal : {false, true}) {
        for (int64_t first : {int64_t{0}, kFar}) {
          for (int64_t offset : {0, 2}) {
            const InputCase c{
                .dim = 12, .first_position = first, .causal = causal};
            const Sinusoidal sinusoids(
                12, {.base = base, .layout = layout, .offset = offset});
            EXPECT_LE(InputError(sinusoids, c,
                                 [&](int64_t p) {
                                   return PaperSinusoid(
                                       layout, double(p + offset), 12, base);
                                 }),
                      AngleTolerance(first));
          }
        }
      }
    }
  }
}

TEST(SineOnlyTest, MatchesPaperFormula) {
  for (bool causal : {false, true}) {
    for (int64_t first : {int64_t{0}, kFar}) {
      const InputCase c{.dim = 7, .first_position = first, .causal = causal};
      EXPECT_LE(InputError(SineOnly(7, 100.0), c,
                           [](int64_t p) {
                             std::vector<double> row;
                             for (int j = 0; j < 7; ++j) {
                               row.push_back(std::sin(
                                   double(p) / std::pow(100.0, j / 7.0)));
                             }
                             return row;
                           }),
                AngleTolerance(first));
    }
  }
}

// sin 1, cos 1, sin 0.01, cos 0.01: position 1 at d = 4, base 10000.
TEST(SinusoidalTest, HoldsKnownValues) {
  const std::vector<int64_t> one = {1};
  const double s = 0.8414709848078965, c = 0.5403023058681398;
  const double t = 0.009999833334166664, u = 0.9999500004166653;
  const auto row = [&](SinusoidLayout layout) {
    return Sinusoidal(4, {.layout = layout}).Embed(one);
  };
  const auto expect = [](std::vector<double> values) {
    return Tensor::From({1, 4}, std::move(values));
  };
  EXPECT_LE(
      RelativeError(row(SinusoidLayout::kInterleaved), expect({s, c, t, u})),
      kPaperTolerance);
  EXPECT_LE(RelativeError(row(SinusoidLayout::kHalves), expect({s, t, c, u})),
            kPaperTolerance);
  // Inclusive: the last frequency is 1 / base itself.
  EXPECT_LE(RelativeError(row(SinusoidLayout::kHalvesInclusive),
                          expect({s, std::sin(1e-4), c, std::cos(1e-4)})),
            kPaperTolerance);
}

// E[p + k] = M(k) E[p] for every p, and M(k) is orthogonal.
TEST(SinusoidalTest, ShiftIsARotation) {
  constexpr int64_t kDim = 16;
  for (SinusoidLayout layout : kLayouts) {
    const Sinusoidal sinusoids(kDim, {.layout = layout, .offset = 1});
    for (int64_t k : {int64_t{1}, int64_t{-3}, int64_t{250}, kFar}) {
      const Tensor map = sinusoids.ShiftMap(k);
      for (int64_t p : {int64_t{0}, int64_t{5}, int64_t{1234}, kFar}) {
        const Tensor from = sinusoids.Embed({&p, 1});
        const int64_t shifted = p + k;
        const Tensor to = sinusoids.Embed({&shifted, 1});
        Tensor mapped = Tensor::Zeros(DType::kF64, {1, kDim});
        for (int64_t r = 0; r < kDim; ++r) {
          for (int64_t d = 0; d < kDim; ++d) {
            mapped.MutableData<double>()[r] += map.At(r, d) * from.At(0, d);
          }
        }
        EXPECT_LE(RelativeError(mapped, to), AngleTolerance(p + std::abs(k)))
            << "p = " << p << ", k = " << k;
      }
      for (int64_t a = 0; a < kDim; ++a) {
        for (int64_t b = 0; b < kDim; ++b) {
          double dot = 0.0;
          for (int64_t d = 0; d < kDim; ++d) dot += map.At(a, d) * map.At(b, d);
          EXPECT_NEAR(dot, a == b ? 1.0 : 0.0, kPaperTolerance);
        }
      }
    }
  }
}

TEST(SinusoidalTest, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] { Sinusoidal(7); }),
            "the sinusoids' dim must be even, got 7");
  EXPECT_EQ(ErrorOf([] { Sinusoidal(0); }),
            "the sinusoids' dim must be a positive number, at most 2^24, got "
            "0");
  EXPECT_EQ(ErrorOf([] { Sinusoidal(8, {.base = NAN}); }),
            "the sinusoids' base must be positive and finite, got nan");
  EXPECT_EQ(ErrorOf([] {
              Sinusoidal(2, {.layout = SinusoidLayout::kHalvesInclusive});
            }),
            "inclusive sinusoids need a dim of at least 4, got 2");
  EXPECT_EQ(ErrorOf([] { SineOnly(-1); }),
            "the sine's dim must be a positive number, at most 2^24, got -1");
  EXPECT_EQ(ErrorOf([] { SineOnly(8, -2.0); }),
            "the sine's base must be positive and finite, got -2");
}

}  // namespace
}  // namespace locus::testing
