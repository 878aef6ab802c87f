// Attention of short sequences, behind run-time dispatch.
//
// A call of a few tokens is over in less time than sorting its tokens and
// packing its operands would take. Here positions are consecutive, what a query
// sees is computed instead of looked up, and whole rows of scores fit in L1.
#ifndef LOCUS_SRC_KERNELS_SHORT_SHORT_H_
#define LOCUS_SRC_KERNELS_SHORT_SHORT_H_

#include "kernels/plan/plan.h"

namespace locus::kernels {

// Takes calls of at most kShortTokens tokens at consecutive positions, alike in
// all sequences, without segments, and any operand; of the terms all but tables
// of vectors. A few queries over many keys are left to Decode.
const char* ShortRefuses(const Plan& plan);

// The same results as Forward.
void Short(const Call& call, const CallResult& result);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_SHORT_SHORT_H_
