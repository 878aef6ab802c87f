// Backward attention for every SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward/backward.cc"
#include <hwy/foreach_target.h>  // must come before the -inl headers
//
#include "kernels/backward/backward-inl.h"

#if HWY_ONCE
namespace locus {
HWY_EXPORT(BackwardF32);

namespace kernels {
void Backward(const BackwardCall& args) {
  HWY_DYNAMIC_DISPATCH(BackwardF32)(args);
}
}  // namespace kernels
}  // namespace locus
#endif
