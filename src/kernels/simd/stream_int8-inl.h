// Products with rows of int8 by integer multiply-adds, which do twice as many
// at a time as those of floats and need no conversion: queries and weights
// become int16, relative to the largest of a query and of 32 weights. Their
// error, 2^-16 of that, is small beside the 2^-8 of the rows. Compiled once per
// SIMD target.
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

#include "kernels/simd/stream-inl.h"

// Only x86 has a product of pairs that keeps their order; elsewhere, and in
// Highway's emulation of vectors, rows are converted to floats.
#undef LOCUS_INT8_PRODUCTS
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define LOCUS_INT8_PRODUCTS 1
#else
#define LOCUS_INT8_PRODUCTS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

// Whether rows can be multiplied as integers: whole pairs of vectors, and so
// few that no sum of int32 overflows. A lane sums at most 2048 / 8 pairs of
// products below 127 * 32767.
inline bool IntegerProducts(const Rows& rows) {
  return LOCUS_INT8_PRODUCTS != 0 && rows.dtype() == DType::kI8 &&
         rows.dim() % kPaired == 0 && rows.dim() <= 2048;
}

// x [count] as integers from -32767 to 32767, and what they are to be
// multiplied by; NaN, if not all are finite.
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

#if LOCUS_INT8_PRODUCTS

using DI32 = hn::RebindToSigned<DF>;
using DI16 = hn::Repartition<int16_t, DF>;
using VI32 = hn::Vec<DI32>;
using VI16 = hn::Vec<DI16>;
constexpr DI32 kDI32;
constexpr DI16 kDI16;

// The products of a and b, added in pairs.
HWY_INLINE VI32 Pairs(VI16 a, VI16 b) {
  VI32 unused = hn::Zero(kDI32);
  return hn::ReorderWidenMulAccumulate(kDI32, a, b, unused, unused);
}

// sum += Pairs(a, b). Spelled out for the reason
// that MulAddInto is: g++ moves every sum to another register and back, and
// spills one.
HWY_INLINE void AddPairs(VI16 a, VI16 b, VI32& sum) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX2 && \
    (HWY_COMPILER_GCC_ACTUAL || HWY_COMPILER_CLANG)
  const VI32 pairs = Pairs(a, b);
  asm("vpaddd %1, %0, %0" : "+v"(sum.raw) : "v"(pairs.raw));
#else
  sum = hn::Add(sum, Pairs(a, b));
#endif
}

// DotKeys for integers.
template <size_t kR, size_t kK, bool kPrefetch>
HWY_INLINE void DotKeys(const int8_t* const (&keys)[kK],
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
        AddPairs(x[n], y, acc[r][n]);
      }
    }
  }
  VF sums[kR][kK];
#pragma GCC unroll 4
  for (size_t r = 0; r < kR; ++r) {
#pragma GCC unroll 4
    for (size_t n = 0; n < kK; ++n) sums[r][n] = hn::ConvertTo(kDF, acc[r][n]);
  }
  StoreDots<kR, kK>(sums, s, lds);
}

// Weights p [count] of at most kKeysInL1 keys, none negative, as int16, with
// zeros behind them, and what their sums are to be multiplied by: NaN, if not
// all are finite.
HWY_INLINE float QuantizeWeights(const float* p, int64_t count, int16_t* to) {
  const hn::Rebind<int16_t, DF> half;
  float rest[kKeysInL1];
  const float* x = p;
  if (count < kKeysInL1) {
    std::fill(std::copy_n(p, count, rest), rest + kKeysInL1, 0.0F);
    x = rest;
  }
  // As bits, a NaN is larger than infinity and that than any number.
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
  // Weights below this would change nothing; their inverse is finite.
  const float safe = std::max(largest, 1e-30F);
  const VF inverse = hn::Set(kDF, 32767.0F / safe);
  for (int64_t j = 0; j < kKeysInL1; j += kLanesI) {
    const VF scaled = hn::Mul(inverse, hn::LoadU(kDF, x + j));
    hn::StoreU(hn::DemoteTo(half, hn::NearestInt(scaled)), half, to + j);
  }
  return safe / 32767.0F;
}

// Two vectors of channels of two rows as pairs: a_0, b_0, a_1, b_1 ...
template <class D>
HWY_INLINE void LoadPairs(D d16, const int8_t* a, const int8_t* b,
                          hn::Vec<D>& x0, hn::Vec<D>& x1) {
  if constexpr (hn::MaxLanes(D()) == 32) {
    // Bytes are interleaved within 128 bits: that many of each row at a time.
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

// out[r][0 .. dim) += scale[r] * sum over rows [begin, end), at most kKeysInL1,
// of w[r][j - begin] v_j.
template <size_t kR, bool kPrefetch>
HWY_NOINLINE void AddIntegerColumns(RowsOf<int8_t> values, int64_t begin,
                                    int64_t end,
                                    const int16_t (&w)[kR][kKeysInL1],
                                    const float (&scale)[kR], int64_t dim,
                                    float* HWY_RESTRICT out, int64_t ldo) {
  const int64_t near = 8 * values.stride;
  // An odd row is its own neighbour, with a weight of zero.
  const int8_t* at[kKeysInL1 + 1];
  const int64_t count = end - begin;
  for (int64_t j = 0; j < count; ++j) at[j] = values[begin + j];
  at[count] = at[count - 1];
  for (int64_t c = 0; c < dim; c += kPaired) {
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
        AddPairs(x0, weights, acc[r][0]);
        AddPairs(x1, weights, acc[r][1]);
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
template <bool kPrefetch>
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
        AddIntegerColumns<kR, kAsk>(values, j, stop, w, scale, dim,
                                    out + r * ldo, ldo);
      });
}

#endif  // LOCUS_INT8_PRODUCTS

}  // namespace stream
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SIMD_STREAM_INT8_INL_H_
