// The documented bound on angles: cos and sin, rounded to float32, are within
// 1e-7 of the exact values at every position up to 10^7, and around 2^24.
#include "support/angle_oracle.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

constexpr double kBound = 1e-7;

Rotation RotationOf(int64_t dim, double base, AngleMode angles) {
  return Rope(dim, PairLayout::kHalves, {.base = base, .angles = angles})
      .RotationFor(/*length=*/1);
}

TEST(AnglesTest, ExactAnglesKeepTheBoundToTenMillion) {
  std::vector<int64_t> positions = AnglePositions(
      10'000'000, /*dense=*/4097, /*strided=*/500, /*random=*/500);
  for (int64_t p = (1 << 24) - 8; p <= (1 << 24) + 8; ++p) {
    positions.push_back(p);
  }
  for (int64_t dim : {64, 128}) {
    for (double base : {1e4, 5e5}) {
      AngleOracle oracle(dim, base);
      EXPECT_LE(
          oracle.Error(RotationOf(dim, base, AngleMode::kExact), positions),
          kBound)
          << "dim " << dim << ", base " << base;
    }
  }
}

// The oracle can fail: float32 angles at large positions far exceed the bound.
TEST(AnglesTest, Float32AnglesMissTheBound) {
  AngleOracle oracle(128, 1e4);
  const Rotation r = RotationOf(128, 1e4, AngleMode::kFloat32);
  EXPECT_GT(oracle.Error(r, 131'071), 1e-3);
  EXPECT_LE(oracle.Error(r, 0), kBound);
}

}  // namespace
}  // namespace locus::testing
