// Vectors of bf16 and f16 as float32 and back, rounded to nearest, ties to
// even; infinities and NaNs stay what they are. Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_SIMD_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_SIMD_CONVERT_INL_H_
#undef LOCUS_SRC_KERNELS_SIMD_CONVERT_INL_H_
#else
#define LOCUS_SRC_KERNELS_SIMD_CONVERT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "locus/tensor.h"

// Highway's own f16 conversions round only where the instruction set has them.
#undef LOCUS_NATIVE_F16
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define LOCUS_NATIVE_F16 1
#else
#define LOCUS_NATIVE_F16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One vector of float from kType, which is kBF16 or kF16.
template <DType kType, class D>
HWY_INLINE hn::Vec<D> Widen(D d, const uint16_t* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  if constexpr (kType == DType::kBF16) {
    return hn::BitCast(
        d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from))));
  } else {
#if LOCUS_NATIVE_F16
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(d16, from)));
#else
    const hn::RebindToSigned<D> di;
    const auto bits = hn::PromoteTo(du, hn::LoadU(d16, from));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
    const auto rest = hn::And(bits, hn::Set(du, 0x7FFF));
    // Exponents move from bias 15 to 127, and from 31 to 255 at the top.
    const auto shifted =
        hn::Add(hn::ShiftLeft<13>(rest), hn::Set(du, 112U << 23));
    const auto top =
        hn::Gt(hn::BitCast(di, rest), hn::BitCast(di, hn::Set(du, 0x7BFF)));
    const auto large = hn::Add(
        shifted,
        hn::IfThenElseZero(hn::RebindMask(du, top), hn::Set(du, 112U << 23)));
    // Subnormals count units of 2^-24.
    const auto small = hn::BitCast(
        du,
        hn::Mul(hn::ConvertTo(d, hn::BitCast(di, rest)), hn::Set(d, 0x1p-24F)));
    const auto is_small =
        hn::Lt(hn::BitCast(di, rest), hn::BitCast(di, hn::Set(du, 0x0400)));
    return hn::BitCast(
        d, hn::Or(sign,
                  hn::IfThenElse(hn::RebindMask(du, is_small), small, large)));
#endif
  }
}

// A number whose upper half is `value` rounded to bf16; the lower half means
// nothing. A NaN becomes a quiet one: what tells a signalling one from infinity
// may lie in the lower half.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundUpperHalf(D /*d*/,
                                                           hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
  const auto is_number = hn::RebindMask(du, hn::Eq(value, value));
  return hn::IfThenElse(is_number, rounded,
                        hn::Or(bits, hn::Set(du, 0x400000)));
}

// One vector as kType.
template <DType kType, class D>
HWY_INLINE void Narrow(D d, hn::Vec<D> value, uint16_t* to) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToSigned<D> di;
  if constexpr (kType == DType::kBF16) {
    const auto out = hn::ShiftRight<16>(RoundUpperHalf(d, value));
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, out)), d16, to);
  } else {
#if LOCUS_NATIVE_F16
    const hn::Rebind<hwy::float16_t, D> df16;
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(df16, value)), d16, to);
#else
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, value);
    const auto is_nan = hn::RebindMask(du, hn::Ne(value, value));
    const auto sign =
        hn::ShiftRight<16>(hn::And(bits, hn::Set(du, 0x80000000U)));
    const auto rest = hn::And(bits, hn::Set(du, 0x7FFFFFFFU));
    // Normal numbers: the exponent moves from bias 127 to 15, and thirteen bits
    // are rounded away; what passes 65520 becomes infinity, 0x7C00.
    const auto odd = hn::And(hn::ShiftRight<13>(rest), hn::Set(du, 1));
    const auto kept = hn::ShiftRight<13>(
        hn::Sub(hn::Add(rest, hn::Add(odd, hn::Set(du, 0xFFF))),
                hn::Set(du, 112U << 23)));
    const auto large = hn::Min(kept, hn::Set(du, 0x7C00));
    // Below 2^-14, adding 0.5 leaves units of 2^-24 in the lowest bits, rounded
    // by the addition.
    const auto half = hn::Set(d, 0.5F);
    const auto small =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, rest), half)),
                hn::BitCast(du, half));
    const auto is_small =
        hn::Lt(hn::BitCast(di, rest), hn::BitCast(di, hn::Set(du, 113U << 23)));
    const auto finite =
        hn::IfThenElse(hn::RebindMask(du, is_small), small, large);
    const auto out =
        hn::Or(sign, hn::IfThenElse(is_nan, hn::Set(du, 0x7E00), finite));
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, out)), d16, to);
#endif
  }
}

// Two vectors of bf16 at a time, as their even (kPart 0) and odd (kPart 1)
// elements: a shift or a mask does what takes a shuffle in Widen and Narrow.
#if HWY_TARGET == HWY_SCALAR  // two vectors are two elements
template <size_t kPart, class D>
HWY_INLINE hn::Vec<D> WidenPart(D d, const uint16_t* from) {
  return Widen<DType::kBF16>(d, from + kPart);
}
template <class D>
HWY_INLINE void NarrowParts(D d, hn::Vec<D> even, hn::Vec<D> odd,
                            uint16_t* to) {
  Narrow<DType::kBF16>(d, even, to);
  Narrow<DType::kBF16>(d, odd, to + 1);
}
#else
template <size_t kPart, class D>
HWY_INLINE hn::Vec<D> WidenPart(D d, const uint16_t* from) {
  const hn::Repartition<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  const auto pairs = hn::BitCast(du, hn::LoadU(d16, from));
  return hn::BitCast(d, kPart == 0 ? hn::ShiftLeft<16>(pairs)
                                   : hn::And(pairs, hn::Set(du, 0xFFFF0000U)));
}
template <class D>
HWY_INLINE void NarrowParts(D d, hn::Vec<D> even, hn::Vec<D> odd,
                            uint16_t* to) {
  const hn::Repartition<uint16_t, D> d16;
  const auto low = hn::ShiftRight<16>(RoundUpperHalf(d, even));
  const auto high = RoundUpperHalf(d, odd);
  hn::StoreU(hn::OddEven(hn::BitCast(d16, high), hn::BitCast(d16, low)), d16,
             to);
}
#endif

// Copies x [count] into the order of the parts: of each two vectors the even
// elements, then the odd ones. A rest stays as it is. In place, if y is x.
template <class D>
HWY_INLINE void ToPartOrder(D d, const float* x, int64_t count, float* y) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t n = 0;
  for (; n + 2 * lanes <= count; n += 2 * lanes) {
    hn::Vec<D> even, odd;
    hn::LoadInterleaved2(d, x + n, even, odd);
    hn::StoreU(even, d, y + n);
    hn::StoreU(odd, d, y + n + lanes);
  }
  if (x != y) std::copy(x + n, x + count, y + n);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SIMD_CONVERT_INL_H_
