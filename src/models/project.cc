#include "models/project.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"

namespace locus::models {
namespace {

size_t At(int64_t n) { return static_cast<size_t>(n); }

}  // namespace

Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const int64_t n = x.size(0), in = x.size(1), out = weight.size(0);
  if (weight.size(1) != in || (bias.defined() && bias.NumElements() != out)) {
    Fail("a projection of {} by {} and {} does not fit", x.Describe(),
         weight.Describe(), bias.defined() ? bias.Describe() : "no bias");
  }
  const auto a = x.ToVector(), w = weight.ToVector();
  const auto b =
      bias.defined() ? bias.ToVector() : std::vector<double>(At(out), 0.0);
  std::vector<double> y(At(n * out));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = b[At(o)];
      for (int64_t k = 0; k < in; ++k)
        sum += a[At(i * in + k)] * w[At(o * in + k)];
      y[At(i * out + o)] = sum;
    }
  }
  return Tensor::From({n, out}, std::move(y));
}

Tensor LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                 double epsilon) {
  const int64_t n = x.size(0), d = x.size(1);
  auto y = x.ToVector();
  const auto w = weight.ToVector(), b = bias.ToVector();
  if (static_cast<int64_t>(w.size()) != d ||
      static_cast<int64_t>(b.size()) != d) {
    Fail("a normalisation of rows of {} needs weights of that size, got {}", d,
         weight.Describe());
  }
  for (int64_t i = 0; i < n; ++i) {
    double* row = y.data() + i * d;
    double mean = 0.0, variance = 0.0;
    for (int64_t k = 0; k < d; ++k) mean += row[k] / static_cast<double>(d);
    for (int64_t k = 0; k < d; ++k) {
      variance += (row[k] - mean) * (row[k] - mean) / static_cast<double>(d);
    }
    const double inverse = 1.0 / std::sqrt(variance + epsilon);
    for (int64_t k = 0; k < d; ++k) {
      row[k] = (row[k] - mean) * inverse * w[At(k)] + b[At(k)];
    }
  }
  return Tensor::From({n, d}, std::move(y));
}

Tensor WithShape(const Tensor& x, std::vector<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  if (count != x.NumElements()) {
    Fail("a tensor {} cannot be seen as {} numbers", x.Describe(), count);
  }
  return Tensor::From(std::move(shape), x.ToVector());
}

Tensor SplitHeads(const Tensor& x, int64_t heads, int64_t dim) {
  return WithShape(x, {x.size(0), heads, dim}).Transposed(0, 1).To(DType::kF64);
}

Tensor RelativeKeys(const RelativeProjection& by, int64_t reach,
                    int64_t clamp) {
  const int64_t rows = 2 * reach - 1, d = by.model_dim;
  if (d % 2 != 0) Fail("sinusoids need an even width, got {}", d);
  std::vector<double> s(At(rows * d));
  for (int64_t row = 0; row < rows; ++row) {
    int64_t offset = row - (reach - 1);
    if (clamp > 0) offset = std::clamp(offset, -clamp, clamp);
    for (int64_t i = 0; i < d / 2; ++i) {
      const double angle = static_cast<double>(offset) *
                           std::pow(10000.0, -2.0 * static_cast<double>(i) /
                                                 static_cast<double>(d));
      s[At(row * d + i)] = std::sin(angle);
      s[At(row * d + d / 2 + i)] = std::cos(angle);
    }
  }
  const Tensor w = WithShape(by.w, {by.heads * by.dim, d});
  return SplitHeads(Linear(Tensor::From({rows, d}, std::move(s)), w, Tensor()),
                    by.heads, by.dim);
}

}  // namespace locus::models
