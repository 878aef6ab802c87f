// Attention of few queries over many keys, behind run-time dispatch.
#ifndef LOCUS_SRC_KERNELS_DECODE_DECODE_H_
#define LOCUS_SRC_KERNELS_DECODE_DECODE_H_

#include "kernels/plan/call.h"

namespace locus::kernels {

// Whether so few queries meet each key that Decode is faster than Forward,
// which packs keys. Measured at 8 to 4096 keys: up to 32 rows. Decode takes
// tables row by row, which pays for fewer.
bool FewRows(const CallSizes& sizes, const Terms& terms);

// Whether a table has buckets that the offset alone does not tell: those of a
// 2-D window, or with a token apart. Only Decode takes them, however many rows.
bool TablesByPair(const Terms& terms);

// The same results as Forward, for calls with few rows (queries times heads of
// a group): keys and values are not packed but read once, where they lie, and
// the work is split over keys. q, k and v may differ in type; out [B, Hq, Lq,
// Dv] is contiguous, lse [B, Hq, Lq] or nullptr.
//
// With `keys_rotated`, k holds keys that the rotation of the call has turned
// already: only queries are rotated. Such a call has neither a key table, which
// would need the keys unrotated, nor a decay, which belongs to pairs.
void Decode(const Call& call, Tensor& out, float* lse, int threads,
            bool keys_rotated = false);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_DECODE_DECODE_H_
