// The backward pass, behind run-time dispatch.
#ifndef LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_H_
#define LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_H_

#include "kernels/plan/plan.h"

namespace locus::kernels {

// What the backward pass is given and where its results go.
struct BackwardCall {
  const Call& call;
  Rows d_out;
  Rows out;
  const float* lse;    // [B, Hq, Lq]
  const float* d_lse;  // the same, or nullptr
  Tensor* d_q;         // contiguous, in the shapes of q, k and v
  Tensor* d_k;
  Tensor* d_v;
  TermGrads* grads = nullptr;  // zeroed
  // Zeroed, but for a pair bias of which every pair is seen; key_bias and sinks
  // f64, pair_bias and table_queries f32.
  OperandGrads* operands = nullptr;
};

void Backward(const BackwardCall& args);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_H_
