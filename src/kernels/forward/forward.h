// Tiled forward attention, with run-time dispatch to a SIMD target.
#ifndef LOCUS_SRC_KERNELS_FORWARD_FORWARD_H_
#define LOCUS_SRC_KERNELS_FORWARD_FORWARD_H_

#include "kernels/plan/plan.h"

namespace locus::kernels {

// Accepts every call.
void Forward(const Call& call, const CallResult& result);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_FORWARD_FORWARD_H_
