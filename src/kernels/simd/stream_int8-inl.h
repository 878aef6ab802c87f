// Products with int8 rows by integer multiply-adds, which process twice as many
// elements as those of floats and need no conversion. Queries and weights
// become int16, relative to the largest element of a query and of 32 weights:
// their error, 2^-16 of that, is small next to the 2^-8 of the rows. Compiled
// once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_SIMD_STREAM_INT8_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_SIMD_STREAM_INT8_INL_H_
#undef LOCUS_SRC_KERNELS_SIMD_STREAM_INT8_INL_H_
#else
#define LOCUS_SRC_KERNELS_SIMD_STREAM_INT8_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/simd/stream-inl.h"

// Only x86 has a pairwise product that keeps the order of pairs; elsewhere, and
// with Highway's emulated vectors, rows are converted to floats.
#undef LOCUS_INT8_PRODUCTS
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define LOCUS_INT8_PRODUCTS 1
#else
#define LOCUS_INT8_PRODUCTS 0
#endif
#undef LOCUS_FUSED_PAIRS
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3 && \
    (HWY_COMPILER_GCC_ACTUAL || HWY_COMPILER_CLANG)
#define LOCUS_FUSED_PAIRS 1
#else
#define LOCUS_FUSED_PAIRS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

// Whether rows can be multiplied as integers: whole pairs of vectors, and at
// most 2048 elements, so that no int32 sum overflows: a lane sums at most 2048
// / 8 pairs of products below 127 * 32767.
inline bool IntegerProducts(const Rows& rows) {
  return LOCUS_INT8_PRODUCTS != 0 && rows.dtype() == DType::kI8 &&
         rows.dim() % kPaired == 0 && rows.dim() <= 2048;
}

// Quantizes x [count] to integers from -32767 to 32767 and returns their scale,
// which is NaN unless all are finite.
inline float QuantizeInt16(const float* x, int64_t count, int16_t* to) {
  float most = 0.0F;
  bool finite = true;
  for (int64_t d = 0; d < count; ++d) {
    finite = finite && std::isfinite(x[d]);
    most = std::max(most, std::abs(x[d]));
  }
  if (!finite) {
    std::fill_n(to, count, int16_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float scale =
      std::max(most / 32767.0F, std::numeric_limits<float>::min());
  for (int64_t d = 0; d < count; ++d) {
    to[d] = static_cast<int16_t>(std::nearbyint(x[d] / scale));
  }
  return scale;
}

// Whether the CPU multiplies pairs and adds them to a sum in one instruction
// (AVX-512 VNNI).
inline bool FusesPairs() {
#if LOCUS_FUSED_PAIRS
  return __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

// Calls f with std::true_type if pairs are fused, else with std::false_type.
template <typename F>
HWY_INLINE void WithPairs([[maybe_unused]] bool fused, const F& f) {
#if LOCUS_FUSED_PAIRS
  if (fused) return f(std::true_type());
#endif
  f(std::false_type());
}

#if LOCUS_INT8_PRODUCTS

using DI32 = hn::RebindToSigned<DF>;
using DI16 = hn::Repartition<int16_t, DF>;
using VI32 = hn::Vec<DI32>;
using VI16 = hn::Vec<DI16>;
constexpr DI32 kDI32;
constexpr DI16 kDI16;

// The products of a and b, added pairwise.
HWY_INLINE VI32 Pairs(VI16 a, VI16 b) {
  VI32 unused = hn::Zero(kDI32);
  return hn::ReorderWidenMulAccumulate(kDI32, a, b, unused, unused);
}

// sum += Pairs(a, b), in one instruction if kFused; no sum overflows, so both
// give the same bits. In asm for the same reason as MulAddInto: g++ would move
// every sum to another register and back, and spill one.
template <bool kFused>
HWY_INLINE void AddPairs(VI16 a, VI16 b, VI32& sum) {
#if LOCUS_FUSED_PAIRS
  if constexpr (kFused) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return;
  }
#endif
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX2 && \
    (HWY_COMPILER_GCC_ACTUAL || HWY_COMPILER_CLANG)
  const VI32 pairs = Pairs(a, b);
  asm("vpaddd %1, %0, %0" : "+v"(sum.raw) : "v"(pairs.raw));
#else
  sum = hn::Add(sum, Pairs(a, b));
#endif
}

// StoreDots for integers.
template <size_t kR, size_t kK>
HWY_INLINE void StoreIntegerDots(const VI32 (&acc)[kR][kK],
                                 float* HWY_RESTRICT s, int64_t lds) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (kR == 4 && kK == 4) {
    // First the sums of a row with four keys within each block, then across
    // blocks.
    const hn::Repartition<uint64_t, DF> du;
    VI32 rows[4];
#pragma GCC unroll 4
    for (size_t r = 0; r < 4; ++r) {
      const VI32 ab = hn::Add(hn::InterleaveLower(kDI32, acc[r][0], acc[r][1]),
                              hn::InterleaveUpper(kDI32, acc[r][0], acc[r][1]));
      const VI32 ce = hn::Add(hn::InterleaveLower(kDI32, acc[r][2], acc[r][3]),
                              hn::InterleaveUpper(kDI32, acc[r][2], acc[r][3]));
      const auto ab2 = hn::BitCast(du, ab), ce2 = hn::BitCast(du, ce);
      rows[r] = hn::Add(hn::BitCast(kDI32, hn::InterleaveLower(du, ab2, ce2)),
                        hn::BitCast(kDI32, hn::InterleaveUpper(du, ab2, ce2)));
    }
    const auto halves = [](VI32 a, VI32 b) HWY_ATTR {
      return hn::Add(hn::ConcatLowerLower(kDI32, b, a),
                     hn::ConcatUpperUpper(kDI32, b, a));
    };
    const VI32 x = halves(rows[0], rows[1]), y = halves(rows[2], rows[3]);
    const __m512 all = _mm512_cvtepi32_ps(
        _mm512_add_epi32(_mm512_shuffle_i32x4(x.raw, y.raw, 0x88),
                         _mm512_shuffle_i32x4(x.raw, y.raw, 0xDD)));
    _mm_storeu_ps(s, _mm512_castps512_ps128(all));
    _mm_storeu_ps(s + lds, _mm512_extractf32x4_ps(all, 1));
    _mm_storeu_ps(s + 2 * lds, _mm512_extractf32x4_ps(all, 2));
    _mm_storeu_ps(s + 3 * lds, _mm512_extractf32x4_ps(all, 3));
    return;
  }
#endif
  VF sums[kR][kK];
#pragma GCC unroll 4
  for (size_t r = 0; r < kR; ++r) {
#pragma GCC unroll 4
    for (size_t n = 0; n < kK; ++n) sums[r][n] = hn::ConvertTo(kDF, acc[r][n]);
  }
  StoreDots<kR, kK>(sums, s, lds);
}

// DotKeys for integers.
template <bool kFused, size_t kR, size_t kK, bool kPrefetch>
HWY_INLINE void DotIntegerKeys(const int8_t* const (&keys)[kK],
                               const int16_t* HWY_RESTRICT q, int64_t ldq,
                               int64_t depth, int64_t far, int64_t near,
                               float* HWY_RESTRICT s, int64_t lds) {
  const hn::Rebind<int8_t, DI16> d8;
  VI32 acc[kR][kK];
#pragma GCC unroll 4
  for (size_t r = 0; r < kR; ++r) {
#pragma GCC unroll 4
    for (size_t n = 0; n < kK; ++n) acc[r][n] = hn::Zero(kDI32);
  }
  for (int64_t d = 0; d < depth; d += kPaired) {
    if (kPrefetch && d % kLineOf<int8_t> == 0) {
#pragma GCC unroll 4
      for (size_t n = 0; n < kK; ++n)
        PrefetchVectors<2>(keys[n] + d, far, near);
    }
    VI16 x[kK];
#pragma GCC unroll 4
    for (size_t n = 0; n < kK; ++n) {
      x[n] = hn::PromoteTo(kDI16, hn::LoadU(d8, keys[n] + d));
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < kR; ++r) {
      const VI16 y = hn::LoadU(kDI16, q + static_cast<int64_t>(r) * ldq + d);
#pragma GCC unroll 4
      for (size_t n = 0; n < kK; ++n) {
        AddPairs<kFused>(x[n], y, acc[r][n]);
      }
    }
  }
  StoreIntegerDots<kR, kK>(acc, s, lds);
}

template <bool kFused>
struct ByIntegers {
  template <size_t kR, size_t kK, bool kPrefetch>
  static HWY_INLINE void Dot(const int8_t* const (&keys)[kK],
                             const int16_t* HWY_RESTRICT q, int64_t ldq,
                             int64_t depth, int64_t far, int64_t near,
                             float* HWY_RESTRICT s, int64_t lds) {
    DotIntegerKeys<kFused, kR, kK, kPrefetch>(keys, q, ldq, depth, far, near, s,
                                              lds);
  }
};

// Quantizes weights p [count] of at most kKeysInL1 keys, none negative, to
// int16, zero-padded to kKeysInL1, and returns their scale, which is NaN unless
// all are finite.
HWY_INLINE float QuantizeWeights(const float* p, int64_t count, int16_t* to) {
  const hn::Rebind<int16_t, DF> half;
  float rest[kKeysInL1];
  const float* x = p;
  if (count < kKeysInL1) {
    std::fill(std::copy_n(p, count, rest), rest + kKeysInL1, 0.0F);
    x = rest;
  }
  // As bits, NaN is larger than infinity, and infinity than any number.
  const VI32 magnitude = hn::Set(kDI32, 0x7FFFFFFF);
  VI32 most = hn::Zero(kDI32);
  for (int64_t j = 0; j < kKeysInL1; j += kLanesI) {
    const VI32 bits = hn::BitCast(kDI32, hn::LoadU(kDF, x + j));
    most = hn::Max(most, hn::And(bits, magnitude));
  }
  const float largest =
      std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(kDI32, most)));
  if (!(largest < std::numeric_limits<float>::infinity())) {
    std::fill_n(to, kKeysInL1, int16_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  // Smaller weights would not change a result, and this one has a finite
  // inverse.
  const float safe = std::max(largest, 1e-30F);
  const VF inverse = hn::Set(kDF, 32767.0F / safe);
  for (int64_t j = 0; j < kKeysInL1; j += kLanesI) {
    const VF scaled = hn::Mul(inverse, hn::LoadU(kDF, x + j));
    hn::StoreU(hn::DemoteTo(half, hn::NearestInt(scaled)), half, to + j);
  }
  return safe / 32767.0F;
}

// Loads two vectors of channels of two rows as pairs a_0, b_0, a_1, b_1, ...
template <class D>
HWY_INLINE void LoadPairs(D d16, const int8_t* a, const int8_t* b,
                          hn::Vec<D>& x0, hn::Vec<D>& x1) {
  if constexpr (hn::MaxLanes(D()) == 32) {
    // Bytes are interleaved within 128 bits, so loads that many of each row at
    // a time.
    const hn::Rebind<int8_t, D> both;
    const hn::Half<decltype(both)> d8;
    const auto pairs = [&](int64_t c) {
      const auto low = hn::LoadU(d8, a + c), high = hn::LoadU(d8, b + c);
      return hn::PromoteTo(d16,
                           hn::Combine(both, hn::InterleaveUpper(d8, low, high),
                                       hn::InterleaveLower(d8, low, high)));
    };
    x0 = pairs(0);
    x1 = pairs(kLanesI);
  } else {
    const hn::Rebind<int8_t, D> d8;
    const auto low = hn::LoadU(d8, a), high = hn::LoadU(d8, b);
    x0 = hn::PromoteTo(d16, hn::InterleaveLower(d8, low, high));
    x1 = hn::PromoteTo(d16, hn::InterleaveUpper(d8, low, high));
  }
}

#if HWY_TARGET <= HWY_AVX3
// AddIntegerColumns for the 64 channels (a cache line) from c on. Bytes of two
// rows are interleaved within 128 bits, so a vector has 8 channels of one block
// and 8 of the next; the sums are put back in order at the end.
template <bool kFused, size_t kR, bool kPrefetch>
HWY_INLINE void AddIntegerLine(const int8_t* const* at, int64_t c,
                               int64_t count, int64_t far, int64_t near,
                               const int16_t (&w)[kR][kKeysInL1],
                               const float (&scale)[kR],
                               float* HWY_RESTRICT out, int64_t ldo) {
  const hn::Repartition<int8_t, DF> d8;
  const hn::Half<decltype(d8)> half;
  VI32 acc[kR][4];
#pragma GCC unroll 4
  for (size_t r = 0; r < kR; ++r) {
#pragma GCC unroll 4
    for (size_t n = 0; n < 4; ++n) acc[r][n] = hn::Zero(kDI32);
  }
  for (int64_t j = 0; j < count; j += 2) {
    const int8_t* a = at[j] + c;
    const int8_t* b = at[j + 1] + c;
    if constexpr (kPrefetch) {
      PrefetchVectors<4>(a, far, near);
      PrefetchVectors<4>(b, far, near);
    }
    const auto row_a = hn::LoadU(d8, a), row_b = hn::LoadU(d8, b);
    const auto lower = hn::InterleaveLower(d8, row_a, row_b);
    const auto upper = hn::InterleaveUpper(d8, row_a, row_b);
    // Channels 0-7 16-23, 8-15 24-31, 32-39 48-55, 40-47 56-63.
    const VI16 x[4] = {hn::PromoteTo(kDI16, hn::LowerHalf(half, lower)),
                       hn::PromoteTo(kDI16, hn::LowerHalf(half, upper)),
                       hn::PromoteTo(kDI16, hn::UpperHalf(half, lower)),
                       hn::PromoteTo(kDI16, hn::UpperHalf(half, upper))};
#pragma GCC unroll 4
    for (size_t r = 0; r < kR; ++r) {
      int32_t pair = 0;
      std::memcpy(&pair, &w[r][j], sizeof(pair));
      const VI16 weights = hn::BitCast(kDI16, hn::Set(kDI32, pair));
#pragma GCC unroll 4
      for (size_t n = 0; n < 4; ++n) AddPairs<kFused>(x[n], weights, acc[r][n]);
    }
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < kR; ++r) {
    float* to = out + static_cast<int64_t>(r) * ldo;
    const VF by = hn::Set(kDF, scale[r]);
#pragma GCC unroll 2
    for (size_t n = 0; n < 4; n += 2, to += 2 * kLanes) {
      const VI32 first = hn::ConcatLowerLower(kDI32, acc[r][n + 1], acc[r][n]);
      const VI32 second = hn::ConcatUpperUpper(kDI32, acc[r][n + 1], acc[r][n]);
      hn::StoreU(hn::MulAdd(by, hn::ConvertTo(kDF, first), hn::LoadU(kDF, to)),
                 kDF, to);
      hn::StoreU(hn::MulAdd(by, hn::ConvertTo(kDF, second),
                            hn::LoadU(kDF, to + kLanes)),
                 kDF, to + kLanes);
    }
  }
}
#endif

// out[r][0 .. dim) += scale[r] * sum of w[r][j - begin] v_j over rows [begin,
// end), at most kKeysInL1.
template <bool kFused, size_t kR, bool kPrefetch>
HWY_NOINLINE void AddIntegerColumns(RowsOf<int8_t> values, int64_t begin,
                                    int64_t end,
                                    const int16_t (&w)[kR][kKeysInL1],
                                    const float (&scale)[kR], int64_t dim,
                                    float* HWY_RESTRICT out, int64_t ldo) {
  const int64_t near = 8 * values.stride;
  // With an odd count, the last row is repeated with weight 0.
  const int8_t* at[kKeysInL1 + 1];
  const int64_t count = end - begin;
  for (int64_t j = 0; j < count; ++j) at[j] = values[begin + j];
  at[count] = at[count - 1];
  int64_t c = 0;
#if HWY_TARGET <= HWY_AVX3
  for (; c + 64 <= dim; c += 64) {
    AddIntegerLine<kFused, kR, kPrefetch>(at, c, count, values.far, near, w,
                                          scale, out + c, ldo);
  }
#endif
  for (; c < dim; c += kPaired) {
    VI32 acc[kR][2];
#pragma GCC unroll 4
    for (size_t r = 0; r < kR; ++r) {
      acc[r][0] = acc[r][1] = hn::Zero(kDI32);
    }
    for (int64_t j = 0; j < count; j += 2) {
      const int8_t* a = at[j] + c;
      const int8_t* b = at[j + 1] + c;
      if (kPrefetch && c % kLineOf<int8_t> == 0) {
        PrefetchVectors<2>(a, values.far, near);
        PrefetchVectors<2>(b, values.far, near);
      }
      VI16 x0, x1;
      LoadPairs(kDI16, a, b, x0, x1);
#pragma GCC unroll 4
      for (size_t r = 0; r < kR; ++r) {
        int32_t pair = 0;
        std::memcpy(&pair, &w[r][j], sizeof(pair));
        const VI16 weights = hn::BitCast(kDI16, hn::Set(kDI32, pair));
        AddPairs<kFused>(x0, weights, acc[r][0]);
        AddPairs<kFused>(x1, weights, acc[r][1]);
      }
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < kR; ++r) {
      float* to = out + static_cast<int64_t>(r) * ldo + c;
      const VF by = hn::Set(kDF, scale[r]);
      for (size_t n = 0; n < 2; ++n, to += kLanes) {
        hn::StoreU(
            hn::MulAdd(by, hn::ConvertTo(kDF, acc[r][n]), hn::LoadU(kDF, to)),
            kDF, to);
      }
    }
  }
}

// AddWeighted for integers.
template <bool kFused, bool kPrefetch>
void AddIntegersWeighted(RowsOf<int8_t> values, int64_t begin, int64_t end,
                         const float* HWY_RESTRICT p, int64_t ldp, int64_t rows,
                         int64_t dim, float* HWY_RESTRICT out, int64_t ldo) {
  ForBlocks<kPrefetch>(
      begin, end, rows,
      [&]<size_t kR, bool kAsk>(int64_t j, int64_t stop, int64_t r) {
        HWY_ALIGN int16_t w[kR][kKeysInL1];
        float scale[kR];
        for (size_t n = 0; n < kR; ++n) {
          const int64_t row = r + static_cast<int64_t>(n);
          scale[n] =
              QuantizeWeights(p + row * ldp + (j - begin), stop - j, w[n]);
        }
        AddIntegerColumns<kFused, kR, kAsk>(values, j, stop, w, scale, dim,
                                            out + r * ldo, ldo);
      });
}

#endif  // LOCUS_INT8_PRODUCTS

}  // namespace stream
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SIMD_STREAM_INT8_INL_H_
