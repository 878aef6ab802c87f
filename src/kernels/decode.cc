// Decoding for every SIMD target.
#include "kernels/decode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decode.cc"
#include <hwy/foreach_target.h>  // must come before the -inl headers
//
#include "kernels/decode-inl.h"

#if HWY_ONCE
namespace locus {
HWY_EXPORT(DecodeF32);

namespace kernels {
void Decode(const Call& call, Tensor& out, float* lse, int threads,
            bool keys_rotated) {
  HWY_DYNAMIC_DISPATCH(DecodeF32)(call, out, lse, threads, keys_rotated);
}
}  // namespace kernels
}  // namespace locus
#endif
