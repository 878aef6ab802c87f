#include "analysis/strength.h"

#include <cmath>
#include <complex>

#include "locus/reference.h"

namespace locus::analysis {
namespace {

double RowNorm(const BucketTable& table, int64_t h, int64_t m, int64_t n) {
  const int32_t bucket = table.buckets(m, n);
  const int64_t head = table.rows.size(0) == 1 ? 0 : h;
  double sum = 0.0;
  for (int64_t d = 0; d < table.rows.size(2); ++d) {
    const double value = table.rows.At(head, bucket, d);
    sum += value * value;
  }
  return std::sqrt(sum);
}

double ExtraDotAt(const ExtraDot& dot, int64_t h, int64_t m, int64_t n) {
  const int64_t head = dot.q_rows.size(0) == 1 ? 0 : h;
  double sum = 0.0;
  for (int64_t d = 0; d < dot.q_rows.size(2); ++d) {
    sum += dot.q_rows.At(head, m - dot.first_position, d) *
           dot.k_rows.At(head, n - dot.first_position, d);
  }
  return sum;
}

double DecayOf(const Rotation& r, size_t pair, int64_t offset) {
  return r.log_decay.empty()
             ? 1.0
             : std::exp(r.log_decay[pair] * static_cast<double>(offset));
}

// RoFormer's bound, 1 at m = n.
double RotaryBound(const Rotation& r, int64_t h, int64_t m, int64_t n) {
  const std::span<const double> theta = r.ThetaOf(h);
  const size_t pairs = static_cast<size_t>(r.NumPairs());
  const size_t axes = r.Mixed() ? static_cast<size_t>(r.NumAxes()) : 1;
  std::complex<double> sum = 0.0;
  double bound = 0.0, at_zero = 0.0;
  for (size_t p = 0; p < pairs; ++p) {
    double angle = 0.0;
    for (size_t a = 0; a < axes; ++a) {
      const int64_t axis = r.Mixed() ? static_cast<int64_t>(a)
                                     : r.AxisOf(static_cast<int64_t>(p));
      angle += (r.Shifted(axis, m) - r.Shifted(axis, n)) * theta[p * axes + a];
    }
    sum += DecayOf(r, p, m - n) * std::polar(1.0, angle);
    bound += std::abs(sum);
    at_zero += static_cast<double>(p + 1);
  }
  return r.gain * r.gain * bound / at_zero;
}

}  // namespace

double Contribution(const Terms& terms, int64_t h, int64_t m, int64_t n) {
  double dots = 0.0;
  if (terms.rotate) {
    const Rotation& r = *terms.rotate;
    double most = 0.0;
    for (size_t p = 0; p < static_cast<size_t>(r.NumPairs()); ++p) {
      most = std::max(most, r.gain * r.gain * DecayOf(r, p, m - n));
    }
    dots += most;
  }
  if (terms.extra_dot) dots += std::abs(ExtraDotAt(*terms.extra_dot, h, m, n));
  if (terms.q_table) dots += RowNorm(*terms.q_table, h, m, n);
  if (terms.k_table) dots += RowNorm(*terms.k_table, h, m, n);
  double all = std::abs(terms.scale.At(h, m)) * dots;
  if (terms.bias) all += std::abs(BiasAt(*terms.bias, h, m, n));
  if (terms.v_table) all += RowNorm(*terms.v_table, h, m, n);
  if (terms.rotate_values) all += 1.0;
  return all;
}

double Strength(const Terms& terms, int64_t h, int64_t m, int64_t n) {
  double dots = 0.0;
  if (terms.rotate) dots += RotaryBound(*terms.rotate, h, m, n);
  if (terms.extra_dot) dots += ExtraDotAt(*terms.extra_dot, h, m, n);
  if (terms.q_table) dots += RowNorm(*terms.q_table, h, m, n);
  if (terms.k_table) dots += RowNorm(*terms.k_table, h, m, n);
  double all = terms.scale.At(h, m) * dots;
  if (terms.bias) all += BiasAt(*terms.bias, h, m, n);
  return all;
}

bool IsPenalty(const Terms& terms) {
  const std::vector<std::string> names = TermNames(terms);
  if (names.size() != 1 || !terms.bias) return false;
  if (const auto* ramp = std::get_if<BiasRamp>(&*terms.bias)) {
    for (const auto* slopes : {&ramp->past, &ramp->future}) {
      for (double slope : *slopes) {
        if (slope < 0.0) return false;
      }
    }
    return true;
  }
  const auto* table = std::get_if<BiasTable>(&*terms.bias);
  if (table == nullptr) return false;
  for (double value : table->values.ToVector()) {
    if (value > 0.0) return false;
  }
  return true;
}

std::vector<double> RotatedRows(const Rotation& rotation,
                                const std::vector<double>& rows, int64_t dim,
                                const std::vector<int64_t>& positions) {
  const int64_t n = static_cast<int64_t>(positions.size());
  std::vector<double> out = rows;
  for (int64_t t = 0; t < n; ++t) {
    reference::RotateRow(rotation, positions[static_cast<size_t>(t)],
                         out.data() + t * dim);
    if (rotation.log_decay.empty()) continue;
    for (int64_t p = 0; p < rotation.NumPairs(); ++p) {
      const double decay = DecayOf(rotation, static_cast<size_t>(p),
                                   positions[static_cast<size_t>(t)]);
      out[static_cast<size_t>(t * dim + rotation.FirstOfPair(p))] *= decay;
      out[static_cast<size_t>(t * dim + rotation.SecondOfPair(p))] *= decay;
    }
  }
  return out;
}

}  // namespace locus::analysis
