// Single rows as floats: loaded from any storage type, scaled, added, rotated.
// Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_SIMD_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_SIMD_ROW_INL_H_
#undef LOCUS_SRC_KERNELS_SIMD_ROW_INL_H_
#else
#define LOCUS_SRC_KERNELS_SIMD_ROW_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/rotary/pairs-inl.h"
#include "kernels/rotary/token_table.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/stream-inl.h"
#include "locus/terms.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

using kernels::Rows;

// Calls f.operator()<T>() with the storage type.
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

// Row (b, h, i) as floats, padded with zeros to `padded`.
inline void StageRow(const Rows& rows, int64_t b, int64_t h, int64_t i,
                     int64_t padded, float* to) {
  const int64_t dim = rows.dim();
  if (rows.dtype() == DType::kF64 || !rows.unit_stride() || dim < kLanesI) {
    rows.Load(b, h, i, to);
  } else {
    WithType(rows.dtype(), [&]<typename T>() {
      const T* from = rows.Head<T>(b, h) + i * rows.row_stride();
      const RowsOf<T> row{from, rows.row_stride(), nullptr};
      const int64_t far = row.Far(dim), near = 4 * row.stride;
      for (int64_t d = 0; d + kLanesI < dim; d += kLanesI) {
        FetchVectors<1>(from + d, far, near);
        hn::StoreU(LoadFloats(from + d), kDF, to + d);
      }
      // The last vector ends where the row ends.
      hn::StoreU(LoadFloats(from + dim - kLanesI), kDF, to + dim - kLanesI);
    });
  }
  std::fill(to + dim, to + padded, 0.0F);
}

// a . b over whole vectors.
inline float Dot(const float* a, const float* b, int64_t dim) {
  VF sum = hn::Zero(kDF);
  for (int64_t d = 0; d < dim; d += kLanesI) {
    sum = hn::MulAdd(hn::LoadU(kDF, a + d), hn::LoadU(kDF, b + d), sum);
  }
  return hn::GetLane(hn::SumOfLanes(kDF, sum));
}

// Two vectors of pairs, and the way back.
HWY_INLINE void LoadPairs(const float* x, VF& a, VF& b) {
  hn::LoadInterleaved2(kDF, x, a, b);
}
HWY_INLINE void LoadPairs(const hwy::bfloat16_t* x, VF& a, VF& b) {
  a = LoadPart<0>(x);
  b = LoadPart<1>(x);
}
HWY_INLINE void LoadPairs(const hwy::float16_t* x, VF& a, VF& b) {
#if HWY_TARGET == HWY_SCALAR
  a = LoadFloats(x);
  b = LoadFloats(x + 1);
#else
  const VF low = LoadFloats(x), high = LoadFloats(x + kLanesI);
  a = hn::ConcatEven(kDF, high, low);
  b = hn::ConcatOdd(kDF, high, low);
#endif
}

// y = the pairs of x rotated, (a, b) -> (a cos - b sin, a sin + b cos), with
// cosines and sines [pairs], of which there are whole vectors. x and y begin at
// the first rotated channel.
template <typename T>
HWY_INLINE void RotateVectors(const Rotation& rotation, const float* cos,
                              const float* sin, const T* x, float* y) {
  const int64_t pairs = rotation.NumPairs();
  const bool halves = rotation.layout == PairLayout::kHalves;
  for (int64_t p = 0; p < pairs; p += kLanesI) {
    VF a, b;
    if (halves) {
      a = LoadFloats(x + p);
      b = LoadFloats(x + pairs + p);
    } else {
      LoadPairs(x + 2 * p, a, b);
    }
    TurnVectors</*kBack=*/false>(kDF, cos + p, sin + p, a, b);
    if (halves) {
      hn::StoreU(a, kDF, y + p);
      hn::StoreU(b, kDF, y + pairs + p);
    } else {
      hn::StoreInterleaved2(a, b, kDF, y + 2 * p);
    }
  }
}

// Rotates a whole row x in place. Back is the transpose: for gradients.
HWY_INLINE void RotatePairs(const Rotation& rotation, const float* cos,
                            const float* sin, float* x, bool back = false) {
  RotateRowInPlace(x + rotation.first_channel, cos, sin, rotation.NumPairs(),
                   rotation.layout, back);
}

// The same by token i of a table.
inline void RotateRow(const Rotation& rotation,
                      const kernels::RotationTable& table, int64_t i, float* x,
                      bool back = false) {
  const int64_t at = i * rotation.NumPairs();
  RotatePairs(rotation, table.cos.data() + at, table.sin.data() + at, x, back);
}

}  // namespace stream
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SIMD_ROW_INL_H_
