// AdamW with clipped gradients, over the parameters of a model.
#ifndef LOCUS_LAB_TRAIN_OPTIMISER_H_
#define LOCUS_LAB_TRAIN_OPTIMISER_H_

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lab/train/parameters.h"

namespace torch::optim {
class AdamW;
}

namespace locus::lab {

// torch::optim::AdamW (Loshchilov and Hutter, "Decoupled weight decay
// regularization", 2019).
class Optimiser {
 public:
  explicit Optimiser(const ParameterSet& parameters);
  ~Optimiser();
  Optimiser(const Optimiser&) = delete;
  Optimiser& operator=(const Optimiser&) = delete;

  // Scales the gradient to a norm of at most 1, takes one step, and zeroes the
  // gradient.
  void Step(double learning_rate);

  // Everything that later steps depend on besides the parameters: the number of
  // steps, and the moving averages of gradients and of their squares, float32
  // [2, size].
  int64_t steps() const { return steps_; }
  const torch::Tensor& moments() const { return moments_; }
  void Restore(int64_t steps, const torch::Tensor& moments);

 private:
  const ParameterSet& parameters_;
  std::vector<torch::Tensor> tensors_ = {};
  int64_t steps_ = 0;
  torch::Tensor moments_;
  std::unique_ptr<torch::optim::AdamW> adam_;
};

// Rises linearly over the first twentieth of the steps (at least ten), then
// falls as a cosine to a tenth.
double LearningRateAt(double highest, int64_t step, int64_t steps);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_OPTIMISER_H_
