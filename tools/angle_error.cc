// Prints the largest error of a rotation's cos and sin in float32, against
// MPFR, as the Markdown table of docs/numerics.md.
#include <fmt/format.h>

#include "support/angle_oracle.h"

int main() {
  using locus::AngleMode;
  constexpr int64_t kEnds[] = {4096, 131'072, 1'000'000, 10'000'000};
  fmt::print(
      "| head dim | base | angles | 4096 | 131072 | 10^6 | 10^7 |\n"
      "|---------:|-----:|--------|-----:|-------:|-----:|-----:|\n");
  for (int64_t dim : {64, 128}) {
    for (double base : {1e4, 5e5}) {
      locus::testing::AngleOracle oracle(dim, base);
      for (AngleMode mode : {AngleMode::kExact, AngleMode::kFloat32}) {
        const locus::Rotation rotation =
            locus::Rope(dim, locus::PairLayout::kHalves,
                        {.base = base, .angles = mode})
                .RotationFor(/*length=*/1);
        fmt::print("| {} | {:g} | {} |", dim, base,
                   mode == AngleMode::kExact ? "exact" : "float32");
        for (int64_t end : kEnds) {
          fmt::print(" {:.1e} |",
                     oracle.Error(rotation, locus::testing::AnglePositions(
                                                end, /*dense=*/4096,
                                                /*strided=*/2000,
                                                /*random=*/2000)));
        }
        fmt::print("\n");
      }
    }
  }
}
