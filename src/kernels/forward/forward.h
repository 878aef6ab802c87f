// Forward attention in tiles, behind run-time dispatch.
#ifndef LOCUS_SRC_KERNELS_FORWARD_FORWARD_H_
#define LOCUS_SRC_KERNELS_FORWARD_FORWARD_H_

#include "kernels/plan/plan.h"

namespace locus::kernels {

// Takes every call. out [B, Hq, Lq, Dv] is contiguous, of the type of q; lse
// [B, Hq, Lq] or nullptr.
void Forward(const Call& call, Tensor& out, float* lse);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_FORWARD_FORWARD_H_
