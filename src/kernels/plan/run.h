// Runs a plan on its operands.
#ifndef LOCUS_SRC_KERNELS_PLAN_RUN_H_
#define LOCUS_SRC_KERNELS_PLAN_RUN_H_

#include "kernels/plan/plan.h"

namespace locus::kernels {

// q, k and v must have the shapes and types planned for.
AttentionResult Run(const Plan& plan, const Rows& q, const Rows& k,
                    const Rows& v);
// Writes into the caller's result; throws Error if its tensors have the wrong
// shape or type or overlap an operand.
void RunInto(const Plan& plan, const Tensor& q, const Tensor& k,
             const Tensor& v, AttentionResult& result);
AttentionGrads RunBackward(const Plan& plan, const Tensor& d_out,
                           const Tensor& q, const Tensor& k, const Tensor& v,
                           const AttentionResult& forward,
                           const BackwardOptions& backward = {});

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_RUN_H_
