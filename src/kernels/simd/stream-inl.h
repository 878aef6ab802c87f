// Streaming kernels, which read rows once and in place: dot products of a few
// queries with many keys, and weighted sums of many values. Storage types are
// converted in registers. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_SIMD_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_SIMD_STREAM_INL_H_
#undef LOCUS_SRC_KERNELS_SIMD_STREAM_INL_H_
#else
#define LOCUS_SRC_KERNELS_SIMD_STREAM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/convert-inl.h"
#include "kernels/simd/product-inl.h"
#include "kernels/simd/rows.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

using kernels::Rows;

// Converts x [dim] to the order of PromotePart, and back. An odd vector at the
// end keeps its order.
constexpr int64_t kPaired = 2 * kLanesI;
inline void ToParts(int64_t dim, float* x) { ToPartOrder(kDF, x, dim, x); }
inline void FromParts(int64_t dim, float* x) {
  for (int64_t d = 0; d + kPaired <= dim; d += kPaired) {
    const VF even = hn::LoadU(kDF, x + d);
    const VF odd = hn::LoadU(kDF, x + d + kLanesI);
    hn::StoreInterleaved2(even, odd, kDF, x + d);
  }
}

// Rows of one head, `stride` elements apart; row j of the sorted order is row
// source[j] in memory, or row j if `source` is nullptr. Prefetches are `far`
// elements ahead.
template <typename T>
struct RowsOf {
  const T* operator[](int64_t j) const {
    return base + (source == nullptr ? j : source[j]) * stride;
  }
  // How many rows of `dim` elements ahead to prefetch, about 32 KiB: twice the
  // latency of memory under load, some 500 ns, times the bandwidth of a core,
  // 33 GB/s. Half as much reads floats a tenth slower; twice as much changes
  // little.
  static int64_t FarRows(int64_t dim) {
    const int64_t bytes = dim * static_cast<int64_t>(sizeof(T));
    return std::max<int64_t>(8, 32768 / bytes);
  }

  const T* base;
  int64_t stride;
  const int64_t* source = nullptr;
  int64_t far = 0;
};

// Calls f(rows, j, n) for ranges of keys [j, j + n) that make up [begin, end),
// in order; rows[0 .. n) of (b, h) belong to them. One range, or one per block,
// or one per key if keys are in blocks and out of order. `source` is the order
// of the tokens or nullptr, `count` their number.
template <typename T, typename F>
HWY_INLINE void ForStretches(const Rows& rows, int64_t b, int64_t h,
                             const int64_t* source, int64_t count,
                             int64_t begin, int64_t end, const F& f) {
  const int64_t stride = rows.row_stride();
  const int64_t far_rows = RowsOf<T>::FarRows(rows.dim());
  if (!rows.in_blocks()) {
    const T* head = rows.At<T>(b, h, 0);
    f(RowsOf<T>{.base = source == nullptr ? head + begin * stride : head,
                .stride = stride,
                .source = source == nullptr ? nullptr : source + begin,
                .far = far_rows * stride},
      begin, end - begin);
    return;
  }
  if (source != nullptr) {
    for (int64_t j = begin; j < end; ++j) {
      f(RowsOf<T>{.base = rows.At<T>(b, h, source[j]), .stride = stride}, j, 1);
    }
    return;
  }
  for (int64_t j = begin; j < end;) {
    const int64_t n =
        std::min(end - j, rows.block_size() - j % rows.block_size());
    const T* base = rows.At<T>(b, h, j);
    // far_rows later may be in another block, anywhere in memory.
    const T* later = rows.At<T>(b, h, std::min(j + far_rows, count - 1));
    f(RowsOf<T>{.base = base, .stride = stride, .far = later - base}, j, n);
    j += n;
  }
}

// Prefetches kVectors vectors, at p + far into L2 and at p + near into L1.
template <size_t kVectors, typename T>
HWY_INLINE void PrefetchVectors(const T* p, int64_t far, int64_t near) {
  constexpr int64_t kBytes =
      static_cast<int64_t>(kVectors * kLanes * sizeof(T));
#pragma GCC unroll 4
  for (int64_t n = 0; n < kBytes; n += 64) {
    Prefetch<Level::kL2>(reinterpret_cast<const char*>(p + far) + n);
    Prefetch<Level::kL1>(reinterpret_cast<const char*>(p + near) + n);
  }
}

// Loads row (b, h, i) as floats, zero-padded to `padded`.
inline void StageRow(const Rows& rows, int64_t b, int64_t h, int64_t i,
                     int64_t padded, float* to) {
  const int64_t dim = rows.dim();
  if (rows.dtype() == DType::kF64 || !rows.unit_stride() || dim < kLanesI) {
    rows.Load(b, h, i, to);
  } else {
    WithStoredType(rows.dtype(), [&]<typename T>() {
      const T* from = rows.At<T>(b, h, i);
      // Rows past the end of a block are not the next ones of the sequence.
      const int64_t step = rows.in_blocks() ? 0 : rows.row_stride();
      const int64_t far = RowsOf<T>::FarRows(dim) * step, near = 4 * step;
      const float* scales = rows.Scales(b, h);
      const VF scale = hn::Set(kDF, scales == nullptr ? 1.0F : scales[i]);
      const auto convert = [&](int64_t d) {
        hn::StoreU(hn::Mul(scale, Promote(kDF, from + d)), kDF, to + d);
      };
      for (int64_t d = 0; d + kLanesI < dim; d += kLanesI) {
        PrefetchVectors<1>(from + d, far, near);
        convert(d);
      }
      convert(dim - kLanesI);  // the last vector ends with the row
    });
  }
  std::fill(to + dim, to + padded, 0.0F);
}

// x[j] *= factor * scales[j] for j in [begin, end), or scales[source[j]].
inline void MultiplyByScales(float factor, const float* HWY_RESTRICT scales,
                             const int64_t* source, int64_t begin, int64_t end,
                             float* HWY_RESTRICT x) {
  const VF by = hn::Set(kDF, factor);
  int64_t j = begin;
  for (; source == nullptr && j + kLanesI <= end; j += kLanesI) {
    const VF scaled = hn::Mul(by, hn::LoadU(kDF, scales + j));
    hn::StoreU(hn::Mul(hn::LoadU(kDF, x + j), scaled), kDF, x + j);
  }
  for (; j < end; ++j) {
    x[j] *= factor * scales[source == nullptr ? j : source[j]];
  }
}

// The dot product a.b of whole vectors.
inline float Dot(const float* a, const float* b, int64_t dim) {
  VF sum = hn::Zero(kDF);
  for (int64_t d = 0; d < dim; d += kLanesI) {
    sum = hn::MulAdd(hn::LoadU(kDF, a + d), hn::LoadU(kDF, b + d), sum);
  }
  return hn::GetLane(hn::SumOfLanes(kDF, sum));
}

// Elements of a cache line, at least two vectors: the unit of prefetching.
template <typename T>
constexpr int64_t kLineOf = std::max(kPaired,
                                     int64_t{64} /
                                         static_cast<int64_t>(sizeof(T)));

// How many rows of queries share a loaded key or value, and how many keys, or
// vectors of a value, they share. 4 x 4 sums, four loaded vectors and
// broadcasts fit in 32 registers; with 16 there is room for 4 x 2 or 2 x 4.
// Four rows at once convert and load each vector once; two passes of two rows
// took a third longer on floats.
constexpr size_t kSharedRows = 4;
template <size_t kR>
constexpr size_t kShared = kLanes >= 16 || kR < 4 ? 4 : 2;

// x[0 .. 2) = the sums of the lanes of a and b; y[0 .. 2) those of c and e.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void StoreSums(VF a, VF b, VF c, VF e, float* x, float* y) {
  x[0] = hn::GetLane(a);
  x[1] = hn::GetLane(b);
  y[0] = hn::GetLane(c);
  y[1] = hn::GetLane(e);
}
#else
template <class D>
HWY_INLINE hn::Vec<hn::Full128<float> > SumOfBlocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    (void)d;
    return v;
  } else {
    const hn::Half<D> half;
    return SumOfBlocks(half,
                       hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Two rounds of interleaving and adding within 128-bit blocks, then across
// blocks.
HWY_INLINE void StoreSums(VF a, VF b, VF c, VF e, float* x, float* y) {
  const hn::Repartition<uint64_t, DF> du;
  const VF ab =
      hn::Add(hn::InterleaveLower(kDF, a, b), hn::InterleaveUpper(kDF, a, b));
  const VF ce =
      hn::Add(hn::InterleaveLower(kDF, c, e), hn::InterleaveUpper(kDF, c, e));
  const auto ab2 = hn::BitCast(du, ab), ce2 = hn::BitCast(du, ce);
  const VF sums = hn::Add(hn::BitCast(kDF, hn::InterleaveLower(du, ab2, ce2)),
                          hn::BitCast(kDF, hn::InterleaveUpper(du, ab2, ce2)));
  const auto all = SumOfBlocks(kDF, sums);
  const hn::Full64<float> pair;
  hn::StoreU(hn::LowerHalf(pair, all), pair, x);
  hn::StoreU(hn::UpperHalf(pair, all), pair, y);
}
#endif

// s[r][n] = the sum of the lanes of acc[r][n].
template <size_t kR, size_t kK>
HWY_INLINE void StoreDots(const VF (&acc)[kR][kK], float* HWY_RESTRICT s,
                          int64_t lds) {
  // Four sums at a time: of one row, or two each of two rows.
  if constexpr (kK == 4) {
#pragma GCC unroll 4
    for (size_t r = 0; r < kR; ++r) {
      float* to = s + static_cast<int64_t>(r) * lds;
      StoreSums(acc[r][0], acc[r][1], acc[r][2], acc[r][3], to, to + 2);
    }
  } else {
    static_assert(kK == 2 && kR % 2 == 0);
#pragma GCC unroll 2
    for (size_t r = 0; r < kR; r += 2) {
      float* to = s + static_cast<int64_t>(r) * lds;
      StoreSums(acc[r][0], acc[r][1], acc[r + 1][0], acc[r + 1][1], to,
                to + lds);
    }
  }
}

// Forces x into a register. g++ would rather make it a memory operand of every
// multiply-add: more loads than a core can do besides two multiply-adds per
// cycle.
HWY_INLINE VF InRegister(VF x) {
#if HWY_ARCH_X86_64 && HWY_TARGET != HWY_SCALAR && HWY_COMPILER_GCC_ACTUAL
  asm("" : "+v"(x.raw));
#endif
  return x;
}

// acc[r][n] += x_n q[r], for vector kPart of the two vectors at offset d of
// each key.
template <size_t kPart, size_t kR, size_t kK, typename T>
HWY_INLINE void MulAddKeys(const T* const (&keys)[kK], int64_t d,
                           const float* HWY_RESTRICT q, int64_t ldq,
                           VF (&acc)[kR][kK]) {
  VF x[kK];
#pragma GCC unroll 4
  for (size_t n = 0; n < kK; ++n) {
    x[n] = InRegister(PromotePart<kPart>(kDF, keys[n] + d));
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < kR; ++r) {
    const VF y =
        InRegister(hn::LoadU(kDF, q + static_cast<int64_t>(r) * ldq + d +
                                      static_cast<int64_t>(kPart) * kLanesI));
#pragma GCC unroll 4
    for (size_t n = 0; n < kK; ++n) acc[r][n] = hn::MulAdd(x[n], y, acc[r][n]);
  }
}

// s[r][0 .. kK) = q[r].keys[0 .. kK) for kR queries; depth is a multiple of the
// vector length. kPrefetch: also prefetches, `far` and `near` elements after
// the keys.
template <size_t kR, size_t kK, bool kPrefetch, typename T>
HWY_INLINE void DotKeys(const T* const (&keys)[kK], const float* HWY_RESTRICT q,
                        int64_t ldq, int64_t depth, int64_t far, int64_t near,
                        float* HWY_RESTRICT s, int64_t lds) {
  VF acc[kR][kK];
#pragma GCC unroll 4
  for (size_t r = 0; r < kR; ++r) {
#pragma GCC unroll 4
    for (size_t n = 0; n < kK; ++n) acc[r][n] = hn::Zero(kDF);
  }
  constexpr int64_t kLine = kLineOf<T>;
  int64_t d = 0;
  for (; d + kLine <= depth; d += kLine) {
    if constexpr (kPrefetch) {
#pragma GCC unroll 4
      for (size_t n = 0; n < kK; ++n) {
        PrefetchVectors<kLine / kLanesI>(keys[n] + d, far, near);
      }
    }
#pragma GCC unroll 2
    for (int64_t e = d; e < d + kLine; e += kPaired) {
      MulAddKeys<0>(keys, e, q, ldq, acc);
      MulAddKeys<1>(keys, e, q, ldq, acc);
    }
  }
  if (kPrefetch && d < depth) {
#pragma GCC unroll 4
    for (size_t n = 0; n < kK; ++n) {
      PrefetchVectors<1>(keys[n] + d, far, near);
    }
  }
  for (; d + kPaired <= depth; d += kPaired) {
    MulAddKeys<0>(keys, d, q, ldq, acc);
    MulAddKeys<1>(keys, d, q, ldq, acc);
  }
  if (d < depth) {
#pragma GCC unroll 4
    for (size_t r = 0; r < kR; ++r) {
      const VF y = hn::LoadU(kDF, q + static_cast<int64_t>(r) * ldq + d);
#pragma GCC unroll 4
      for (size_t n = 0; n < kK; ++n) {
        acc[r][n] = hn::MulAdd(Promote(kDF, keys[n] + d), y, acc[r][n]);
      }
    }
  }
  StoreDots<kR, kK>(acc, s, lds);
}

// How DotAllKeys multiplies queries and keys: DotKeys, or its integer version.
struct ByFloats {
  template <size_t kR, size_t kK, bool kPrefetch, typename T>
  static HWY_INLINE void Dot(const T* const (&keys)[kK],
                             const float* HWY_RESTRICT q, int64_t ldq,
                             int64_t depth, int64_t far, int64_t near,
                             float* HWY_RESTRICT s, int64_t lds) {
    DotKeys<kR, kK, kPrefetch>(keys, q, ldq, depth, far, near, s, lds);
  }
};

// s[r][j - begin] = q[r].key j for keys [begin, end). Writes up to three floats
// past the end of each row of s. Not inlined, to relieve registers.
template <typename By, size_t kR, bool kPrefetch, typename T, typename Q>
HWY_NOINLINE void DotAllKeys(RowsOf<T> keys, int64_t begin, int64_t end,
                             const Q* HWY_RESTRICT q, int64_t ldq,
                             int64_t depth, int64_t far, float* HWY_RESTRICT s,
                             int64_t lds) {
  constexpr int64_t kK = static_cast<int64_t>(kShared<kR>);
  const int64_t step = keys.stride, near = 4 * step;
  int64_t j = begin;
  // The common case in a separate loop, which keeps its pointers in registers.
  if (keys.source == nullptr) {
    const T* k = keys[begin];
    for (; j + kK <= end; j += kK, k += kK * step) {
      const T* at[kShared<kR>];
#pragma GCC unroll 4
      for (int64_t n = 0; n < kK; ++n) at[n] = k + n * step;
      By::template Dot<kR, kShared<kR>, kPrefetch>(at, q, ldq, depth, far, near,
                                                   s + (j - begin), lds);
    }
  }
  for (; j < end; j += kK) {
    const T* at[kShared<kR>];
    for (int64_t n = 0; n < kK; ++n) at[n] = keys[std::min(j + n, end - 1)];
    By::template Dot<kR, kShared<kR>, kPrefetch>(at, q, ldq, depth, far, near,
                                                 s + (j - begin), lds);
  }
}

// Calls f.operator()<kR, kPrefetch>(j, stop, r) for keys [j, stop) and rows [r,
// r + kR), which cover all keys and rows. Few keys at a time, so that those
// loaded into L1 for the first rows are still there for the next: 32 keys of
// 128 floats take 16 KiB. The first four rows prefetch later keys; so do the
// last few, which costs them little.
constexpr int64_t kKeysInL1 = 32;
template <bool kPrefetch, typename F>
HWY_INLINE void ForBlocks(int64_t begin, int64_t end, int64_t rows,
                          const F& f) {
  constexpr int64_t kMost = static_cast<int64_t>(kSharedRows);
  for (int64_t j = begin; j < end; j += kKeysInL1) {
    const int64_t stop = std::min(end, j + kKeysInL1);
    int64_t r = 0;
    if (rows >= kMost) {
      f.template operator()<kSharedRows, kPrefetch>(j, stop, r);
      r = kMost;
    }
    for (; r + kMost <= rows; r += kMost) {
      f.template operator()<kSharedRows, false>(j, stop, r);
    }
    if (r + 2 <= rows) {
      f.template operator()<2, kPrefetch>(j, stop, r);
      r += 2;
    }
    if (r < rows) f.template operator()<1, kPrefetch>(j, stop, r);
  }
}

// DotAllKeys for `rows` queries.
template <bool kPrefetch, typename By = ByFloats, typename T, typename Q>
void DotRows(RowsOf<T> keys, int64_t begin, int64_t end,
             const Q* HWY_RESTRICT q, int64_t ldq, int64_t rows, int64_t depth,
             float* HWY_RESTRICT s, int64_t lds) {
  ForBlocks<kPrefetch>(
      begin, end, rows,
      [&]<size_t kR, bool kAsk>(int64_t j, int64_t stop, int64_t r) {
        DotAllKeys<By, kR, kAsk>(keys, j, stop, q + r * ldq, ldq, depth,
                                 keys.far, s + r * lds + (j - begin), lds);
      });
}

// out[r][0 .. kC vectors) += sum over keys [begin, end) of p[r][j - begin] v_j.
template <size_t kR, size_t kC, bool kPrefetch, typename T>
HWY_INLINE void AddColumns(RowsOf<T> values, int64_t begin, int64_t end,
                           const float* HWY_RESTRICT p, int64_t ldp,
                           int64_t col, int64_t far, int64_t near,
                           float* HWY_RESTRICT out, int64_t ldo) {
  VF acc[kR][kC];
#pragma GCC unroll 4
  for (size_t r = 0; r < kR; ++r) {
#pragma GCC unroll 4
    for (size_t c = 0; c < kC; ++c) {
      acc[r][c] =
          hn::LoadU(kDF, out + static_cast<int64_t>(r) * ldo + c * kLanes);
    }
  }
  for (int64_t j = begin; j < end; ++j) {
    const T* HWY_RESTRICT v = values[j] + col;
    if constexpr (kPrefetch) PrefetchVectors<kC>(v, far, near);
    VF x[kC];
#pragma GCC unroll 4
    for (size_t c = 0; c < kC; ++c) {
      const T* at = v + c / 2 * static_cast<size_t>(kPaired);
      x[c] = kC == 1      ? Promote(kDF, v)
             : c % 2 == 0 ? PromotePart<0>(kDF, at)
                          : PromotePart<1>(kDF, at);
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < kR; ++r) {
      const VF w = hn::Set(kDF, p[static_cast<int64_t>(r) * ldp + (j - begin)]);
#pragma GCC unroll 4
      for (size_t c = 0; c < kC; ++c) {
        acc[r][c] = hn::MulAdd(w, x[c], acc[r][c]);
      }
    }
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < kR; ++r) {
#pragma GCC unroll 4
    for (size_t c = 0; c < kC; ++c) {
      hn::StoreU(acc[r][c], kDF,
                 out + static_cast<int64_t>(r) * ldo + c * kLanes);
    }
  }
}

// AddColumns for all columns; dim is a multiple of the vector length.
template <size_t kR, bool kPrefetch, typename T>
HWY_NOINLINE void AddAllColumns(RowsOf<T> values, int64_t begin, int64_t end,
                                const float* HWY_RESTRICT p, int64_t ldp,
                                int64_t dim, int64_t far,
                                float* HWY_RESTRICT out, int64_t ldo) {
  constexpr int64_t kWide = static_cast<int64_t>(kShared<kR>) * kLanesI;
  const int64_t near = 8 * values.stride;
  int64_t c = 0;
  for (; c + kWide <= dim; c += kWide) {
    // The second half of a cache line was prefetched with the first.
    if (c % kLineOf<T> == 0) {
      AddColumns<kR, kShared<kR>, kPrefetch>(values, begin, end, p, ldp, c, far,
                                             near, out + c, ldo);
    } else {
      AddColumns<kR, kShared<kR>, false>(values, begin, end, p, ldp, c, 0, 0,
                                         out + c, ldo);
    }
  }
  if (kWide > kPaired && c + kPaired <= dim) {
    AddColumns<kR, 2, kPrefetch>(values, begin, end, p, ldp, c, far, near,
                                 out + c, ldo);
    c += kPaired;
  }
  if (c < dim) {
    AddColumns<kR, 1, kPrefetch>(values, begin, end, p, ldp, c, far, near,
                                 out + c, ldo);
  }
}

// AddAllColumns for `rows` rows.
template <bool kPrefetch, typename T>
void AddWeighted(RowsOf<T> values, int64_t begin, int64_t end,
                 const float* HWY_RESTRICT p, int64_t ldp, int64_t rows,
                 int64_t dim, float* HWY_RESTRICT out, int64_t ldo) {
  ForBlocks<kPrefetch>(
      begin, end, rows,
      [&]<size_t kR, bool kAsk>(int64_t j, int64_t stop, int64_t r) {
        AddAllColumns<kR, kAsk>(values, j, stop, p + r * ldp + (j - begin), ldp,
                                dim, values.far, out + r * ldo, ldo);
      });
}

}  // namespace stream
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SIMD_STREAM_INL_H_
