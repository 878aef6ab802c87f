#include "lab/train/optimiser.h"

#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace locus::lab {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;

// The lab's short runs have few steps, so the squares have a shorter memory
// than with the usual 0.999.
constexpr double kMeanKept = 0.9;
constexpr double kSquareKept = 0.98;
constexpr double kWeightDecay = 0.01;
constexpr double kLargestNorm = 1.0;

// One group per parameter, since rates and decay differ.
std::vector<torch::optim::OptimizerParamGroup> Groups(
    const ParameterSet& parameters) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const ParameterInfo& info : parameters.infos()) {
    auto options = std::make_unique<AdamWOptions>();
    options->betas({kMeanKept, kSquareKept})
        .weight_decay(info.decays ? kWeightDecay : 0.0);
    groups.emplace_back(std::vector<torch::Tensor>{parameters[info.name]},
                        std::move(options));
  }
  return groups;
}

}  // namespace

// Creates the optimiser's state as views of a single tensor, instead of letting
// libtorch do so in the first step: its own archive identifies parameters by
// address, so its bytes would differ between processes.
Optimiser::Optimiser(const ParameterSet& parameters)
    : parameters_(parameters),
      moments_(torch::zeros({2, parameters.flat().numel()})),
      adam_(std::make_unique<torch::optim::AdamW>(Groups(parameters))) {
  int64_t start = 0;
  for (const ParameterInfo& info : parameters.infos()) {
    const torch::Tensor& tensor = tensors_.emplace_back(parameters[info.name]);
    const auto part = [&](int64_t row) {
      return moments_[row].narrow(0, start, tensor.numel()).view_as(tensor);
    };
    auto state = std::make_unique<AdamWParamState>();
    state->exp_avg(part(0)).exp_avg_sq(part(1));
    adam_->state()[tensor.unsafeGetTensorImpl()] = std::move(state);
    start += tensor.numel();
  }
}

Optimiser::~Optimiser() = default;

void Optimiser::Step(double learning_rate) {
  torch::nn::utils::clip_grad_norm_(tensors_, kLargestNorm);
  for (size_t n = 0; n < tensors_.size(); ++n) {
    adam_->param_groups()[n].options().set_lr(learning_rate *
                                              parameters_.infos()[n].rate);
  }
  adam_->step();
  ++steps_;
  parameters_.flat_grad().zero_();
}

void Optimiser::Restore(int64_t steps, const torch::Tensor& moments) {
  steps_ = steps;
  moments_.copy_(moments);
  for (auto& [tensor, state] : adam_->state()) {
    static_cast<AdamWParamState&>(*state).step(steps);
  }
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
