// Promotes storage types (float, bf16, f16, int8) to vectors of float32, and
// demotes them to the first three: rounds to nearest, ties to even; infinities
// remain infinite, and NaN remains NaN. Compiled once per SIMD target.
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
#include <type_traits>

#include "locus/tensor.h"

// Highway's f16 conversions round correctly only where the instruction set
// supports f16.
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

// Calls f.operator()<T>() with the storage type of f32, bf16 or f16.
template <typename F>
HWY_INLINE void WithType(DType dtype, const F& f) {
  if (dtype == DType::kBF16) {
    f.template operator()<hwy::bfloat16_t>();
  } else if (dtype == DType::kF16) {
    f.template operator()<hwy::float16_t>();
  } else {
    f.template operator()<float>();
  }
}

// As WithType, or with the int8 of a cache.
template <typename F>
HWY_INLINE void WithStoredType(DType dtype, const F& f) {
  if (dtype == DType::kI8) {
    f.template operator()<int8_t>();
  } else {
    WithType(dtype, f);
  }
}

// The storage of bf16 and f16 as integers.
template <typename T>
HWY_INLINE auto* BitsOf(T* x) {
  using Bits = std::conditional_t<std::is_const_v<T>, const uint16_t, uint16_t>;
  return reinterpret_cast<Bits*>(x);
}

// Loads one vector of floats from storage.
template <class D>
HWY_INLINE hn::Vec<D> Promote(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> Promote(D d, const hwy::bfloat16_t* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(d16, BitsOf(from)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}
template <class D>
HWY_INLINE hn::Vec<D> Promote(D d, const hwy::float16_t* from) {
  const hn::Rebind<uint16_t, D> d16;
  const auto half = hn::LoadU(d16, BitsOf(from));
#if LOCUS_NATIVE_F16
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, half));
#else
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::PromoteTo(du, half);
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
  const auto rest = hn::And(bits, hn::Set(du, 0x7FFF));
  // The exponent bias changes from 15 to 127, and the top exponent from 31 to
  // 255.
  const auto shifted =
      hn::Add(hn::ShiftLeft<13>(rest), hn::Set(du, 112U << 23));
  const auto top =
      hn::Gt(hn::BitCast(di, rest), hn::BitCast(di, hn::Set(du, 0x7BFF)));
  const auto large = hn::Add(
      shifted,
      hn::IfThenElseZero(hn::RebindMask(du, top), hn::Set(du, 112U << 23)));
  // Subnormals are multiples of 2^-24.
  const auto small = hn::BitCast(
      du,
      hn::Mul(hn::ConvertTo(d, hn::BitCast(di, rest)), hn::Set(d, 0x1p-24F)));
  const auto is_small =
      hn::Lt(hn::BitCast(di, rest), hn::BitCast(di, hn::Set(du, 0x0400)));
  return hn::BitCast(
      d,
      hn::Or(sign, hn::IfThenElse(hn::RebindMask(du, is_small), small, large)));
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> Promote(D d, const int8_t* from) {
  const hn::Rebind<int8_t, D> d8;
  const hn::RebindToSigned<D> di;
  return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, from)));
}

// A number whose upper half is `value` rounded to bf16; the lower half is
// unspecified. NaNs become quiet: the only bits that distinguish a signalling
// NaN from infinity may be in the lower half.
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

// Stores one vector to storage.
template <class D>
HWY_INLINE void Demote(D d, hn::Vec<D> value, float* to) {
  hn::StoreU(value, d, to);
}
template <class D>
HWY_INLINE void Demote(D d, hn::Vec<D> value, hwy::bfloat16_t* to) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToSigned<D> di;
  const auto out = hn::ShiftRight<16>(RoundUpperHalf(d, value));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, out)), d16, BitsOf(to));
}
template <class D>
HWY_INLINE void Demote([[maybe_unused]] D d, hn::Vec<D> value,
                       hwy::float16_t* to) {
  const hn::Rebind<uint16_t, D> d16;
#if LOCUS_NATIVE_F16
  const hn::Rebind<hwy::float16_t, D> df16;
  hn::StoreU(hn::BitCast(d16, hn::DemoteTo(df16, value)), d16, BitsOf(to));
#else
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(du, value);
  const auto is_nan = hn::RebindMask(du, hn::Ne(value, value));
  const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du, 0x80000000U)));
  const auto rest = hn::And(bits, hn::Set(du, 0x7FFFFFFFU));
  // Normal numbers: the exponent bias changes from 127 to 15, and thirteen bits
  // are rounded off; 65520 and above become infinity, 0x7C00.
  const auto odd = hn::And(hn::ShiftRight<13>(rest), hn::Set(du, 1));
  const auto kept = hn::ShiftRight<13>(
      hn::Sub(hn::Add(rest, hn::Add(odd, hn::Set(du, 0xFFF))),
              hn::Set(du, 112U << 23)));
  const auto large = hn::Min(kept, hn::Set(du, 0x7C00));
  // Below 2^-14, adding 0.5 leaves multiples of 2^-24 in the lowest bits,
  // rounded by the addition.
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
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, out)), d16, BitsOf(to));
#endif
}

// Loads and stores two vectors at a time, in the cheapest order for the storage
// type. For bf16 the parts are the even (kPart 0) and the odd (kPart 1)
// elements, which need a shift or a mask instead of a shuffle; for other types
// the first and the second vector.
template <size_t kPart, class D, typename T>
HWY_INLINE hn::Vec<D> PromotePart(D d, const T* from) {
  return Promote(d, from + kPart * hn::Lanes(d));
}
#if HWY_TARGET == HWY_SCALAR  // two vectors are two elements
template <class D>
HWY_INLINE void DemoteParts(D d, hn::Vec<D> even, hn::Vec<D> odd,
                            hwy::bfloat16_t* to) {
  Demote(d, even, to);
  Demote(d, odd, to + 1);
}
#else
template <size_t kPart, class D>
HWY_INLINE hn::Vec<D> PromotePart(D d, const hwy::bfloat16_t* from) {
  const hn::Repartition<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  const auto pairs = hn::BitCast(du, hn::LoadU(d16, BitsOf(from)));
  return hn::BitCast(d, kPart == 0 ? hn::ShiftLeft<16>(pairs)
                                   : hn::And(pairs, hn::Set(du, 0xFFFF0000U)));
}
template <class D>
HWY_INLINE void DemoteParts(D d, hn::Vec<D> even, hn::Vec<D> odd,
                            hwy::bfloat16_t* to) {
  const hn::Repartition<uint16_t, D> d16;
  const auto low = hn::ShiftRight<16>(RoundUpperHalf(d, even));
  const auto high = RoundUpperHalf(d, odd);
  hn::StoreU(hn::OddEven(hn::BitCast(d16, high), hn::BitCast(d16, low)), d16,
             BitsOf(to));
}
#endif

// Deinterleaves two vectors of pairs a, b, a, b, ..., and interleaves them
// again.
template <class D>
HWY_INLINE void PromotePairs(D d, const float* x, hn::Vec<D>& a,
                             hn::Vec<D>& b) {
  hn::LoadInterleaved2(d, x, a, b);
}
template <class D>
HWY_INLINE void PromotePairs(D d, const hwy::bfloat16_t* x, hn::Vec<D>& a,
                             hn::Vec<D>& b) {
  a = PromotePart<0>(d, x);
  b = PromotePart<1>(d, x);
}
template <class D>
HWY_INLINE void PromotePairs(D d, const hwy::float16_t* x, hn::Vec<D>& a,
                             hn::Vec<D>& b) {
  a = Promote(d, x);
  b = Promote(d, x + hn::Lanes(d));
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Vec<D> low = a;
    a = hn::ConcatEven(d, b, low);
    b = hn::ConcatOdd(d, b, low);
  }
#endif
}
template <class D>
HWY_INLINE void DemotePairs(D d, hn::Vec<D> a, hn::Vec<D> b, float* y) {
  hn::StoreInterleaved2(a, b, d, y);
}
template <class D>
HWY_INLINE void DemotePairs(D d, hn::Vec<D> a, hn::Vec<D> b,
                            hwy::bfloat16_t* y) {
  DemoteParts(d, a, b, y);
}

// Copies x [count] into the order of the parts: in every two vectors the even
// elements, then the odd ones. The remainder keeps its order. y may be x.
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

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SIMD_CONVERT_INL_H_
