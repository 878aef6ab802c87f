// Forward attention in tiles, behind run-time dispatch.
#ifndef LOCUS_SRC_KERNELS_FORWARD_FORWARD_H_
#define LOCUS_SRC_KERNELS_FORWARD_FORWARD_H_

#include "kernels/plan/plan.h"

namespace locus::kernels {

// Takes every call.
void Forward(const Call& call, const CallResult& result);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_FORWARD_FORWARD_H_
