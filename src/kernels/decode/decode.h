// Attention of few queries over many keys, behind run-time dispatch.
#ifndef LOCUS_SRC_KERNELS_DECODE_DECODE_H_
#define LOCUS_SRC_KERNELS_DECODE_DECODE_H_

#include "kernels/plan/plan.h"

namespace locus::kernels {

// Takes calls in which so few queries meet each key that it is faster than the
// tiled driver, which packs keys; measured at 8 to 4096 keys: up to 32 rows. It
// takes tables row by row, which pays for fewer. Tables whose buckets the
// offset alone does not tell it takes however many rows there are.
const char* DecodeRefuses(const Plan& plan);

// Keys and values are not packed but read once, where they lie, and the work is
// split over keys.
void Decode(const Call& call, const CallResult& result);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_DECODE_DECODE_H_
