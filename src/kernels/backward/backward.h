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
  const float* lse;  // [B, Hq, Lq]
  Tensor* d_q;       // contiguous, in the shapes of q, k and v
  Tensor* d_k;
  Tensor* d_v;
  bool want_terms = false;
  TermGrads* grads = nullptr;  // zeroed
};

void Backward(const BackwardCall& args);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_BACKWARD_BACKWARD_H_
