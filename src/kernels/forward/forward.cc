// Forward attention for every SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/forward/forward.cc"
#include <hwy/foreach_target.h>  // must come before the -inl headers
//
#include "kernels/forward/forward-inl.h"

#if HWY_ONCE
namespace locus {
HWY_EXPORT(ForwardF32);

namespace kernels {
void Forward(const Call& call, const CallResult& result) {
  HWY_DYNAMIC_DISPATCH(ForwardF32)(call, result);
}
}  // namespace kernels
}  // namespace locus
#endif
