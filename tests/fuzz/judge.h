// How much a float32 result may differ from the float64 reference.
//
// docs/numerics.md states bounds for logits of ordinary size, relative to the
// largest value of a tensor. Random calls are not always ordinary: logits may
// be large, and gradients may be small differences of large numbers. So the
// reference runs a second time on inputs that are each off by one rounding:
// float32 may change the result by a few times as much as that does.
#ifndef LOCUS_TESTS_FUZZ_JUDGE_H_
#define LOCUS_TESTS_FUZZ_JUDGE_H_

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fuzz/random.h"
#include "locus/tensor.h"

namespace locus::testing {

// One rounding: half of the distance between numbers near 1.
inline double Rounding(DType dtype) {
  return dtype == DType::kBF16  ? 0x1p-9
         : dtype == DType::kF16 ? 0x1p-12
                                : 0x1p-24;
}

// The same numbers, each off by at most a relative `by`, as f64.
inline Tensor Perturbed(const Tensor& x, double by, Random& random) {
  std::vector<double> values = x.ToVector();
  for (double& value : values) value *= 1.0 + random.Real(-by, by);
  return Tensor::From(x.shape(), std::move(values));
}

struct Bound {
  double relative = 0.0;   // relative to the largest value of the tensor, or 1
  double perturbed = 0.0;  // multiplies the change caused by a perturbation
  DType stored = DType::kF32;
};

// Returns "" if `actual` is within the bound of `exact`, else a description of
// the difference. `nearby` is the reference on perturbed inputs.
inline std::string Compare(const std::string& name, const Tensor& actual,
                           const Tensor& exact, const Tensor& nearby,
                           const Bound& bound) {
  if (actual.shape() != exact.shape()) {
    return name + " is " + actual.Describe() + ", not " + exact.Describe();
  }
  const std::vector<double> a = actual.ToVector(), e = exact.ToVector(),
                            n = nearby.ToVector();
  double largest = 1.0, change = 0.0;
  for (size_t i = 0; i < e.size(); ++i) {
    if (!std::isfinite(e[i])) continue;
    largest = std::max(largest, std::abs(e[i]));
    change = std::max(change, std::abs(n[i] - e[i]));
  }
  const double least = bound.stored == DType::kF16 ? 0x1p-24 : 0.0;
  for (size_t i = 0; i < e.size(); ++i) {
    if (a[i] == e[i]) continue;  // including infinities
    const double allowed = bound.relative * largest + bound.perturbed * change +
                           2.0 * Rounding(bound.stored) * std::abs(e[i]) +
                           least;
    const double error = std::abs(a[i] - e[i]);
    if (error <= allowed) continue;
    // Beyond the range of the type.
    if (bound.stored == DType::kF16 && std::abs(e[i]) > 65000.0) continue;
    return name + " of " + actual.Describe() + ", element " +
           std::to_string(i) + ": " + std::to_string(a[i]) + " instead of " +
           std::to_string(e[i]) + ", off by " +
           std::to_string(error / allowed) + " times what is allowed";
  }
  return "";
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_FUZZ_JUDGE_H_
