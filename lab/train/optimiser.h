// AdamW over the flat parameters of a model.
#ifndef LOCUS_LAB_TRAIN_OPTIMISER_H_
#define LOCUS_LAB_TRAIN_OPTIMISER_H_

#include <cstdint>
#include <vector>

#include "lab/train/parameters.h"

namespace locus::lab {

// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).
class AdamW {
 public:
  explicit AdamW(const ParameterSet& parameters);

  // Scales the gradient to a norm of at most 1, takes one step with it, and
  // sets it to zero.
  void Step(const ParameterSet& parameters, double learning_rate);

  int64_t steps() const { return steps_; }
  const std::vector<float>& mean() const { return mean_; }
  const std::vector<float>& square() const { return square_; }
  void Restore(int64_t steps, std::vector<float> mean,
               std::vector<float> square);

 private:
  int64_t steps_ = 0;
  std::vector<float> mean_;    // of gradients
  std::vector<float> square_;  // of their squares
  std::vector<float> rate_;    // of each parameter, times the learning rate
  std::vector<float> decay_;
};

// Rises in a line over the first twentieth of the steps (at least ten), then
// falls as a cosine to a tenth.
double LearningRateAt(double highest, int64_t step, int64_t steps);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_OPTIMISER_H_
