// Rotations: angles, coordinates, whole tensors, ids.
#include <complex>
#include <numbers>

#include "locus/rotary.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

Rotation Example(PairLayout layout, int64_t rotary_dim, int64_t first_channel) {
  Rotation r;
  r.layout = layout;
  r.rotary_dim = rotary_dim;
  r.first_channel = first_channel;
  for (int64_t p = 0; p < rotary_dim / 2; ++p) {
    r.theta.push_back(std::pow(100.0, -static_cast<double>(p) / 3.0));
  }
  return r;
}

// Both layouts, whole and partial heads of 12 channels.
std::vector<Rotation> Examples() {
  std::vector<Rotation> all;
  for (PairLayout layout : {PairLayout::kInterleaved, PairLayout::kHalves}) {
    all.push_back(Example(layout, 12, 0));
    all.push_back(Example(layout, 6, 0));
    all.push_back(Example(layout, 4, 8));
    all.push_back(Example(layout, 2, 5));
  }
  return all;
}

TEST(RotationTest, CosSinAreThoseOfTheAngle) {
  Rotation r;
  r.rotary_dim = 4;
  r.theta = {std::numbers::pi / 6, 0.25};
  r.gain = 2.0;
  double cos[2], sin[2];
  r.CosSin(2, cos, sin);
  EXPECT_NEAR(cos[0], 1.0, 1e-15);
  EXPECT_NEAR(sin[0], std::sqrt(3.0), 1e-15);
  EXPECT_EQ(cos[1], 2.0 * std::cos(0.5));
  EXPECT_EQ(sin[1], 2.0 * std::sin(0.5));
  r.CosSin(-2, cos, sin);
  EXPECT_EQ(sin[1], -2.0 * std::sin(0.5));
  r.angles = AngleMode::kFloat32;
  r.CosSin(1'000'003, cos, sin);
  const float angle = 1'000'003.0F * static_cast<float>(r.theta[0]);
  EXPECT_EQ(cos[0], 2.0F * std::cos(angle));
  EXPECT_EQ(sin[0], 2.0F * std::sin(angle));
}

TEST(RotationTest, CoordinatesAreQuotientAndRemainder) {
  Rotation r;
  r.rotary_dim = 6;
  r.theta = {1.0, 1.0, 1.0};
  EXPECT_EQ(r.Coordinate(0, -77), -77) << "no axes: the position itself";
  r.axes = {{.divisor = 7, .modulus = 0},
            {.divisor = 1, .modulus = 7},
            {.divisor = 7, .modulus = 3}};
  EXPECT_EQ(r.Coordinate(r.AxisOf(2), 100), 14) << "all pairs on axis 0";
  r.axis = {0, 1, 2};
  for (int64_t pos = 0; pos < 200; ++pos) {
    EXPECT_EQ(r.Coordinate(0, pos), pos / 7);
    EXPECT_EQ(r.Coordinate(1, pos), pos % 7);
    EXPECT_EQ(r.Coordinate(2, pos), pos / 7 % 3);
  }
}

TEST(RotationTest, MixedPairsTurnByEveryAxis) {
  Rotation r;
  r.rotary_dim = 4;
  r.theta = {0.3, -0.2, 0.05, 1.1};  // [pairs, axes]
  r.axes = {{.divisor = 7, .offset = 0.5},
            {.divisor = 1, .modulus = 7, .offset = -3.0}};
  r.gain = 1.5;
  r.origin = 2;
  double cos[2], sin[2];
  for (int64_t position : {2, 3, 9, 50}) {
    const double y = static_cast<double>((position - 2) / 7) + 0.5;
    const double x = static_cast<double>((position - 2) % 7) - 3.0;
    r.CosSin(position, cos, sin);
    EXPECT_NEAR(cos[0], 1.5 * std::cos(0.3 * y - 0.2 * x), 1e-14);
    EXPECT_NEAR(sin[0], 1.5 * std::sin(0.3 * y - 0.2 * x), 1e-14);
    EXPECT_NEAR(cos[1], 1.5 * std::cos(0.05 * y + 1.1 * x), 1e-14);
    EXPECT_NEAR(sin[1], 1.5 * std::sin(0.05 * y + 1.1 * x), 1e-14);
  }
  for (int64_t position : {1, 0, -5}) {
    r.CosSin(position, cos, sin);
    EXPECT_EQ(cos[1], 1.5) << "before the origin";
    EXPECT_EQ(sin[1], 0.0);
  }
  r.angles = AngleMode::kFloat32;
  r.CosSin(9, cos, sin);
  const float angle = 1.5F * 0.3F + -3.0F * -0.2F;
  EXPECT_EQ(sin[0], std::sin(angle) * 1.5F);
}

TEST(RotationTest, PairsCoverTheRotaryChannelsOnce) {
  for (const Rotation& r : Examples()) {
    std::vector<int> seen(12, 0);
    for (int64_t p = 0; p < r.NumPairs(); ++p) {
      ++seen[static_cast<size_t>(r.FirstOfPair(p))];
      ++seen[static_cast<size_t>(r.SecondOfPair(p))];
      EXPECT_EQ(r.SecondOfPair(p) - r.FirstOfPair(p),
                r.layout == PairLayout::kInterleaved ? 1 : r.rotary_dim / 2);
    }
    for (int64_t d = 0; d < 12; ++d) {
      const bool inside =
          d >= r.first_channel && d < r.first_channel + r.rotary_dim;
      EXPECT_EQ(seen[static_cast<size_t>(d)], inside ? 1 : 0);
    }
  }
}

// A pair is a complex number, a rotation its product with exp(i pos theta).
TEST(RotationTest, RotateMultipliesComplexNumbers) {
  const Tensor x = RandomTensor({2, 3, 4, 12}, 1);
  const std::vector<int64_t> shared = {5, 0, -3, 999};
  const std::vector<int64_t> each = {0, 1, 2, 3, 70, 60, 50, 40};
  for (Rotation r : Examples()) {
    r.gain = 1.25;
    for (std::span<const int64_t> positions :
         {std::span<const int64_t>(), std::span<const int64_t>(shared),
          std::span<const int64_t>(each)}) {
      const Tensor y = Rotate(x, r, positions);
      Tensor expected = Tensor::From(x.shape(), x.ToVector());
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t h = 0; h < 3; ++h) {
          for (int64_t i = 0; i < 4; ++i) {
            const int64_t pos = positions.empty() ? i
                                : positions.size() == 4
                                    ? shared[static_cast<size_t>(i)]
                                    : each[static_cast<size_t>(b * 4 + i)];
            double* row =
                expected.MutableData<double>() + ((b * 3 + h) * 4 + i) * 12;
            for (int64_t p = 0; p < r.NumPairs(); ++p) {
              double& re = row[r.FirstOfPair(p)];
              double& im = row[r.SecondOfPair(p)];
              const std::complex<double> z =
                  std::complex(re, im) *
                  std::polar(1.25, static_cast<double>(pos) *
                                       r.theta[static_cast<size_t>(p)]);
              re = z.real();
              im = z.imag();
            }
          }
        }
      }
      // A few roundings of numbers below 8.
      EXPECT_LE(RelativeError(y, expected), 8 * 0x1p-52);
    }
  }
}

TEST(RotationTest, InverseUndoesAndBackwardTransposes) {
  const Tensor x = RandomTensor({1, 2, 5, 12}, 2);
  const Tensor w = RandomTensor({1, 2, 5, 12}, 3);
  const std::vector<int64_t> positions = {3, 1'000'000, -8, 0, 17};
  const auto dot = [](const Tensor& a, const Tensor& b) {
    const std::vector<double> u = a.ToVector(), v = b.ToVector();
    double sum = 0.0;
    for (size_t n = 0; n < u.size(); ++n) sum += u[n] * v[n];
    return sum;
  };
  for (Rotation r : Examples()) {
    r.gain = 0.75;
    const Tensor y = Rotate(x, r, positions);
    EXPECT_LE(RelativeError(Rotate(y, r, positions, /*inverse=*/true), x),
              8 * 0x1p-52);
    // <R x, w> = <x, R^T w>: sums of 120 products of order 1.
    EXPECT_NEAR(dot(y, w), dot(x, RotateBackward(w, r, positions)),
                120 * 8 * 0x1p-52);
    r.gain = 1.0;
    EXPECT_LE(RelativeError(RotateBackward(y, r, positions),
                            Rotate(y, r, positions, /*inverse=*/true)),
              8 * 0x1p-52);
  }
}

// Arithmetic is float32, then the result is rounded to the type: compared with
// float64, the error is at most one epsilon of the type of the largest number.
TEST(RotationTest, KeepsTheElementType) {
  const Rotation r = Example(PairLayout::kHalves, 4, 0);
  const auto check = [&](DType dtype, double epsilon) {
    const Tensor x = RandomTensor({1, 1, 3, 4}, 4).To(dtype);
    const Tensor y = Rotate(x, r);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_LE(RelativeError(y, Rotate(x.To(DType::kF64), r)), epsilon);
  };
  check(DType::kF32, 0x1p-23);
  check(DType::kBF16, 0x1p-7);
  check(DType::kF16, 0x1p-10);
  check(DType::kF64, 0.0);
}

TEST(RotationTest, EqualIdsMeanEqualRotations) {
  const Rotation r = Example(PairLayout::kHalves, 6, 2);
  EXPECT_EQ(r.Id(), Example(PairLayout::kHalves, 6, 2).Id());
  std::vector<Rotation> others(12, r);
  others[0].layout = PairLayout::kInterleaved;
  others[1].first_channel = 0;
  others[2].theta[1] = std::nextafter(r.theta[1], 1.0);
  std::swap(others[3].theta[0], others[3].theta[1]);
  for (double& t : others[4].theta) t = -t;
  others[5].theta[0] = -r.theta[0];
  others[5].theta[1] = -r.theta[1];
  others[6].gain = 1.5;
  others[7].angles = AngleMode::kFloat32;
  others[8].axis = {0, 0, 0};
  others[9].axes = {{.divisor = 2, .modulus = 0}};
  others[10].log_decay = {0.0, 0.0, 0.0};
  others[11] = Example(PairLayout::kHalves, 4, 2);
  others.push_back(r);
  for (size_t a = 0; a < others.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      EXPECT_NE(others[a].Id(), others[b].Id()) << a << " and " << b;
    }
  }
}

// Frequencies that are powers of two differ only in their exponent bits.
TEST(RotationTest, IdsOfRoundFrequenciesDiffer) {
  std::vector<uint64_t> ids;
  for (int a = 0; a < 40; ++a) {
    for (int b = 0; b < 40; ++b) {
      Rotation r;
      r.rotary_dim = 4;
      r.theta = {std::ldexp(1.0, -a), std::ldexp(1.0, -b)};
      ids.push_back(r.Id());
    }
  }
  std::ranges::sort(ids);
  EXPECT_EQ(std::ranges::adjacent_find(ids), ids.end());
}

Rotation ThreeAxes() {
  return {
      .rotary_dim = 6,
      .theta = {1.0, 1.0, 1.0},
      .axis = {0, 1, 2},
      .axes = {{.divisor = kPackedAxis * kPackedAxis, .modulus = kPackedAxis},
               {.divisor = kPackedAxis, .modulus = kPackedAxis},
               {.divisor = 1, .modulus = kPackedAxis}},
      .packed_from = kPackedFrom};
}

TEST(RotationTest, PackedPositionsUnpackAndAreValid) {
  const Rotation r = ThreeAxes();
  const int64_t last = kPackedAxis - 1;
  for (const auto& [t, h, w] : {std::array<int64_t, 3>{0, 0, 0},
                                {1, 2, 3},
                                {last, 0, last},
                                {0, last, 0},
                                {last, last, last}}) {
    const int64_t packed = PackPosition(t, h, w);
    EXPECT_EQ(r.Coordinate(0, packed), t);
    EXPECT_EQ(r.Coordinate(1, packed), h);
    EXPECT_EQ(r.Coordinate(2, packed), w);
    EXPECT_LE(packed, kHighestPosition) << "attention must accept it";
  }
  for (int64_t text :
       {int64_t{0}, int64_t{17}, int64_t{-40}, kPackedAxis, kPlainBelow - 1}) {
    for (int64_t pair : {0, 1, 2}) EXPECT_EQ(r.Coordinate(pair, text), text);
  }
  EXPECT_EQ(ErrorOf([] { PackPosition(0, -1, 2); }),
            "a packed position holds coordinates from 0 to 1048575, got (0, "
            "-1, 2)");
  EXPECT_EQ(ErrorOf([] { PackPosition(kPackedAxis, 0, 0); }),
            "a packed position holds coordinates from 0 to 1048575, got "
            "(1048576, 0, 0)");
}

// Advances by one after text, and to above every coordinate after images.
TEST(RotationTest, TextGoesOnAfterTheLastToken) {
  const Rotation packed = ThreeAxes();
  for (const Rotation& r : {Rotation(), packed}) {
    EXPECT_EQ(r.After({}).first, 0);
    const std::vector<int64_t> text = {-3, 9, 4};
    EXPECT_EQ(r.After(text).first, 5);
    EXPECT_EQ(r.After(text).step, 1);
  }
  // Text at plain positions, then an image whose last token is not its largest.
  const std::vector<int64_t> image = {0, 2, PackPosition(3, 3, 9),
                                      PackPosition(3, 4, 3)};
  const TextPositions next = packed.After(image);
  EXPECT_EQ(next.first, PackPosition(10, 10, 10));
  EXPECT_EQ(next.first + 5 * next.step, PackPosition(15, 15, 15));
  const std::vector<int64_t> far = {kPackedAxis + 7, PackPosition(3, 4, 3)};
  EXPECT_GT(packed.After(far).first, kHighestPosition) << "no room is left";
}

TEST(RotationTest, RefusesBadInput) {
  const Tensor x = RandomTensor({2, 1, 3, 12}, 5);
  const auto error = [&](const Rotation& r,
                         const std::vector<int64_t>& positions = {}) {
    return ErrorOf([&] { Rotate(x, r, positions); });
  };
  const Rotation good = Example(PairLayout::kHalves, 12, 0);
  EXPECT_EQ(error(good), "");
  EXPECT_EQ(error(good, {1, 2}), "positions must number 3 or 6, got 2");
  EXPECT_EQ(error(Example(PairLayout::kHalves, 12, 2)),
            "12 rotary channels from 2 on do not fit a head of 12");
  EXPECT_EQ(error(Example(PairLayout::kHalves, 4, -1)),
            "4 rotary channels from -1 on do not fit a head of 12");
  Rotation r = good;
  r.theta.pop_back();
  EXPECT_EQ(error(r), "6 pairs need 6 frequencies, got 5");
  r = good;
  r.log_decay.assign(6, -0.1);
  EXPECT_EQ(error(r),
            "a rotation with decay (xPos) acts on pairs of tokens and cannot "
            "rotate one tensor alone");
  r = good;
  r.gain = 0.0;
  EXPECT_EQ(
      error(r),
      "the rotation's gain must lie between 1e-09 and 1e+09 in size, got 0");
  r = good;
  r.axes = {{.divisor = 4}};
  EXPECT_EQ(error(r, {0, 4, -2}),
            "rotation by coordinates needs positions >= 0, got -2");
  r.origin = 1;
  EXPECT_EQ(error(r, {0, 4, -2}), "") << "what lies before it does not rotate";
  r.origin = kHighestPosition + 1;
  EXPECT_EQ(error(r),
            "the first position of the rotation must lie in "
            "[-2305843009213693952, 2305843009213693951], got "
            "2305843009213693952");
  r = ThreeAxes();
  r.origin = 0;
  EXPECT_EQ(error(r), "packed positions have no origin, got 0");
  r = good;
  r.axes = {{.divisor = 4}, {.divisor = 1, .modulus = 4}};
  EXPECT_EQ(error(r), "") << "all pairs on the first axis";
  r.theta.resize(12);
  EXPECT_EQ(error(r), "");
  r.axis.assign(6, 0);
  EXPECT_EQ(error(r),
            "pairs that rotate by all 2 axes have no axis of their own, got 6");
  r.theta.resize(9);
  EXPECT_EQ(error(r), "6 pairs need 6 frequencies, or 12 for 2 axes, got 9");
  r.theta.resize(6);
  r.axes[1].offset = NAN;
  EXPECT_EQ(error(r),
            "the offset of an axis must lie in [-1e+18, 1e+18], got nan");
  EXPECT_EQ(ErrorOf([&] {
              Rotate(RandomTensor({3, 12}, 1), good);
            }),
            "rotation needs x [B, H, L, D], got f64 [3, 12]");
}

}  // namespace
}  // namespace locus::testing
