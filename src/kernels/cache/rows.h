// What the parts of the cache share: rows of its tensors, and threads for them.
#ifndef LOCUS_SRC_KERNELS_CACHE_ROWS_H_
#define LOCUS_SRC_KERNELS_CACHE_ROWS_H_

#include <algorithm>

#include "core/threads.h"
#include "kernels/plan/call.h"

namespace locus::kernels {

// Row (b, h, i) of a tensor of f32, bf16 or f16.
inline void* RowOf(Tensor& t, int64_t b, int64_t h, int64_t i) {
  const std::vector<int64_t>& s = t.strides();
  const int64_t at = b * s[0] + h * s[1] + i * s[2];
  if (t.dtype() == DType::kF32) return t.MutableData<float>() + at;
  return t.MutableData<uint16_t>() + at;
}

// Threads for so many elements: with fewer than this a thread is not worth
// waking. Results do not depend on it.
inline int ThreadsForElements(int64_t elements, int requested) {
  constexpr int64_t kWorthAThread = int64_t{1} << 17;
  return static_cast<int>(
      std::clamp<int64_t>(elements / kWorthAThread, 1, NumThreads(requested)));
}

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_CACHE_ROWS_H_
