// Trains the bias table of T5 (Raffel et al. 2020, arXiv:1910.10683) with the
// fused backward pass and plain gradient descent, without any framework.
//
// The teacher is attention with ALiBi. The student starts from a table of zeros
// and only sees the teacher's outputs; that its loss falls to almost nothing
// says that the gradients of the table, summed over all pairs of an N x N
// matrix that never exists, are right.
#include <locus/locus.h>

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "inputs.h"

namespace {

constexpr int64_t kHeads = 4, kLength = 128, kDim = 32, kBuckets = 32;

}  // namespace

int main() {
  const locus::Tensor q = RandomTensor(kHeads, kLength, kDim, 1),
                      k = RandomTensor(kHeads, kLength, kDim, 2),
                      v = RandomTensor(kHeads, kLength, kDim, 3);
  const locus::AttentionOptions options = {.causal = true, .return_lse = true};
  const locus::Tensor target =
      locus::Attention(q, k, v, locus::Alibi(kHeads), options).out;

  std::unique_ptr<locus::Encoding> student = std::make_unique<locus::T5Bias>(
      locus::Tensor::Zeros(locus::DType::kF64, {kBuckets, kHeads}));
  constexpr double kRate = 100.0;
  double first = 0.0, loss = 0.0;
  for (int step = 0; step < 200; ++step) {
    const auto forward = locus::Attention(q, k, v, *student, options);
    // loss = mean (out - target)^2, and its gradient.
    const float* out = forward.out.Data<float>();
    const float* want = target.Data<float>();
    const auto n = static_cast<size_t>(target.NumElements());
    std::vector<float> d_out(n);
    loss = 0.0;
    for (size_t i = 0; i < n; ++i) {
      const double apart = double{out[i]} - want[i];
      loss += apart * apart / static_cast<double>(n);
      d_out[i] = static_cast<float>(2.0 * apart / static_cast<double>(n));
    }
    if (step == 0) first = loss;
    const auto grads = locus::AttentionBackward(
        locus::Tensor::From(target.shape(), std::move(d_out)), q, k, v, forward,
        *student, options);
    // table -= rate * d_table.
    std::vector<double> table = student->Params()[0].value.ToVector();
    const std::vector<double> slope = grads.params[0].value.ToVector();
    for (size_t i = 0; i < table.size(); ++i) table[i] -= kRate * slope[i];
    const locus::Tensor next =
        locus::Tensor::From({kBuckets, kHeads}, std::move(table));
    student = student->WithParams({&next, 1});
  }
  std::printf(
      "loss %.1e at first, %.1e after 200 steps, %s\n", first, loss,
      loss < first / 50 ? "the table has learned ALiBi" : "NOT LEARNED");
  return loss < first / 50 ? 0 : 1;
}
