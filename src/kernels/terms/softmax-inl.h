// The online softmax of all drivers, in the domain of exp2: rows of scores
// become weights relative to a running integer reference, so that rescaling
// earlier sums is exact. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_TERMS_SOFTMAX_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_SOFTMAX_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_SOFTMAX_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_SOFTMAX_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/simd/product-inl.h"
#include "kernels/terms/log2_domain.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// 2^f for f in [-0.5, 0.5]: minimax of degree 6, relative error 2e-9 before and
// 8e-8 after rounding the steps to float32. Degree 5 would be 2e-7.
HWY_INLINE VF Exp2Fraction(VF f) {
  VF p = hn::Set(kDF, 0.00015345812f);
  p = hn::MulAdd(p, f, hn::Set(kDF, 0.0013399931f));
  p = hn::MulAdd(p, f, hn::Set(kDF, 0.009618489f));
  p = hn::MulAdd(p, f, hn::Set(kDF, 0.055503286f));
  p = hn::MulAdd(p, f, hn::Set(kDF, 0.24022646f));
  p = hn::MulAdd(p, f, hn::Set(kDF, 0.6931472f));
  return hn::MulAdd(p, f, hn::Set(kDF, 1.0f));
}

// 2^(x - ref) for x <= ref, with `ref` an integer of magnitude at most 2^21.
// Below ref - 100 the result is 2^-100: negligible next to a sum of at least
// 1/2, and not a denormal number, which would cost a hundred cycles. That
// includes -inf, so callers must clear masked elements. NaN stays NaN.
//
// shift = 1.5 * 2^23 + 127 - ref: adding it to x rounds x to an integer n and
// leaves n - ref + 127, the biased exponent, in the low bits of the sum.
struct Exp2Reference {
  explicit Exp2Reference(float ref)
      : shift(hn::Set(kDF, 12582912.0f + 127.0f - ref)),
        least(hn::Set(kDF, ref - 100.0f)) {}
  // A reference per lane.
  explicit Exp2Reference(VF ref)
      : shift(hn::Sub(hn::Set(kDF, 12582912.0f + 127.0f), ref)),
        least(hn::Sub(ref, hn::Set(kDF, 100.0f))) {}
  VF shift;
  VF least;
};

HWY_INLINE VF Exp2(VF x, const Exp2Reference& ref) {
  const hn::RebindToSigned<DF> di;
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  x = hn::Max(ref.least, x);  // returns the second operand if either is NaN
#else
  x = hn::IfThenElse(hn::Lt(x, ref.least), ref.least, x);
#endif
  const VF y = hn::Add(x, ref.shift);
  const VF f = hn::Sub(x, hn::Sub(y, ref.shift));
  const VF power = hn::BitCast(kDF, hn::ShiftLeft<23>(hn::BitCast(di, y)));
  return hn::Mul(Exp2Fraction(f), power);
}

// The running softmax of one row: out = (sum p v) / sum with p = 2^(s - ref).
struct RowState {
  float ref = kMinusInf;  // an integer, or -inf before the first key
  float sum = 0.0F;
};

// 2^n for a whole number n <= 0; 0 below the range of float.
inline float PowerOfTwo(float n) {
  if (n < -126.0F) return 0.0F;
  return std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

// The natural logarithm of the sum of exponentials; -inf for a row that sees no
// key.
inline float LogSumExp(const RowState& state) {
  if (state.sum == 0.0F) return kMinusInf;
  return static_cast<float>((static_cast<double>(state.ref) +
                             std::log2(static_cast<double>(state.sum))) /
                            kLog2E);
}

// The final factor of a row's weighted sums; 0 for a row that sees no key.
inline float InverseSum(const RowState& state) {
  return state.sum == 0.0F ? 0.0F : 1.0F / state.sum;
}

// Adds a sink, a logit without a value, to the softmax of a row. Returns the
// factor of earlier sums: a power of two.
inline float JoinSink(double logit, RowState& state) {
  const float sink = static_cast<float>(logit * kLog2E);
  if (sink == kMinusInf) return 1.0F;
  const float ref = std::max(state.ref, std::ceil(sink));
  const float rescale = state.ref == kMinusInf || state.ref == ref
                            ? 1.0F
                            : PowerOfTwo(state.ref - ref);
  state.sum = state.sum * rescale + std::exp2(sink - ref);
  state.ref = ref;
  return rescale;
}

// The functions below read whole vectors, and the last two write them: up to a
// vector past the end of a row.

// The largest of s[0 .. n).
inline float RowMax(const float* s, int64_t n) {
  // Two chains, to hide the latency of Max.
  VF max0 = hn::Set(kDF, kMinusInf), max1 = max0;
  int64_t j = 0;
  for (; j + 2 * kLanesI <= n; j += 2 * kLanesI) {
    max0 = hn::Max(max0, hn::LoadU(kDF, s + j));
    max1 = hn::Max(max1, hn::LoadU(kDF, s + j + kLanesI));
  }
  if (j + kLanesI <= n) {
    max0 = hn::Max(max0, hn::LoadU(kDF, s + j));
    j += kLanesI;
  }
  if (j < n) {
    const auto rest = hn::FirstN(kDF, static_cast<size_t>(n - j));
    max1 = hn::Max(max1, hn::IfThenElse(rest, hn::LoadU(kDF, s + j),
                                        hn::Set(kDF, kMinusInf)));
  }
  return hn::GetLane(hn::MaxOfLanes(kDF, hn::Max(max0, max1)));
}

// s[0 .. n) becomes 2^(s - ref), followed by zeros up to a whole vector.
// Returns the sum.
HWY_INLINE float Exp2Row(float* HWY_RESTRICT s, int64_t n,
                         const Exp2Reference& ref) {
  VF sum0 = hn::Zero(kDF), sum1 = sum0;
  int64_t j = 0;
#pragma GCC unroll 2
  for (; j + 2 * kLanesI <= n; j += 2 * kLanesI) {
    const VF p0 = Exp2(hn::LoadU(kDF, s + j), ref);
    const VF p1 = Exp2(hn::LoadU(kDF, s + j + kLanesI), ref);
    sum0 = hn::Add(sum0, p0);
    sum1 = hn::Add(sum1, p1);
    hn::StoreU(p0, kDF, s + j);
    hn::StoreU(p1, kDF, s + j + kLanesI);
  }
  for (; j < n; j += kLanesI) {
    const VF p = hn::IfThenElseZero(hn::FirstN(kDF, static_cast<size_t>(n - j)),
                                    Exp2(hn::LoadU(kDF, s + j), ref));
    sum0 = hn::Add(sum0, p);
    hn::StoreU(p, kDF, s + j);
  }
  return hn::GetLane(hn::SumOfLanes(kDF, hn::Add(sum0, sum1)));
}

// Whether Exp2 supports a reference: an integer of magnitude at most 2^21.
constexpr float kLargestReference = 2097152.0F;
HWY_INLINE bool IsUsual(float ref) {
  return std::abs(ref) <= kLargestReference;
}

// OnlineSoftmaxRow for a reference that Exp2 does not support.
inline HWY_NOINLINE float UnusualSoftmaxRow(float* s, int64_t n, float max,
                                            RowState& state) {
  if (max == kMinusInf) {
    // All weights are 0, except for NaN, which the maximum may have missed.
    for (int64_t j = 0; j < AlignUp(n, kLanesI); ++j) {
      s[j] = j >= n || s[j] == kMinusInf ? 0.0F : s[j];
      state.sum += s[j];
    }
    return 1.0F;
  }
  // Scores are shifted to reference 0. If the maximum is infinite or NaN, the
  // result is NaN for any reference.
  const bool finite = std::isfinite(max);
  const float ref = finite ? std::max(state.ref, std::ceil(max)) : 0.0F;
  const float rescale = state.ref == kMinusInf || state.ref == ref
                            ? 1.0F
                            : PowerOfTwo(state.ref - ref);
  for (int64_t j = 0; j < n; ++j) s[j] -= finite ? ref : max;
  state.sum = state.sum * rescale + Exp2Row(s, n, Exp2Reference(0.0F));
  state.ref = ref;
  return rescale;
}

// Replaces the scores s[0 .. n) of a row, with maximum `max`, by weights
// p = 2^(s - ref), and updates the row's state. Returns the factor of earlier
// sums: a power of two. Zeros follow the last weight up to a whole vector.
HWY_INLINE float OnlineSoftmaxRow(float* s, int64_t n, float max,
                                  RowState& state) {
  const float ref = std::max(state.ref, std::ceil(max));
  if (max == kMinusInf || !IsUsual(ref)) {
    return UnusualSoftmaxRow(s, n, max, state);
  }
  const float rescale = state.ref == kMinusInf || state.ref == ref
                            ? 1.0F
                            : PowerOfTwo(state.ref - ref);
  state.sum = state.sum * rescale + Exp2Row(s, n, Exp2Reference(ref));
  state.ref = ref;
  return rescale;
}

// s = cap tanh(s / cap), with s and cap both in units of log2.
inline void SoftCapRow(float softcap, int64_t n, float* s) {
  const float cap = static_cast<float>(softcap * kLog2E);
  const VF vcap = hn::Set(kDF, cap), inverse = hn::Set(kDF, 1.0F / cap);
  for (int64_t j = 0; j < n; j += kLanesI) {
    const VF x = hn::Mul(hn::LoadU(kDF, s + j), inverse);
    hn::StoreU(hn::Mul(vcap, hn::Tanh(kDF, x)), kDF, s + j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_SOFTMAX_INL_H_
