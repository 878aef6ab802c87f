// Building blocks of the papers' formulas, and the tolerances for the library.
#ifndef LOCUS_TESTS_SUPPORT_FORMULAS_H_
#define LOCUS_TESTS_SUPPORT_FORMULAS_H_

#include <cmath>
#include <limits>
#include <vector>

#include "locus/tensor.h"

namespace locus::testing {

// A formula in float64 compared with the reference: a few thousand roundings of
// 2^-53, relative to the largest output.
inline constexpr double kPaperTolerance = 1e-12;

// PullBack against central differences of step h = 1e-5: h^2 = 1e-10 times a
// third derivative, and 2^-53 / h = 1e-11 times the loss.
inline constexpr double kDifferenceTolerance = 1e-8;

// A first position far from 0.
inline constexpr int64_t kFar = 1'000'000;

// Scores through an angle pos * w: w and the product are rounded to float64 on
// both sides of the comparison, for q and for k, which rotates a pair by up to
// 8 * pos * 2^-53; doubled, because |q| |k| / sqrt(D) is not exactly 1.
inline double AngleTolerance(int64_t position) {
  return kPaperTolerance + 8.0 * static_cast<double>(position) *
                               std::numeric_limits<double>::epsilon();
}

inline double Dot(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0.0;
  for (size_t d = 0; d < x.size(); ++d) sum += x[d] * y[d];
  return sum;
}

// q.k / sqrt(factor * D).
inline double ScaledDot(const std::vector<double>& q,
                        const std::vector<double>& k, double factor = 1.0) {
  return Dot(q, k) / std::sqrt(factor * static_cast<double>(q.size()));
}

// A row of a table [rows, D], or of head h of [heads, rows, D].
inline std::vector<double> RowOf(const Tensor& table, int64_t h, int64_t row) {
  std::vector<double> out;
  for (int64_t d = 0; d < table.size(-1); ++d) {
    out.push_back(table.rank() == 3 ? table.At(h, row, d) : table.At(row, d));
  }
  return out;
}

inline std::vector<int64_t> PositionsFrom(int64_t first, int64_t count) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < count; ++i) positions.push_back(first + i);
  return positions;
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_SUPPORT_FORMULAS_H_
