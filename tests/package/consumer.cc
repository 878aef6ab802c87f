// A user of the installed library: prints, for example, "rope 0.2.0 0".
#include <locus/locus.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const locus::Rope rope(8, locus::PairLayout::kHalves);
  const std::vector<double> numbers(2 * 8, 0.5);
  const locus::Tensor x = locus::Tensor::From({1, 1, 2, 8}, numbers);
  const locus::Tensor out = locus::reference::Attention(x, x, x, rope).out;
  // Values are equal, so attention returns them whatever the positions are.
  const double error = std::abs(out.At(0, 0, 1, 7) - 0.5);
  std::printf("%s %s %g\n", "rope", locus::Version(), error);
  if (error > 1e-15) return 1;
  try {
    locus::FindEncoding("nonsense");
  } catch (const locus::Error&) {
    return 0;  // exceptions cross the boundary of the library
  }
  return 1;
}
