// Rotates the pairs of one row with SIMD:
//   (a, b) -> (a cos - b sin, b cos + a sin)
// The bits for a pair do not depend on the vectors and tables that it is
// rotated with: it is always a product, then a multiply-add. Compiled once per
// SIMD target.
#if defined(LOCUS_SRC_KERNELS_ROTARY_ROTATE_ROW_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_ROTARY_ROTATE_ROW_INL_H_
#undef LOCUS_SRC_KERNELS_ROTARY_ROTATE_ROW_INL_H_
#else
#define LOCUS_SRC_KERNELS_ROTARY_ROTATE_ROW_INL_H_
#endif

#include <cstdint>

#include "kernels/rotary/angles.h"
#include "kernels/simd/convert-inl.h"
#include "locus/terms.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// A destination for non-temporal stores of whole, aligned vectors. Other
// threads see them after hwy::FlushStream.
struct Streamed {
  Streamed operator+(int64_t n) const { return {to + n}; }
  float* to;
};
template <class D>
HWY_INLINE void Demote(D d, hn::Vec<D> v, Streamed y) {
  hn::Stream(v, d, y.to);
}
template <class D>
HWY_INLINE void DemotePairs(D d, hn::Vec<D> a, hn::Vec<D> b, Streamed y) {
  HWY_ALIGN float both[2 * HWY_LANES(float)];
  hn::StoreInterleaved2(a, b, d, both);
  hn::Stream(hn::Load(d, both), d, y.to);
  hn::Stream(hn::Load(d, both + hn::Lanes(d)), d, y.to + hn::Lanes(d));
}

// Rotates a vector of pairs by cos and sin [pairs]; kBack: by the transpose.
template <bool kBack, class D>
HWY_INLINE void RotateVectors(D d, const float* cos, const float* sin,
                              hn::Vec<D>& a, hn::Vec<D>& b) {
  const auto c = hn::LoadU(d, cos);
  const auto s = hn::LoadU(d, sin);
  const auto ac = hn::Mul(a, c);
  const auto bc = hn::Mul(b, c);
  const auto u = kBack ? hn::MulAdd(b, s, ac) : hn::NegMulAdd(b, s, ac);
  b = kBack ? hn::NegMulAdd(a, s, bc) : hn::MulAdd(a, s, bc);
  a = u;
}

// Rotates pairs [p, pairs) of x into y, which may be x, in whole vectors of D;
// returns the first pair left.
template <PairLayout kLayout, bool kBack, class D, typename From, typename To>
HWY_INLINE int64_t RotateSpan(D d, const From* x, const float* cos,
                              const float* sin, int64_t p, int64_t pairs,
                              To y) {
  constexpr bool kHalves = kLayout == PairLayout::kHalves;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  for (; p + step <= pairs; p += step) {
    hn::Vec<D> a, b;
    if constexpr (kHalves) {
      a = Promote(d, x + p);
      b = Promote(d, x + pairs + p);
    } else {
      PromotePairs(d, x + 2 * p, a, b);
    }
    RotateVectors<kBack>(d, cos + p, sin + p, a, b);
    if constexpr (kHalves) {
      Demote(d, a, y + p);
      Demote(d, b, y + pairs + p);
    } else {
      DemotePairs(d, a, b, y + 2 * p);
    }
  }
  return p;
}

// The remainder after whole vectors. Not inlined, since rows usually have none.
template <PairLayout kLayout, bool kBack, typename From, typename To>
HWY_NOINLINE void RotateRest(const From* x, const float* cos, const float* sin,
                             int64_t p, int64_t pairs, To y) {
  const hn::CappedTag<float, 4> d4;
  const hn::CappedTag<float, 1> d1;
  p = RotateSpan<kLayout, kBack>(d4, x, cos, sin, p, pairs, y);
  RotateSpan<kLayout, kBack>(d1, x, cos, sin, p, pairs, y);
}

// Rotates the 2 * pairs channels at x, from pair p on.
template <PairLayout kLayout, bool kBack = false, typename From, typename To>
HWY_INLINE void RotateChannels(const From* x, const float* cos,
                               const float* sin, int64_t p, int64_t pairs,
                               To y) {
  const hn::ScalableTag<float> d;
  p = RotateSpan<kLayout, kBack>(d, x, cos, sin, p, pairs, y);
  if (p < pairs) RotateRest<kLayout, kBack>(x, cos, sin, p, pairs, y);
}

// RotateChannels for bf16 in layout kHalves, two vectors at a time, with tables
// in ToPartOrder.
HWY_INLINE void RotateParts(const hwy::bfloat16_t* x, const float* cos,
                            const float* sin, int64_t pairs,
                            hwy::bfloat16_t* y) {
  const hn::ScalableTag<float> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  int64_t p = 0;
  for (; p + 2 * step <= pairs; p += 2 * step) {
    auto a0 = PromotePart<0>(d, x + p), a1 = PromotePart<1>(d, x + p);
    auto b0 = PromotePart<0>(d, x + pairs + p),
         b1 = PromotePart<1>(d, x + pairs + p);
    RotateVectors</*kBack=*/false>(d, cos + p, sin + p, a0, b0);
    RotateVectors</*kBack=*/false>(d, cos + p + step, sin + p + step, a1, b1);
    DemoteParts(d, a0, a1, y + p);
    DemoteParts(d, b0, b1, y + pairs + p);
  }
  RotateChannels<PairLayout::kHalves>(x, cos, sin, p, pairs, y);
}

// RotateChannels for interleaved pairs, with tables of the row's length that
// hold (cos, cos) and (-sin, sin) per pair: (a, b) * (cos, cos) + (b, a) *
// (-sin, sin). One shuffle instead of six.
#if HWY_TARGET != HWY_SCALAR  // its vectors have a single lane
template <class D, typename T>
HWY_INLINE int64_t SwapSpan(D d, const T* x, const float* cos, const float* sin,
                            int64_t p, int64_t pairs, T* y) {
  const int64_t step = static_cast<int64_t>(hn::Lanes(d)) / 2;
  for (; p + step <= pairs; p += step) {
    const auto ab = Promote(d, x + 2 * p);
    const auto abc = hn::Mul(ab, hn::LoadU(d, cos + 2 * p));
    const auto ba = hn::Reverse2(d, ab);
    Demote(d, hn::MulAdd(ba, hn::LoadU(d, sin + 2 * p), abc), y + 2 * p);
  }
  return p;
}
#endif
template <typename T>
HWY_INLINE void RotateSwapped(const T* x, const float* cos, const float* sin,
                              int64_t pairs, T* y) {
  int64_t p = 0;
#if HWY_TARGET != HWY_SCALAR
  p = SwapSpan(hn::ScalableTag<float>(), x, cos, sin, p, pairs, y);
  p = SwapSpan(hn::CappedTag<float, 4>(), x, cos, sin, p, pairs, y);
#endif
  const hn::CappedTag<float, 1> d;
  for (int64_t n = 2 * p; n < 2 * pairs; n += 2) {
    const auto a = Promote(d, x + n), b = Promote(d, x + n + 1);
    const auto ac = hn::Mul(a, hn::LoadU(d, cos + n));
    const auto bc = hn::Mul(b, hn::LoadU(d, cos + n + 1));
    Demote(d, hn::MulAdd(b, hn::LoadU(d, sin + n), ac), y + n);
    Demote(d, hn::MulAdd(a, hn::LoadU(d, sin + n + 1), bc), y + n + 1);
  }
}

// Rotates the rotary channels of row x by cos and sin [pairs] into row y, which
// may be x; other channels of y are not written. `back` applies the transpose,
// for gradients. Bitwise equal to locus::Rotate.
template <typename T>
HWY_INLINE void RotateRow(const Rotation& rotation, const float* cos,
                          const float* sin, const T* x, float* y,
                          bool back = false) {
  constexpr PairLayout kHalves = PairLayout::kHalves,
                       kInterleaved = PairLayout::kInterleaved;
  const int64_t pairs = rotation.NumPairs();
  x += rotation.first_channel;
  y += rotation.first_channel;
  if (rotation.layout == kHalves) {
    back ? RotateChannels<kHalves, true>(x, cos, sin, 0, pairs, y)
         : RotateChannels<kHalves, false>(x, cos, sin, 0, pairs, y);
  } else {
    back ? RotateChannels<kInterleaved, true>(x, cos, sin, 0, pairs, y)
         : RotateChannels<kInterleaved, false>(x, cos, sin, 0, pairs, y);
  }
}

// RotateRow for rows in which every channel rotates, in whole vectors. Without
// the code for a remainder, whose stores could alias anything, a loop over rows
// keeps its pointers in registers: 4 % of the time of decoding that rotates
// keys as it reads them.
template <typename T>
HWY_INLINE void RotateWholeRow(const Rotation& rotation, const float* cos,
                               const float* sin, const T* x, float* y) {
  const hn::ScalableTag<float> d;
  const int64_t pairs = rotation.NumPairs();
  if (rotation.layout == PairLayout::kHalves) {
    RotateSpan<PairLayout::kHalves, false>(d, x, cos, sin, 0, pairs, y);
  } else {
    RotateSpan<PairLayout::kInterleaved, false>(d, x, cos, sin, 0, pairs, y);
  }
}

// RotateRow in place, by a row of a table.
inline void RotateRow(const Rotation& rotation,
                      const kernels::RotationTable& table, int64_t row,
                      float* x, bool back = false) {
  const int64_t at = row * rotation.NumPairs();
  RotateRow(rotation, table.cos.data() + at, table.sin.data() + at, x, x, back);
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_ROTARY_ROTATE_ROW_INL_H_
