// Pairs of a row turned in vectors:
//   (a, b) -> (a cos - b sin, b cos + a sin)
// Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_ROTARY_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_ROTARY_PAIRS_INL_H_
#undef LOCUS_SRC_KERNELS_ROTARY_PAIRS_INL_H_
#else
#define LOCUS_SRC_KERNELS_ROTARY_PAIRS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/simd/convert-inl.h"
#include "locus/terms.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One vector, whatever the storage.
template <DType kType, class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const float* x) {
  static_assert(kType == DType::kF32);
  return hn::LoadU(d, x);
}
template <DType kType, class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const uint16_t* x) {
  return Widen<kType>(d, x);
}
template <DType kType, class D>
HWY_INLINE void StoreAs(D d, hn::Vec<D> v, float* y) {
  static_assert(kType == DType::kF32);
  hn::StoreU(v, d, y);
}
template <DType kType, class D>
HWY_INLINE void StoreAs(D d, hn::Vec<D> v, uint16_t* y) {
  Narrow<kType>(d, v, y);
}

// A place to store around the caches: whole vectors, on their own boundaries.
// What is written so is there for other threads after hwy::FlushStream.
struct Around {
  Around operator+(int64_t n) const { return {to + n}; }
  float* to;
};
template <DType kType, class D>
HWY_INLINE void StoreAs(D d, hn::Vec<D> v, Around y) {
  hn::Stream(v, d, y.to);
}

// Pairs a, b, a, b ... taken apart and put together again.
template <DType kType, class D>
HWY_INLINE void LoadPairsAs(D d, const float* x, hn::Vec<D>& a, hn::Vec<D>& b) {
  static_assert(kType == DType::kF32);
  hn::LoadInterleaved2(d, x, a, b);
}
template <DType kType, class D>
HWY_INLINE void LoadPairsAs(D d, const uint16_t* x, hn::Vec<D>& a,
                            hn::Vec<D>& b) {
  static_assert(kType == DType::kBF16);
  a = WidenPart<0>(d, x);
  b = WidenPart<1>(d, x);
}
template <DType kType, class D>
HWY_INLINE void StorePairsAs(D d, hn::Vec<D> a, hn::Vec<D> b, float* y) {
  static_assert(kType == DType::kF32);
  hn::StoreInterleaved2(a, b, d, y);
}
template <DType kType, class D>
HWY_INLINE void StorePairsAs(D d, hn::Vec<D> a, hn::Vec<D> b, uint16_t* y) {
  static_assert(kType == DType::kBF16);
  NarrowParts(d, a, b, y);
}

template <DType kType, class D>
HWY_INLINE void StorePairsAs(D d, hn::Vec<D> a, hn::Vec<D> b, Around y) {
  HWY_ALIGN float both[2 * HWY_LANES(float)];
  hn::StoreInterleaved2(a, b, d, both);
  hn::Stream(hn::Load(d, both), d, y.to);
  hn::Stream(hn::Load(d, both + hn::Lanes(d)), d, y.to + hn::Lanes(d));
}

// A vector of pairs, turned by cos and sin [pairs].
template <bool kBack, class D>
HWY_INLINE void TurnVectors(D d, const float* cos, const float* sin,
                            hn::Vec<D>& a, hn::Vec<D>& b) {
  const auto c = hn::LoadU(d, cos);
  const auto s = hn::LoadU(d, sin);
  const auto ac = hn::Mul(a, c);
  const auto bc = hn::Mul(b, c);
  const auto u = kBack ? hn::MulAdd(b, s, ac) : hn::NegMulAdd(b, s, ac);
  b = kBack ? hn::NegMulAdd(a, s, bc) : hn::MulAdd(a, s, bc);
  a = u;
}

// Spans turn pairs [p, pairs) as far as whole vectors of D reach and return the
// first pair left. A pair has the same bits in every span: a product, then a
// multiply-add. x and y may be the same row.

// Channels a at x, b at x + pairs.
template <DType kType, bool kBack, class D, typename T, typename To>
HWY_INLINE int64_t HalvesSpan(D d, const T* x, const float* cos,
                              const float* sin, int64_t p, int64_t pairs,
                              To y) {
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  for (; p + step <= pairs; p += step) {
    auto a = LoadAs<kType>(d, x + p);
    auto b = LoadAs<kType>(d, x + pairs + p);
    TurnVectors<kBack>(d, cos + p, sin + p, a, b);
    StoreAs<kType>(d, a, y + p);
    StoreAs<kType>(d, b, y + pairs + p);
  }
  return p;
}

// The same for bf16, two vectors at a time, by tables in ToPartOrder.
template <class D>
HWY_INLINE int64_t HalvesPartsSpan(D d, const uint16_t* x, const float* cos,
                                   const float* sin, int64_t pairs,
                                   uint16_t* y) {
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  int64_t p = 0;
  for (; p + 2 * step <= pairs; p += 2 * step) {
    auto a0 = WidenPart<0>(d, x + p), a1 = WidenPart<1>(d, x + p);
    auto b0 = WidenPart<0>(d, x + pairs + p),
         b1 = WidenPart<1>(d, x + pairs + p);
    TurnVectors</*kBack=*/false>(d, cos + p, sin + p, a0, b0);
    TurnVectors</*kBack=*/false>(d, cos + p + step, sin + p + step, a1, b1);
    NarrowParts(d, a0, a1, y + p);
    NarrowParts(d, b0, b1, y + pairs + p);
  }
  return p;
}

// Channels a, b, a, b ... of floats or bf16.
template <DType kType, bool kBack, class D, typename T, typename To>
HWY_INLINE int64_t InterleavedSpan(D d, const T* x, const float* cos,
                                   const float* sin, int64_t p, int64_t pairs,
                                   To y) {
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  for (; p + step <= pairs; p += step) {
    hn::Vec<D> a, b;
    LoadPairsAs<kType>(d, x + 2 * p, a, b);
    TurnVectors<kBack>(d, cos + p, sin + p, a, b);
    StorePairsAs<kType>(d, a, b, y + 2 * p);
  }
  return p;
}

// The same by tables as long as the row, cos, cos and -sin, sin for a pair:
// (a, b) * (cos, cos) + (b, a) * (-sin, sin). One shuffle instead of six.
#if HWY_TARGET != HWY_SCALAR  // which has no two lanes
template <DType kType, class D, typename T>
HWY_INLINE int64_t SwapSpan(D d, const T* x, const float* cos, const float* sin,
                            int64_t p, int64_t pairs, T* y) {
  const int64_t step = static_cast<int64_t>(hn::Lanes(d)) / 2;
  for (; p + step <= pairs; p += step) {
    const auto ab = LoadAs<kType>(d, x + 2 * p);
    const auto abc = hn::Mul(ab, hn::LoadU(d, cos + 2 * p));
    const auto ba = hn::Reverse2(d, ab);
    StoreAs<kType>(d, hn::MulAdd(ba, hn::LoadU(d, sin + 2 * p), abc),
                   y + 2 * p);
  }
  return p;
}
#endif

// One pair: where vectors do not reach.
template <DType kType, typename T>
HWY_INLINE void SwapPair(const T* x, const float* cos, const float* sin, T* y) {
  const hn::CappedTag<float, 1> d;
  const auto a = LoadAs<kType>(d, x);
  const auto b = LoadAs<kType>(d, x + 1);
  const auto ac = hn::Mul(a, hn::LoadU(d, cos));
  const auto bc = hn::Mul(b, hn::LoadU(d, cos + 1));
  StoreAs<kType>(d, hn::MulAdd(b, hn::LoadU(d, sin), ac), y);
  StoreAs<kType>(d, hn::MulAdd(a, hn::LoadU(d, sin + 1), bc), y + 1);
}

template <DType kType, bool kBack, typename T, typename To>
HWY_INLINE void TurnHalves(const T* x, const float* cos, const float* sin,
                           int64_t first, int64_t pairs, To y) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 4> d4;
  const hn::CappedTag<float, 1> d1;
  int64_t p = HalvesSpan<kType, kBack>(d, x, cos, sin, first, pairs, y);
  p = HalvesSpan<kType, kBack>(d4, x, cos, sin, p, pairs, y);
  HalvesSpan<kType, kBack>(d1, x, cos, sin, p, pairs, y);
}

HWY_INLINE void TurnHalvesParts(const uint16_t* x, const float* cos,
                                const float* sin, int64_t pairs, uint16_t* y) {
  const hn::ScalableTag<float> d;
  const int64_t p = HalvesPartsSpan(d, x, cos, sin, pairs, y);
  TurnHalves<DType::kBF16, /*kBack=*/false>(x, cos, sin, p, pairs, y);
}

template <DType kType, bool kBack, typename T, typename To>
HWY_INLINE void TurnInterleaved(const T* x, const float* cos, const float* sin,
                                int64_t pairs, To y) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 4> d4;
  const hn::CappedTag<float, 1> d1;
  int64_t p = InterleavedSpan<kType, kBack>(d, x, cos, sin, 0, pairs, y);
  p = InterleavedSpan<kType, kBack>(d4, x, cos, sin, p, pairs, y);
  InterleavedSpan<kType, kBack>(d1, x, cos, sin, p, pairs, y);
}

template <DType kType, typename T>
HWY_INLINE void TurnSwapped(const T* x, const float* cos, const float* sin,
                            int64_t pairs, T* y) {
  int64_t p = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 4> d4;
  p = SwapSpan<kType>(d, x, cos, sin, p, pairs, y);
  p = SwapSpan<kType>(d4, x, cos, sin, p, pairs, y);
#endif
  for (; p < pairs; ++p) {
    SwapPair<kType>(x + 2 * p, cos + 2 * p, sin + 2 * p, y + 2 * p);
  }
}

// Rotates the 2 * pairs channels at x by cos and sin [pairs]; `back` gives the
// transpose, for gradients. The same bits as locus::RotateInPlace.
HWY_INLINE void RotateRowInPlace(float* x, const float* cos, const float* sin,
                                 int64_t pairs, PairLayout layout, bool back) {
  if (layout == PairLayout::kHalves) {
    back ? TurnHalves<DType::kF32, true>(x, cos, sin, 0, pairs, x)
         : TurnHalves<DType::kF32, false>(x, cos, sin, 0, pairs, x);
  } else {
    back ? TurnInterleaved<DType::kF32, true>(x, cos, sin, pairs, x)
         : TurnInterleaved<DType::kF32, false>(x, cos, sin, pairs, x);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_ROTARY_PAIRS_INL_H_
