// Runs what a plan has found.
#ifndef LOCUS_SRC_KERNELS_PLAN_RUN_H_
#define LOCUS_SRC_KERNELS_PLAN_RUN_H_

#include "kernels/plan/plan.h"

namespace locus::kernels {

// The rows must be those of the tensors planned for, or of others of their
// shapes and types.
AttentionResult Run(const Plan& plan, const Rows& q, const Rows& k,
                    const Rows& v);
// Into a result that the caller keeps: checks that it fits and shares no memory
// with an operand.
void RunInto(const Plan& plan, const Tensor& q, const Tensor& k,
             const Tensor& v, AttentionResult& result);
AttentionGrads RunBackward(const Plan& plan, const Tensor& d_out,
                           const Tensor& q, const Tensor& k, const Tensor& v,
                           const AttentionResult& forward,
                           const BackwardOptions& backward = {});

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_RUN_H_
