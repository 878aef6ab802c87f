// The SIMD target that the kernels use: the best one by default. Forcing
// another is for tests and for comparing targets.
#ifndef LOCUS_SIMD_H_
#define LOCUS_SIMD_H_

#include <string>
#include <string_view>
#include <vector>

#include "locus/api.h"

namespace LOCUS_API locus {

// The compiled targets that this machine supports, best first, such as
// {"AVX3", "AVX2", "SSE4"}.
std::vector<std::string> SimdTargets();

// The target in use.
std::string SimdTarget();

// Makes all later calls use one target; "" restores the default. Throws Error
// for a name that is not in SimdTargets(). Must not be called while a kernel is
// running.
void ForceSimdTarget(std::string_view name);

}  // namespace locus

#endif  // LOCUS_SIMD_H_
