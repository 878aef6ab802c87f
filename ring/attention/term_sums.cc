#include "ring/attention/term_sums.h"

#include <type_traits>
#include <variant>

namespace locus::ring {
namespace {

void Add(const std::vector<double>& from, std::vector<double>& to) {
  for (size_t n = 0; n < to.size(); ++n) to[n] += from[n];
}

void Add(const Tensor& from, Tensor& to) {
  if (!to.defined()) return;
  const double* x = from.Data<double>();
  double* y = to.MutableData<double>();
  for (int64_t n = 0; n < to.NumElements(); ++n) y[n] += x[n];
}

void Add(const BiasTableGrads& from, BiasTableGrads& to) {
  Add(from.values, to.values);
}

void Add(const BiasRampGrads& from, BiasRampGrads& to) {
  Add(from.past, to.past);
  Add(from.future, to.future);
}

void Add(const BiasProfileGrads& from, BiasProfileGrads& to) {
  Add(from.distance, to.distance);
  Add(from.row_gain, to.row_gain);
  Add(from.base, to.base);
  Add(from.slope, to.slope);
}

}  // namespace

void Add(const TermGrads& from, TermGrads& to) {
  Add(from.scale, to.scale);
  if (to.rotate) Add(from.rotate->theta, to.rotate->theta);
  if (to.extra_dot) {
    Add(from.extra_dot->q_rows, to.extra_dot->q_rows);
    Add(from.extra_dot->k_rows, to.extra_dot->k_rows);
  }
  Add(from.q_table, to.q_table);
  Add(from.k_table, to.k_table);
  Add(from.v_table, to.v_table);
  if (!to.bias) return;
  std::visit(
      [&from](auto& kind) {
        Add(std::get<std::remove_reference_t<decltype(kind)>>(*from.bias),
            kind);
      },
      *to.bias);
}

}  // namespace locus::ring
