// The softmax of rows of at most four scores, several rows to a vector.
// Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_TERMS_SOFTMAX_BLOCKS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_SOFTMAX_BLOCKS_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_SOFTMAX_BLOCKS_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_SOFTMAX_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/terms/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// Rows of scores lie this far apart.
constexpr int64_t kBlockKeys = std::min<int64_t>(kLanesI, 4);

// The scores of kR such rows, in whole vectors.
template <size_t kR>
constexpr size_t kBlockScores = std::max(kR* static_cast<size_t>(kBlockKeys),
                                         kLanes);

// The greatest and the sum of each block of four lanes, in each of its lanes.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE VF BlockMax(VF x) { return x; }
HWY_INLINE VF BlockSum(VF x) { return x; }
#else
HWY_INLINE VF BlockMax(VF x) {
  x = hn::Max(x, hn::Shuffle2301(x));
  return hn::Max(x, hn::Shuffle1032(x));
}
HWY_INLINE VF BlockSum(VF x) {
  x = hn::Add(x, hn::Shuffle2301(x));
  return hn::Add(x, hn::Shuffle1032(x));
}
#endif

// SoftmaxBlocks of any scores, row by row.
template <size_t kR>
HWY_NOINLINE void UnusualSoftmaxBlocks(float* scores, int64_t keys,
                                       RowState* states) {
  for (size_t r = 0; r < kR; ++r) {
    // A row is written in whole vectors.
    HWY_ALIGN float row[kLanes] = {};
    std::copy_n(scores + r * kBlockKeys, keys, row);
    states[r] = RowState();
    OnlineSoftmaxRow(row, keys, RowMax(row, keys), states[r]);
    std::copy_n(row, keys, scores + r * kBlockKeys);
  }
}

// Turns `keys` scores in each of kR rows into weights, and sets their states.
// One exponential serves as many rows as a vector holds.
template <size_t kR>
HWY_INLINE void SoftmaxBlocks(float* HWY_RESTRICT scores, int64_t keys,
                              RowState* states) {
  constexpr size_t kScores = kBlockScores<kR>;
  constexpr size_t kBlock = static_cast<size_t>(kBlockKeys);
  const hn::RebindToSigned<DF> di;
  const auto key = hn::And(hn::Iota(di, 0), hn::Set(di, kBlockKeys - 1));
  const auto present =
      hn::RebindMask(kDF, hn::Lt(key, hn::Set(di, static_cast<int32_t>(keys))));
  HWY_ALIGN float refs[kScores];
  HWY_ALIGN float sums[kScores];
  bool usual = true;
  for (size_t n = 0; n < kScores; n += kLanes) {
    const VF x = hn::IfThenElse(present, hn::Load(kDF, scores + n),
                                hn::Set(kDF, kMinusInf));
    const VF ref = hn::Ceil(BlockMax(x));
    usual &=
        hn::AllTrue(kDF, hn::Le(hn::Abs(ref), hn::Set(kDF, kLargestReference)));
    hn::Store(ref, kDF, refs + n);
  }
  if (!usual) return UnusualSoftmaxBlocks<kR>(scores, keys, states);
  for (size_t n = 0; n < kScores; n += kLanes) {
    const VF p = hn::IfThenElseZero(
        present, Exp2(hn::Load(kDF, scores + n),
                      Exp2Reference(hn::Load(kDF, refs + n))));
    hn::Store(BlockSum(p), kDF, sums + n);
    hn::Store(p, kDF, scores + n);
  }
  for (size_t r = 0; r < kR; ++r) {
    states[r] = {.ref = refs[r * kBlock], .sum = sums[r * kBlock]};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_SOFTMAX_BLOCKS_INL_H_
