// Decoding for every SIMD target.
#include "kernels/decode/decode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decode/decode.cc"
#include <hwy/foreach_target.h>  // must come before the -inl headers
//
#include "kernels/decode/decode-inl.h"

#if HWY_ONCE
namespace locus {
HWY_EXPORT(DecodeF32);

namespace kernels {
bool FewRows(const CallSizes& s, const Terms& terms) {
  const bool tables =
      terms.extra_dot || terms.q_table || terms.k_table || terms.v_table;
  return s.k_len > 0 &&
         s.q_len * (s.q_heads / s.kv_heads) <= (tables ? 16 : 32);
}

bool TablesByPair(const Terms& terms) {
  const auto by_pair = [](const std::optional<BucketTable>& table) {
    return table && (table->buckets.grid || table->buckets.special);
  };
  return by_pair(terms.q_table) || by_pair(terms.k_table) ||
         by_pair(terms.v_table);
}

void Decode(const Call& call, Tensor& out, float* lse, int threads,
            bool keys_rotated) {
  HWY_DYNAMIC_DISPATCH(DecodeF32)(call, out, lse, threads, keys_rotated);
}
}  // namespace kernels
}  // namespace locus
#endif
