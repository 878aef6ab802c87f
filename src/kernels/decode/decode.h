// Attention of few queries over many keys, with run-time dispatch to a SIMD
// target.
#ifndef LOCUS_SRC_KERNELS_DECODE_DECODE_H_
#define LOCUS_SRC_KERNELS_DECODE_DECODE_H_

#include "kernels/plan/plan.h"

namespace locus::kernels {

// Accepts calls with so few queries per key that it is faster than the tiled
// driver, which packs keys: up to 32 rows, measured at 8 to 4096 keys, or up to
// 16 with tables, whose rows it reads one by one. Accepts any number of rows if
// the buckets of a table depend on more than the offset.
const char* DecodeRefuses(const Plan& plan);

// Keys and values are not packed but read once, in place, and the work is split
// over keys.
void Decode(const Call& call, const CallResult& result);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_DECODE_DECODE_H_
