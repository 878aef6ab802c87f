// Rows that are read once, straight from where they lie: dot products of a few
// queries with many keys, and weighted sums of many values. Storage types are
// converted in registers. Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_STREAM_INL_H_
#undef LOCUS_SRC_KERNELS_STREAM_INL_H_
#else
#define LOCUS_SRC_KERNELS_STREAM_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/narrow-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

// One vector of floats from any storage type.
HWY_INLINE VF LoadFloats(const float* p) { return hn::LoadU(kDF, p); }
HWY_INLINE VF LoadFloats(const hwy::bfloat16_t* p) {
  return Widen<DType::kBF16>(kDF, reinterpret_cast<const uint16_t*>(p));
}
HWY_INLINE VF LoadFloats(const hwy::float16_t* p) {
  return Widen<DType::kF16>(kDF, reinterpret_cast<const uint16_t*>(p));
}

// Two vectors at a time, the order of which is the storage type's own: bf16
// comes as even and odd elements, see WidenPart. kPart 0 or 1 of the elements
// from p on.
template <size_t kPart, typename T>
HWY_INLINE VF LoadPart(const T* p) {
  if constexpr (std::is_same_v<T, hwy::bfloat16_t>) {
    return WidenPart<kPart>(kDF, reinterpret_cast<const uint16_t*>(p));
  }
  return LoadFloats(p + kPart * kLanes);
}

// Puts x [dim] into the order of LoadPart, and back. An odd vector at the end
// stays as it is.
constexpr int64_t kPaired = 2 * kLanesI;
inline void ToParts(int64_t dim, float* x) { ToPartOrder(kDF, x, dim, x); }
inline void FromParts(int64_t dim, float* x) {
  for (int64_t d = 0; d + kPaired <= dim; d += kPaired) {
    const VF even = hn::LoadU(kDF, x + d);
    const VF odd = hn::LoadU(kDF, x + d + kLanesI);
    hn::StoreInterleaved2(even, odd, kDF, x + d);
  }
}

// Asks for a line ahead of its use: far ahead into L2, shortly before into L1.
// The hardware's own streams lose track where rows are read side by side;
// without this a core waits for memory half of the time.
enum class Level { kL1 = 3, kL2 = 2 };
template <Level kLevel>
HWY_INLINE void Fetch(const void* p) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(p, /*rw=*/0, /*locality=*/static_cast<int>(kLevel));
#else
  (void)p;
#endif
}

// Rows of one head, `stride` elements apart; row j of the sorted order lies at
// source[j], or at j itself without `source`.
template <typename T>
struct RowsOf {
  const T* operator[](int64_t j) const {
    return base + (source == nullptr ? j : source[j]) * stride;
  }
  // Rows of `dim` elements to one about 16 KiB later: twice the latency of
  // memory under load, some 500 ns, times one core's bandwidth. Half as much is
  // slightly worse, twice as much changes little.
  static int64_t FarRows(int64_t dim) {
    const int64_t bytes = dim * static_cast<int64_t>(sizeof(T));
    return std::max<int64_t>(8, 16384 / bytes);
  }
  // The same in elements.
  int64_t Far(int64_t dim) const { return FarRows(dim) * stride; }

  const T* base;
  int64_t stride;
  const int64_t* source;
};

// Asks for kVectors vectors, `far` and `near` elements after p.
template <size_t kVectors, typename T>
HWY_INLINE void FetchVectors(const T* p, int64_t far, int64_t near) {
  constexpr int64_t kBytes =
      static_cast<int64_t>(kVectors * kLanes * sizeof(T));
#pragma GCC unroll 4
  for (int64_t n = 0; n < kBytes; n += 64) {
    Fetch<Level::kL2>(reinterpret_cast<const char*>(p + far) + n);
    Fetch<Level::kL1>(reinterpret_cast<const char*>(p + near) + n);
  }
}

// Rows of queries that share a loaded key, and columns of values: 4 x 4
// accumulators, four loaded vectors and broadcasts fit 32 registers; with 16
// there is room for 2 x 4.
constexpr size_t kSharedRows = kLanes >= 16 ? 4 : 2;
constexpr size_t kSharedKeys = 4;
constexpr size_t kSharedCols = 4;

// to[0 .. 4) = the sums of the lanes of a, b, c and e.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void StoreSums(VF a, VF b, VF c, VF e, float* to) {
  to[0] = hn::GetLane(a);
  to[1] = hn::GetLane(b);
  to[2] = hn::GetLane(c);
  to[3] = hn::GetLane(e);
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

// Two rounds of interleave and add inside 128-bit blocks, then the blocks.
HWY_INLINE void StoreSums(VF a, VF b, VF c, VF e, float* to) {
  const hn::Repartition<uint64_t, DF> du;
  const VF ab =
      hn::Add(hn::InterleaveLower(kDF, a, b), hn::InterleaveUpper(kDF, a, b));
  const VF ce =
      hn::Add(hn::InterleaveLower(kDF, c, e), hn::InterleaveUpper(kDF, c, e));
  const auto ab2 = hn::BitCast(du, ab), ce2 = hn::BitCast(du, ce);
  const VF sums = hn::Add(hn::BitCast(kDF, hn::InterleaveLower(du, ab2, ce2)),
                          hn::BitCast(kDF, hn::InterleaveUpper(du, ab2, ce2)));
  hn::StoreU(SumOfBlocks(kDF, sums), hn::Full128<float>(), to);
}
#endif

// acc[r][n] += x_n q[r] for one vector of four keys.
template <size_t kR>
HWY_INLINE void MulAddFour(VF x0, VF x1, VF x2, VF x3,
                           const float* HWY_RESTRICT q, int64_t ldq,
                           VF (&acc)[kR][kSharedKeys]) {
#pragma GCC unroll 4
  for (size_t r = 0; r < kR; ++r) {
    const VF y = hn::LoadU(kDF, q + static_cast<int64_t>(r) * ldq);
    acc[r][0] = hn::MulAdd(x0, y, acc[r][0]);
    acc[r][1] = hn::MulAdd(x1, y, acc[r][1]);
    acc[r][2] = hn::MulAdd(x2, y, acc[r][2]);
    acc[r][3] = hn::MulAdd(x3, y, acc[r][3]);
  }
}

// s[r][0 .. 4) = q[r] . key[0 .. 4) for kR queries; depth in whole vectors.
// kFetch: also asks for the keys `far` and `near` elements later.
template <size_t kR, bool kFetch, typename T>
HWY_INLINE void DotFour(const T* HWY_RESTRICT k0, const T* HWY_RESTRICT k1,
                        const T* HWY_RESTRICT k2, const T* HWY_RESTRICT k3,
                        const float* HWY_RESTRICT q, int64_t ldq, int64_t depth,
                        int64_t far, int64_t near, float* HWY_RESTRICT s,
                        int64_t lds) {
  VF acc[kR][kSharedKeys];
#pragma GCC unroll 4
  for (size_t r = 0; r < kR; ++r) {
#pragma GCC unroll 4
    for (size_t n = 0; n < kSharedKeys; ++n) acc[r][n] = hn::Zero(kDF);
  }
  int64_t d = 0;
  for (; d + kPaired <= depth; d += kPaired) {
    if constexpr (kFetch) {
      FetchVectors<2>(k0 + d, far, near);
      FetchVectors<2>(k1 + d, far, near);
      FetchVectors<2>(k2 + d, far, near);
      FetchVectors<2>(k3 + d, far, near);
    }
    MulAddFour<kR>(LoadPart<0>(k0 + d), LoadPart<0>(k1 + d),
                   LoadPart<0>(k2 + d), LoadPart<0>(k3 + d), q + d, ldq, acc);
    MulAddFour<kR>(LoadPart<1>(k0 + d), LoadPart<1>(k1 + d),
                   LoadPart<1>(k2 + d), LoadPart<1>(k3 + d), q + d + kLanesI,
                   ldq, acc);
  }
  if (d < depth) {
    MulAddFour<kR>(LoadFloats(k0 + d), LoadFloats(k1 + d), LoadFloats(k2 + d),
                   LoadFloats(k3 + d), q + d, ldq, acc);
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < kR; ++r) {
    StoreSums(acc[r][0], acc[r][1], acc[r][2], acc[r][3],
              s + static_cast<int64_t>(r) * lds);
  }
}

// s[r][j - begin] = q[r] . key j for keys [begin, end) and `rows` queries.
// Writes up to three floats past the end of each row of s.
template <bool kFetch, typename T>
void DotRows(RowsOf<T> keys, int64_t begin, int64_t end,
             const float* HWY_RESTRICT q, int64_t ldq, int64_t rows,
             int64_t depth, float* HWY_RESTRICT s, int64_t lds) {
  constexpr int64_t kMost = static_cast<int64_t>(kSharedRows);
  const int64_t step = keys.stride, far = keys.Far(depth), near = 4 * step;
  int64_t j = begin;
  // The usual case in a loop of its own, which has registers for its pointers.
  if (keys.source == nullptr && rows == kMost) {
    const T* k = keys[begin];
    for (; j + 4 <= end; j += 4, k += 4 * step) {
      DotFour<kSharedRows, kFetch>(k, k + step, k + 2 * step, k + 3 * step, q,
                                   ldq, depth, far, near, s + (j - begin), lds);
    }
  }
  for (; j < end; j += 4) {
    const T* k0 = keys[j];
    const T* k1 = keys[std::min(j + 1, end - 1)];
    const T* k2 = keys[std::min(j + 2, end - 1)];
    const T* k3 = keys[std::min(j + 3, end - 1)];
    float* to = s + (j - begin);
    // The first rows to meet a key ask for a later one; so do the last few,
    // which then find it on its way.
    int64_t r = 0;
    if (rows >= kMost) {
      DotFour<kSharedRows, kFetch>(k0, k1, k2, k3, q, ldq, depth, far, near, to,
                                   lds);
      r = kMost;
    }
    for (; r + kMost <= rows; r += kMost) {
      DotFour<kSharedRows, false>(k0, k1, k2, k3, q + r * ldq, ldq, depth, 0, 0,
                                  to + r * lds, lds);
    }
    if (kMost > 2 && r + 2 <= rows) {
      DotFour<2, kFetch>(k0, k1, k2, k3, q + r * ldq, ldq, depth, far, near,
                         to + r * lds, lds);
      r += 2;
    }
    if (r < rows) {
      DotFour<1, kFetch>(k0, k1, k2, k3, q + r * ldq, ldq, depth, far, near,
                         to + r * lds, lds);
    }
  }
}

// out[r][0 .. kC vectors) += sum over keys [begin, end) of p[r][j - begin] v_j.
template <size_t kR, size_t kC, bool kFetch, typename T>
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
    if constexpr (kFetch) FetchVectors<kC>(v, far, near);
    VF x[kC];
#pragma GCC unroll 4
    for (size_t c = 0; c < kC; ++c) {
      const T* at = v + c / 2 * static_cast<size_t>(kPaired);
      x[c] = kC == 1      ? LoadFloats(v)
             : c % 2 == 0 ? LoadPart<0>(at)
                          : LoadPart<1>(at);
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

// The same over all columns, `dim` in whole vectors.
template <size_t kR, bool kFetch, typename T>
HWY_INLINE void AddAllColumns(RowsOf<T> values, int64_t begin, int64_t end,
                              const float* HWY_RESTRICT p, int64_t ldp,
                              int64_t dim, float* HWY_RESTRICT out,
                              int64_t ldo) {
  constexpr int64_t kWide = static_cast<int64_t>(kSharedCols) * kLanesI;
  const int64_t far = values.Far(dim), near = 8 * values.stride;
  int64_t c = 0;
  for (; c + kWide <= dim; c += kWide) {
    AddColumns<kR, kSharedCols, kFetch>(values, begin, end, p, ldp, c, far,
                                        near, out + c, ldo);
  }
  if (c + kPaired <= dim) {
    AddColumns<kR, 2, kFetch>(values, begin, end, p, ldp, c, far, near, out + c,
                              ldo);
    c += kPaired;
  }
  if (c < dim) {
    AddColumns<kR, 1, kFetch>(values, begin, end, p, ldp, c, far, near, out + c,
                              ldo);
  }
}

// The same for `rows` rows. Few keys at a time, so that what one slab of
// columns or rows has brought into L1 is there for the next: 32 rows of 128
// floats are 16 KiB.
constexpr int64_t kKeysInL1 = 32;
template <bool kFetch, typename T>
void AddWeighted(RowsOf<T> values, int64_t begin, int64_t end,
                 const float* HWY_RESTRICT p, int64_t ldp, int64_t rows,
                 int64_t dim, float* HWY_RESTRICT out, int64_t ldo) {
  constexpr int64_t kMost = static_cast<int64_t>(kSharedRows);
  for (int64_t j = begin; j < end; j += kKeysInL1) {
    const int64_t stop = std::min(end, j + kKeysInL1);
    const float* w = p + (j - begin);
    int64_t r = 0;
    if (rows >= kMost) {
      AddAllColumns<kSharedRows, kFetch>(values, j, stop, w, ldp, dim, out,
                                         ldo);
      r = kMost;
    }
    for (; r + kMost <= rows; r += kMost) {
      AddAllColumns<kSharedRows, false>(values, j, stop, w + r * ldp, ldp, dim,
                                        out + r * ldo, ldo);
    }
    if (kMost > 2 && r + 2 <= rows) {
      AddAllColumns<2, kFetch>(values, j, stop, w + r * ldp, ldp, dim,
                               out + r * ldo, ldo);
      r += 2;
    }
    if (r < rows) {
      AddAllColumns<1, kFetch>(values, j, stop, w + r * ldp, ldp, dim,
                               out + r * ldo, ldo);
    }
  }
}

}  // namespace stream
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_STREAM_INL_H_
