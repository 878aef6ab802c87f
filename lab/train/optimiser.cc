// By hand, not torch::optim::AdamW: parameters and gradients are one flat array
// each, so that ranks sum a gradient in one message and a checkpoint is three
// arrays; and rates and decay differ by element. It is one pass in one order:
// the same bits whatever libtorch vectorises.
#include "lab/train/optimiser.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace locus::lab {
namespace {

// The short runs of the lab see few steps: a shorter memory of squares than
// the usual 0.999.
constexpr double kMeanKept = 0.9;
constexpr double kSquareKept = 0.98;
constexpr float kEpsilon = 1e-8F;
constexpr float kWeightDecay = 0.01F;
constexpr double kLargestNorm = 1.0;

}  // namespace

AdamW::AdamW(const ParameterSet& parameters)
    : mean_(static_cast<size_t>(parameters.flat().numel())),
      square_(mean_.size()) {
  rate_.reserve(mean_.size());
  decay_.reserve(mean_.size());
  for (const ParameterInfo& info : parameters.infos()) {
    const auto count = static_cast<size_t>(c10::multiply_integers(info.shape));
    rate_.insert(rate_.end(), count, static_cast<float>(info.rate));
    decay_.insert(decay_.end(), count, info.decays ? kWeightDecay : 0.0F);
  }
}

void AdamW::Step(const ParameterSet& parameters, double learning_rate) {
  float* p = parameters.flat().data_ptr<float>();
  float* g = parameters.flat_grad().data_ptr<float>();
  double norm = 0;
  for (size_t i = 0; i < mean_.size(); ++i) norm += double{g[i]} * double{g[i]};
  norm = std::sqrt(norm);
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const auto clip = static_cast<float>(std::min(1.0, kLargestNorm / norm));
  const auto rate = static_cast<float>(learning_rate);
  const auto kept_mean = static_cast<float>(kMeanKept);
  const auto kept_square = static_cast<float>(kSquareKept);
  const auto mean_gain =
      static_cast<float>(1.0 / (1.0 - std::pow(kMeanKept, t)));
  const auto square_gain =
      static_cast<float>(1.0 / (1.0 - std::pow(kSquareKept, t)));
  for (size_t i = 0; i < mean_.size(); ++i) {
    const float gradient = g[i] * clip;
    mean_[i] = kept_mean * mean_[i] + (1 - kept_mean) * gradient;
    square_[i] =
        kept_square * square_[i] + (1 - kept_square) * gradient * gradient;
    const float root = std::sqrt(square_[i] * square_gain) + kEpsilon;
    p[i] -= rate * rate_[i] * (mean_[i] * mean_gain / root + decay_[i] * p[i]);
    g[i] = 0;
  }
}

void AdamW::Restore(int64_t steps, std::vector<float> mean,
                    std::vector<float> square) {
  steps_ = steps;
  mean_ = std::move(mean);
  square_ = std::move(square);
}

double LearningRateAt(double highest, int64_t step, int64_t steps) {
  const int64_t warm = std::max<int64_t>(10, steps / 20);
  if (step < warm) {
    return highest * static_cast<double>(step + 1) / static_cast<double>(warm);
  }
  const double past = static_cast<double>(step - warm) /
                      static_cast<double>(std::max<int64_t>(steps - warm, 1));
  const double fall =
      0.5 * (1.0 + std::cos(std::numbers::pi * std::min(past, 1.0)));
  return highest * (0.1 + 0.9 * fall);
}

}  // namespace locus::lab
