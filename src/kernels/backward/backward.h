// The backward pass, with run-time dispatch to a SIMD target.
#ifndef LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_H_
#define LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_H_

#include "kernels/plan/plan.h"

namespace locus::kernels {

// The operands and outputs of a backward pass.
struct BackwardCall {
  const Call& call;
  Rows d_out;
  Rows out;
  const float* lse;    // [B, Hq, Lq]
  const float* d_lse;  // [B, Hq, Lq], or nullptr
  Tensor* d_q;         // in the shapes of q, k and v, with contiguous rows
  Tensor* d_k;
  Tensor* d_v;
  TermGrads* grads = nullptr;  // zeroed by the caller
  // Zeroed by the caller, except for a pair bias whose every element is stored.
  // key_bias and sinks are f64, pair_bias and table_queries f32.
  OperandGrads* operands = nullptr;
};

void Backward(const BackwardCall& args);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_H_
