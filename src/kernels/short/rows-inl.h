// Small products of short attention: as many rows as there are, one or two
// vectors of columns. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_SHORT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_SHORT_ROWS_INL_H_
#undef LOCUS_SRC_KERNELS_SHORT_ROWS_INL_H_
#else
#define LOCUS_SRC_KERNELS_SHORT_ROWS_INL_H_
#endif

#include <algorithm>

#include "kernels/short/call.h"
#include "kernels/terms/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace short_seq {

// Rows of a block lie this far apart, in floats: room for the longest, and one
// cache line more, so that rows do not share cache sets. A constant, so that
// rows of the left operand are plain displacements.
constexpr int64_t kStride =
    std::max(kernels::kShortTokens, kernels::kShortChannels) + 16;

// Kernels exist for 1, 2, 4, 6 ... kRows rows: the next one up.
constexpr int64_t KernelRows(int64_t rows) {
  return rows == 1 ? 1 : AlignUp(rows, 2);
}

// Calls f.operator()<rows>().
template <typename F>
HWY_INLINE void WithRows(int64_t rows, const F& f) {
  switch (rows) {
    case 1:
      return f.template operator()<1>();
    case 2:
      return f.template operator()<2>();
    case 4:
      return f.template operator()<4>();
    case 6:
      return f.template operator()<6>();
  }
  if constexpr (kRows > 6) {
    switch (rows) {
      case 8:
        return f.template operator()<8>();
      case 10:
        return f.template operator()<10>();
      case 12:
        return f.template operator()<12>();
    }
  }
}

// sum_k A[r, k] B[k, :] for kR rows and kV vectors of columns. A is read at
// a[r * kStride + k], B at b[k * bk ..]. end(kV, r, x0, x1) takes the sums; x1
// only if kV is 2.
template <size_t kR, size_t kV, typename End>
HWY_INLINE void RowsProduct(const float* HWY_RESTRICT a,
                            const float* HWY_RESTRICT b, int64_t bk,
                            size_t depth, const End& end) {
  static_assert(kR <= kRows && (kV == 1 || kV == 2));
  VF acc0[kR];
  VF acc1[kR];
#pragma GCC unroll 12
  for (size_t r = 0; r < kR; ++r) {
    acc0[r] = hn::Zero(kDF);
    acc1[r] = hn::Zero(kDF);
  }
  for (size_t k = 0; k < depth; ++k, b += bk) {
    const VF b0 = hn::LoadU(kDF, b);
    const VF b1 = kV == 2 ? hn::LoadU(kDF, b + kLanes) : b0;
#pragma GCC unroll 12
    for (size_t r = 0; r < kR; ++r) {
      const VF x = hn::Set(kDF, a[r * kStride + k]);
      acc0[r] = hn::MulAdd(x, b0, acc0[r]);
      if constexpr (kV == 2) acc1[r] = hn::MulAdd(x, b1, acc1[r]);
    }
  }
#pragma GCC unroll 12
  for (size_t r = 0; r < kR; ++r) end.template Take<kV>(r, acc0[r], acc1[r]);
}

// Adds row[r][at ..] and stores to c, rows kStride apart.
struct AddStore {
  template <size_t kV>
  HWY_INLINE void Take(size_t r, VF x0, VF x1) const {
    const float* add = row[r] + at;
    float* HWY_RESTRICT to = c + r * kStride;
    hn::StoreU(hn::Add(x0, hn::LoadU(kDF, add)), kDF, to);
    if constexpr (kV == 2) {
      hn::StoreU(hn::Add(x1, hn::LoadU(kDF, add + kLanes)), kDF, to + kLanes);
    }
  }
  const float* const* row;
  int64_t at;
  float* HWY_RESTRICT c;
};

// Stores `count` rows to c, times scale[r].
struct ScaleStore {
  template <size_t kV>
  HWY_INLINE void Take(size_t r, VF x0, VF x1) const {
    if (static_cast<int64_t>(r) >= count) return;
    const VF factor = hn::Set(kDF, scale[r]);
    float* HWY_RESTRICT to = c + static_cast<int64_t>(r) * stride;
    hn::StoreU(hn::Mul(factor, x0), kDF, to);
    if constexpr (kV == 2) hn::StoreU(hn::Mul(factor, x1), kDF, to + kLanes);
  }
  const float* HWY_RESTRICT scale;
  int64_t count;
  float* HWY_RESTRICT c;
  int64_t stride;
};

// a.b in every lane; `count` is a multiple of the vector.
HWY_INLINE VF Dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                  int64_t count) {
  VF sum = hn::Zero(kDF);
  for (int64_t d = 0; d < count; d += kLanesI) {
    sum = hn::MulAdd(hn::LoadU(kDF, a + d), hn::LoadU(kDF, b + d), sum);
  }
  return hn::SumOfLanes(kDF, sum);
}

#if HWY_TARGET != HWY_SCALAR
// Four channels of rows 0, 4, 8 ..., a block of four lanes each.
template <size_t kN>
HWY_INLINE hn::Vec<hn::CappedTag<float, kN>> LoadQuads(const float* rows,
                                                       size_t stride) {
  const hn::CappedTag<float, kN> d;
  if constexpr (kN == 4) {
    return hn::LoadU(d, rows);
  } else {
    return hn::Combine(d, LoadQuads<kN / 2>(rows + kN / 2 * stride, stride),
                       LoadQuads<kN / 2>(rows, stride));
  }
}
#endif

// kN rows of `depth` channels, `stride` apart, as columns:
// to[d * kCols + l] = rows[l * stride + d].
template <size_t kN>
HWY_INLINE void TransposeRows(const float* HWY_RESTRICT rows, size_t stride,
                              size_t depth, float* HWY_RESTRICT to) {
  size_t d = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, kN> df;
  const hn::RepartitionToWide<decltype(df)> wide;
  for (; d + 4 <= depth; d += 4) {
    const float* from = rows + d;
    const auto x0 = LoadQuads<kN>(from, stride);
    const auto x1 = LoadQuads<kN>(from + stride, stride);
    const auto x2 = LoadQuads<kN>(from + 2 * stride, stride);
    const auto x3 = LoadQuads<kN>(from + 3 * stride, stride);
    // 4 x 4 in every block: pairs of rows, then pairs of pairs.
    const auto lo01 = hn::BitCast(wide, hn::InterleaveLower(df, x0, x1));
    const auto hi01 = hn::BitCast(wide, hn::InterleaveUpper(df, x0, x1));
    const auto lo23 = hn::BitCast(wide, hn::InterleaveLower(df, x2, x3));
    const auto hi23 = hn::BitCast(wide, hn::InterleaveUpper(df, x2, x3));
    float* HWY_RESTRICT at = to + d * kCols;
    const auto store = [&df, &at](auto x) HWY_ATTR {
      hn::StoreU(hn::BitCast(df, x), df, at);
      at += kCols;
    };
    store(hn::InterleaveLower(wide, lo01, lo23));
    store(hn::InterleaveUpper(wide, lo01, lo23));
    store(hn::InterleaveLower(wide, hi01, hi23));
    store(hn::InterleaveUpper(wide, hi01, hi23));
  }
#endif
  for (; d < depth; ++d) {
    for (size_t l = 0; l < kN; ++l) to[d * kCols + l] = rows[l * stride + d];
  }
}

// Copies `count` floats, most of them in vectors.
HWY_INLINE void CopyRow(const float* HWY_RESTRICT from, int64_t count,
                        float* HWY_RESTRICT to) {
  int64_t d = 0;
  for (; d + kLanesI <= count; d += kLanesI) {
    hn::StoreU(hn::LoadU(kDF, from + d), kDF, to + d);
  }
  for (; d < count; ++d) to[d] = from[d];
}

// Turns the scores that each of `count` rows sees into weights, which are zero
// elsewhere in `any`, what some row sees.
inline void SoftmaxRows(float* scores, const kernels::Interval* seen,
                        kernels::Interval any, int64_t count,
                        RowState* states) {
  // All maxima first: a row need not wait for its own.
  float max[kRows];
  for (int64_t r = 0; r < count; ++r) {
    max[r] = RowMax(scores + r * kStride + seen[r].begin, seen[r].size());
  }
  for (int64_t r = 0; r < count; ++r) {
    float* s = scores + r * kStride;
    states[r] = RowState();
    if (seen[r].empty()) {
      std::fill(s + any.begin, s + any.end, 0.0F);
      continue;
    }
    for (int64_t j = any.begin; j < seen[r].begin; ++j) s[j] = 0.0F;
    OnlineSoftmaxRow(s + seen[r].begin, seen[r].size(), max[r], states[r]);
    for (int64_t j = seen[r].end; j < any.end; ++j) s[j] = 0.0F;
  }
}

}  // namespace short_seq

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SHORT_ROWS_INL_H_
