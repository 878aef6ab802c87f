// Which SIMD target the kernels use. They choose the best one by themselves;
// this is for tests and for comparing targets.
#ifndef LOCUS_SIMD_H_
#define LOCUS_SIMD_H_

#include <string>
#include <string_view>
#include <vector>

#include "locus/api.h"

namespace LOCUS_API locus {

// Targets that were compiled in and that this machine can run, best first, such
// as {"AVX3", "AVX2", "SSE4"}.
std::vector<std::string> SimdTargets();

// The target in use.
std::string SimdTarget();

// Makes every later call use one target; "" returns to the best. Throws Error
// for a name that is not in SimdTargets(). Not to be called while a kernel
// runs.
void ForceSimdTarget(std::string_view name);

}  // namespace locus

#endif  // LOCUS_SIMD_H_
