// Attention of short sequences, with run-time dispatch to a SIMD target.
//
// A call with few tokens takes less time than sorting its tokens and packing
// its operands would. Here positions are consecutive, the keys that a query
// sees are computed instead of looked up, and whole rows of scores fit in L1.
#ifndef LOCUS_SRC_KERNELS_SHORT_SHORT_H_
#define LOCUS_SRC_KERNELS_SHORT_SHORT_H_

#include "kernels/plan/plan.h"

namespace locus::kernels {

// Accepts calls of at most kShortTokens tokens at consecutive positions, the
// same in all sequences, without segments; any operands, and all terms except
// tables of vectors. Leaves few queries over many keys to Decode.
const char* ShortRefuses(const Plan& plan);

// Same results as Forward.
void Short(const Call& call, const CallResult& result);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_SHORT_SHORT_H_
