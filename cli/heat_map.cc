#include <algorithm>
#include <cmath>

#include "cli/answers/figure.h"

namespace locus::cli {

double HeatMap::Largest() const {
  double largest = 0.0;
  for (const auto& row : values) {
    for (double v : row) largest = std::max(largest, std::abs(v));
  }
  return largest > 0.0 ? largest : 1.0;
}

bool HeatMap::HasNegative() const {
  return std::ranges::any_of(values, [](const auto& row) {
    return std::ranges::any_of(row, [](double v) { return v < 0.0; });
  });
}

}  // namespace locus::cli
