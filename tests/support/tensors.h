// Random tensors and comparisons for tests.
#ifndef LOCUS_TESTS_SUPPORT_TENSORS_H_
#define LOCUS_TESTS_SUPPORT_TENSORS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "locus/tensor.h"

namespace locus::testing {

// Normally distributed f64 values.
inline Tensor RandomTensor(std::vector<int64_t> shape, uint64_t seed,
                           double deviation = 1.0) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0.0, deviation);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = normal(engine);
  return Tensor::From(std::move(shape), std::move(values));
}

// The largest |a - b| relative to max(1, largest |b|): relative to the whole
// tensor, so zeros do not inflate it. NaN anywhere gives infinity.
inline double RelativeError(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  if (a.shape() != b.shape()) return INFINITY;
  const std::vector<double> x = a.ToVector(), y = b.ToVector();
  double scale = 1.0;
  for (double value : y) {
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  }
  double worst = 0.0;
  for (size_t n = 0; n < x.size(); ++n) {
    if (x[n] == y[n]) continue;  // equal infinities
    const double error = std::abs(x[n] - y[n]) / scale;
    if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
  }
  return worst;
}

// The message of the locus::Error that `f` throws; "" if it does not.
template <typename F>
std::string ErrorOf(const F& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_SUPPORT_TENSORS_H_
