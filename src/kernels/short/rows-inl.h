// Building blocks of short attention on a block of rows: epilogues of products,
// transposes, and the softmax. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_SHORT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_SHORT_ROWS_INL_H_
#undef LOCUS_SRC_KERNELS_SHORT_ROWS_INL_H_
#else
#define LOCUS_SRC_KERNELS_SHORT_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "kernels/short/call.h"
#include "kernels/terms/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace short_seq {

// Stride of the rows of a block in floats: the longest row plus one cache line,
// so that rows do not map to the same cache sets. A constant, so that rows of
// the left operand are fixed displacements.
constexpr int64_t kStride =
    std::max(kernels::kShortTokens, kernels::kShortChannels) + 16;
// The same for products. Not Fixed, with which the multiply-add broadcasts from
// memory: 2 to 4 % slower at 16 to 64 tokens on a Zen 5, where the load ports
// are the bottleneck.
constexpr size_t kRowStep = static_cast<size_t>(kStride);

// Kernels exist for 1, 2, 4, 6, ... kRows rows; rounds up to one of these.
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

// Epilogue: adds row[r][at ..] and stores to c, rows kStride apart.
struct AddStore {
  template <typename... V>
  HWY_INLINE void operator()(size_t r, V... x) const {
    const float* add = row[r] + at;
    float* HWY_RESTRICT to = c + r * kStride;
    size_t n = 0;
    ((hn::StoreU(hn::Add(x, hn::LoadU(kDF, add + n)), kDF, to + n),
      n += kLanes),
     ...);
  }
  const float* const* row;
  int64_t at;
  float* HWY_RESTRICT c;
};

// Epilogue: stores the first `count` rows, times scale[r], to c.
struct ScaleStore {
  template <typename... V>
  HWY_INLINE void operator()(size_t r, V... x) const {
    if (static_cast<int64_t>(r) >= count) return;
    const VF factor = hn::Set(kDF, scale[r]);
    float* HWY_RESTRICT to = c + static_cast<int64_t>(r) * stride;
    size_t n = 0;
    ((hn::StoreU(hn::Mul(factor, x), kDF, to + n), n += kLanes), ...);
  }
  const float* HWY_RESTRICT scale;
  int64_t count;
  float* HWY_RESTRICT c;
  int64_t stride;
};

// Multiplies the weights p of kR rows, `apart` floats from each other, by
// `keys` values of `width` channels, `stride` floats apart from v on.
template <size_t kR, typename Stride>
HWY_INLINE void MultiplyValues(const float* p, Stride apart, const float* v,
                               int64_t stride, int64_t keys, int64_t width,
                               ScaleStore end) {
  const size_t depth = static_cast<size_t>(keys);
  for (int64_t c = 0; c < width; c += kColsI, v += kColsI, end.c += kColsI) {
    if (width - c > kLanesI) {
      Product<kR, 2>(p, 1, apart, v, stride, depth, end);
    } else {
      Product<kR, 1>(p, 1, apart, v, stride, depth, end);
    }
  }
}

// The dot product a.b in every lane; `count` is a multiple of the vector
// length.
HWY_INLINE VF Dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                  int64_t count) {
  VF sum = hn::Zero(kDF);
  for (int64_t d = 0; d < count; d += kLanesI) {
    sum = hn::MulAdd(hn::LoadU(kDF, a + d), hn::LoadU(kDF, b + d), sum);
  }
  return hn::SumOfLanes(kDF, sum);
}

#if HWY_TARGET != HWY_SCALAR
// Loads four channels of rows 0, 4, 8, ..., one row per block of four lanes.
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

// Transposes kN rows of `depth` channels, `stride` apart: to[d * kCols + l] =
// rows[l * stride + d].
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
    // A 4 x 4 transpose in every block: pairs of rows, then pairs of pairs.
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

// Copies `count` floats, whole vectors first.
HWY_INLINE void CopyRow(const float* HWY_RESTRICT from, int64_t count,
                        float* HWY_RESTRICT to) {
  int64_t d = 0;
  for (; d + kLanesI <= count; d += kLanesI) {
    hn::StoreU(hn::LoadU(kDF, from + d), kDF, to + d);
  }
  for (; d < count; ++d) to[d] = from[d];
}

// Replaces the scores of `count` rows by weights: row r sees keys seen[r], and
// other keys of `any`, which contains those of all rows, get weight 0. kAlike:
// every row sees all of `any`, and `seen` is not read.
template <bool kAlike>
inline void SoftmaxRows(float* scores, const kernels::Interval* seen,
                        kernels::Interval any, int64_t count,
                        RowState* states) {
  const auto seen_by = [&](int64_t r) { return kAlike ? any : seen[r]; };
  // All maxima come first, so that their latency overlaps and whether Exp2
  // supports all of the references is decided once.
  float max[kRows];
  bool usual = true;
  for (int64_t r = 0; r < count; ++r) {
    const kernels::Interval own = seen_by(r);
    max[r] = RowMax(scores + r * kStride + own.begin, own.size());
    states[r] = {.ref = std::ceil(max[r])};
    usual &= IsUsual(states[r].ref);
  }
  for (int64_t r = 0; r < count; ++r) {
    const kernels::Interval own = seen_by(r);
    float* s = scores + r * kStride;
    for (int64_t j = any.begin; j < own.begin; ++j) s[j] = 0.0F;
    if (usual) {
      states[r].sum =
          Exp2Row(s + own.begin, own.size(), Exp2Reference(states[r].ref));
    } else {
      states[r] = RowState();
      if (!own.empty()) {
        OnlineSoftmaxRow(s + own.begin, own.size(), max[r], states[r]);
      }
    }
    for (int64_t j = own.end; j < any.end; ++j) s[j] = 0.0F;
  }
}

}  // namespace short_seq

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SHORT_ROWS_INL_H_
