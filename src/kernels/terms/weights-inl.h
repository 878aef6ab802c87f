// Stores the weights that a call returns, row by row, for all drivers. Compiled
// once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_TERMS_WEIGHTS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_WEIGHTS_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_WEIGHTS_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_WEIGHTS_INL_H_
#endif

#include "kernels/plan/visible.h"
#include "kernels/simd/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// to[key] = factor * p[key] for the keys `seen`; unless nullptr, `order` maps
// sorted keys to columns of `to`. Hidden and dropped keys have weight 0, which
// stays 0 for any factor. `to` may be p if keys are in order.
inline void StoreWeightRow(const float* p, kernels::Interval seen, float factor,
                           const int64_t* order, float* to) {
  const auto scaled = [factor](float weight) {
    return weight == 0.0F ? 0.0F : factor * weight;
  };
  int64_t j = seen.begin;
  if (order != nullptr) {
    for (; j < seen.end; ++j) to[order[j]] = scaled(p[j]);
    return;
  }
  const VF by = hn::Set(kDF, factor);
  for (; j + kLanesI <= seen.end; j += kLanesI) {
    const VF x = hn::LoadU(kDF, p + j);
    const auto none = hn::Eq(x, hn::Zero(kDF));
    hn::StoreU(hn::IfThenZeroElse(none, hn::Mul(by, x)), kDF, to + j);
  }
  for (; j < seen.end; ++j) to[j] = scaled(p[j]);
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_WEIGHTS_INL_H_
