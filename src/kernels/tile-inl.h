// Vector primitives of the attention kernels: one GEMM micro-kernel and one
// exponential. Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TILE_INL_H_
#undef LOCUS_SRC_KERNELS_TILE_INL_H_
#else
#define LOCUS_SRC_KERNELS_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr DF kDF;
constexpr size_t kLanes = HWY_LANES(float);

// The micro-kernel computes kRows x kCols of a product in registers, as kRows
// accumulators of two vectors. AVX-512 has 32 registers: 12 x 2 accumulators,
// two vectors of the right operand and a broadcast leave five to spare. With 16
// registers 6 x 2 accumulators leave one.
constexpr size_t kRows = kLanes >= 16 ? 12 : 6;
constexpr size_t kCols = 2 * kLanes;

constexpr size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

// What happens to the old contents of C.
enum class Into { kStore, kScaleAdd };

// C[r, 0..kCols) = sum_k A[k, r] B[k, 0..kCols)  (+ keep[r] * C for kScaleAdd)
//
// A is read at a[k * ak + r * ar], B at b[k * bk ..], C at c[r * ldc ..].
// All loads and stores may be unaligned.
template <Into kInto>
HWY_INLINE void Gemm(const float* HWY_RESTRICT a, size_t ak, size_t ar,
                     const float* HWY_RESTRICT b, size_t bk, size_t depth,
                     const float* HWY_RESTRICT keep, float* HWY_RESTRICT c,
                     size_t ldc) {
  VF acc0[kRows];
  VF acc1[kRows];
#pragma GCC unroll 12
  for (size_t r = 0; r < kRows; ++r) {
    acc0[r] = hn::Zero(kDF);
    acc1[r] = hn::Zero(kDF);
  }
  for (size_t k = 0; k < depth; ++k) {
    const VF b0 = hn::LoadU(kDF, b + k * bk);
    const VF b1 = hn::LoadU(kDF, b + k * bk + kLanes);
    const float* HWY_RESTRICT ap = a + k * ak;
#pragma GCC unroll 12
    for (size_t r = 0; r < kRows; ++r) {
      const VF x = hn::Set(kDF, ap[r * ar]);
      acc0[r] = hn::MulAdd(x, b0, acc0[r]);
      acc1[r] = hn::MulAdd(x, b1, acc1[r]);
    }
  }
#pragma GCC unroll 12
  for (size_t r = 0; r < kRows; ++r) {
    float* HWY_RESTRICT cp = c + r * ldc;
    if constexpr (kInto == Into::kScaleAdd) {
      const VF old = hn::Set(kDF, keep[r]);
      acc0[r] = hn::MulAdd(old, hn::LoadU(kDF, cp), acc0[r]);
      acc1[r] = hn::MulAdd(old, hn::LoadU(kDF, cp + kLanes), acc1[r]);
    }
    hn::StoreU(acc0[r], kDF, cp);
    hn::StoreU(acc1[r], kDF, cp + kLanes);
  }
}

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

// 2^(x - ref) for x <= ref, with `ref` an integer of at most 2^21. Below
// 2^-100 it is exactly 0: -inf and masked scores vanish, and sums that start
// with such weights never touch denormal numbers, which cost a hundred cycles
// each. A NaN stays a NaN.
//
// shift = 1.5 * 2^23 + 127 - ref: adding it to x rounds x to an integer n and
// leaves n - ref + 127, the biased exponent, in the low bits of the sum.
// zero = ref - 127 gives exponent 0, which is the number zero.
struct Exp2Reference {
  explicit Exp2Reference(float ref)
      : shift(hn::Set(kDF, 12582912.0f + 127.0f - ref)),
        zero(hn::Set(kDF, ref - 127.0f)),
        least(hn::Set(kDF, ref - 100.0f)) {}
  VF shift;
  VF zero;
  VF least;
};

HWY_INLINE VF Exp2(VF x, const Exp2Reference& ref) {
  const hn::RebindToSigned<DF> di;
  x = hn::IfThenElse(hn::Le(x, ref.least), ref.zero, x);
  const VF y = hn::Add(x, ref.shift);
  const VF f = hn::Sub(x, hn::Sub(y, ref.shift));
  const VF power = hn::BitCast(kDF, hn::ShiftLeft<23>(hn::BitCast(di, y)));
  return hn::Mul(Exp2Fraction(f), power);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TILE_INL_H_
