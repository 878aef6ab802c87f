// The decode driver for every SIMD target.
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
const char* DecodeRefuses(const Plan& plan) {
  const CallSizes& s = plan.sizes;
  const Terms& terms = plan.terms;
  if (s.k_len == 0) return "there are no keys";
  // No other driver accepts these.
  if (TablesByPair(terms)) return nullptr;
  const bool tables =
      terms.extra_dot || terms.q_table || terms.k_table || terms.v_table;
  if (s.q_len * (s.q_heads / s.kv_heads) <= (tables ? 16 : 32)) return nullptr;
  return tables ? "more than 16 rows of queries per key head, with tables"
                : "more than 32 rows of queries per key head";
}

void Decode(const Call& call, const CallResult& result) {
  HWY_DYNAMIC_DISPATCH(DecodeF32)(call, result);
}
}  // namespace kernels
}  // namespace locus
#endif
