// The driver of short sequences for every SIMD target.
#include "kernels/short/short.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/short/short.cc"
#include <hwy/foreach_target.h>  // must come before the -inl headers
//
#include "kernels/short/short-inl.h"

#if HWY_ONCE
namespace locus {
HWY_EXPORT(ShortF32);
HWY_EXPORT(AddBiasByPairF32);

namespace kernels {
void Short(const Call& call, const CallResult& result) {
  HWY_DYNAMIC_DISPATCH(ShortF32)(call, result);
}

void AddBiasByPair(const ShortCall& call, int64_t heads, int64_t stride,
                   float* rows) {
  HWY_DYNAMIC_DISPATCH(AddBiasByPairF32)(call, heads, stride, rows);
}
}  // namespace kernels
}  // namespace locus
#endif
