// Short attention for every SIMD target.
#include "kernels/short/short.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/short/short.cc"
#include <hwy/foreach_target.h>  // must come before the -inl headers
//
#include "kernels/short/short-inl.h"

#if HWY_ONCE
namespace locus {
HWY_EXPORT(ShortF32);

namespace kernels {
void Short(const ShortCall& call, Tensor& out, float* lse, int threads) {
  HWY_DYNAMIC_DISPATCH(ShortF32)(call, out, lse, threads);
}
}  // namespace kernels
}  // namespace locus
#endif
