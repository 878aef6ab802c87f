// An encoding outside the library: b_h(m - n) = -(m - n)^2 / (2 sigma_h^2),
// with one trained sigma per head.
#include <locus/locus.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

class Gaussian final : public locus::Encoding {
 public:
  // sigma [heads].
  explicit Gaussian(locus::Tensor sigma) : sigma_(std::move(sigma)) {}

  std::string_view Name() const override { return "gaussian"; }

  // The formula, for the offsets that occur: a bias by offset.
  locus::Lowered Lower(const locus::Shape& shape) const override {
    locus::BiasTable bias;
    bias.buckets =
        locus::BucketMap::Identity(shape.min_offset, shape.max_offset);
    std::vector<double> values;
    for (int64_t h = 0; h < sigma_.size(0); ++h) {
      for (int64_t x = shape.min_offset; x <= shape.max_offset; ++x) {
        values.push_back(-Square(x) / (2 * sigma_.At(h) * sigma_.At(h)));
      }
    }
    bias.values =
        locus::Tensor::From({sigma_.size(0), bias.buckets.count}, values);
    locus::Lowered lowered;
    lowered.terms.scale.scale = shape.ScaleOr();
    lowered.terms.bias = bias;
    return lowered;
  }

  // Only if it trains: its parameters, and their gradients from those of the
  // bias: db / dsigma = (m - n)^2 / sigma^3.
  std::vector<locus::Param> Params() const override {
    return {{"sigma", sigma_}};
  }
  std::unique_ptr<locus::Encoding> WithParams(
      std::span<const locus::Tensor> values) const override {
    return std::make_unique<Gaussian>(values[0]);
  }
  locus::ParamGrads PullBack(const locus::Shape& shape,
                             const locus::TermGrads& grads) const override {
    const auto& d = std::get<locus::BiasTableGrads>(*grads.bias).values;
    std::vector<double> d_sigma;
    for (int64_t h = 0; h < sigma_.size(0); ++h) {
      const double s = sigma_.At(h);
      double sum = 0.0;
      for (int64_t b = 0; b < d.size(1); ++b) {
        sum += d.At(h, b) * Square(shape.min_offset + b) / (s * s * s);
      }
      d_sigma.push_back(sum);
    }
    return {{"sigma", locus::Tensor::From({sigma_.size(0)}, d_sigma)}};
  }

 private:
  static double Square(int64_t offset) {
    return static_cast<double>(offset) * static_cast<double>(offset);
  }

  locus::Tensor sigma_;
};

int main() {
  const Gaussian gaussian(
      locus::Tensor::From({2}, std::vector<double>{2.0, 8.0}));
  std::vector<float> numbers;
  for (int n = 0; n < 2 * 32 * 16; ++n) {
    numbers.push_back(static_cast<float>(n * 37 % 101) / 50.0f - 1.0f);
  }
  const auto x = locus::Tensor::From({1, 2, 32, 16}, numbers);
  // The fused engine, forward and backward, and the float64 reference.
  locus::AttentionOptions options;
  options.causal = options.return_lse = true;
  const auto fused = locus::Attention(x, x, x, gaussian, options);
  const auto exact = locus::reference::Attention(x, x, x, gaussian, options);
  const auto grads =
      locus::AttentionBackward(x, x, x, x, fused, gaussian, options);
  double error = 0.0;
  for (int64_t i = 0; i < 32; ++i) {
    error = std::max(
        error, std::abs(fused.out.At(0, 1, i, 3) - exact.out.At(0, 1, i, 3)));
  }
  const auto report =
      locus::Check(gaussian, {.heads = 2, .head_dim = 16, .length = 32});
  std::printf("equal to the reference: %s\n", error < 1e-5 ? "yes" : "no");
  std::printf("gradient of sigma: [%lld]\n",
              static_cast<long long>(grads.params[0].value.size(0)));
  std::printf("depends on m - n only: %s\n",
              locus::VerdictName(report.Find("relative").verdict).data());
}
