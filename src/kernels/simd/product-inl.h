// The micro-kernel of all matrix products, and the packing of its operands.
// Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_SIMD_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_SIMD_PRODUCT_INL_H_
#undef LOCUS_SRC_KERNELS_SIMD_PRODUCT_INL_H_
#else
#define LOCUS_SRC_KERNELS_SIMD_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

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

constexpr int64_t kLanesI = static_cast<int64_t>(kLanes);
constexpr int64_t kRowsI = static_cast<int64_t>(kRows);
constexpr int64_t kColsI = static_cast<int64_t>(kCols);

constexpr int64_t AlignDown(int64_t n, int64_t to) { return n / to * to; }
constexpr int64_t AlignUp(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// Stores the first `count` lanes, or all of them if that is more.
template <class D>
HWY_INLINE void StoreFirst(D d, hn::Vec<D> x, int64_t count,
                           hn::TFromD<D>* to) {
  if (count >= static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(x, d, to);
  } else {
    hn::BlendedStore(x, hn::FirstN(d, static_cast<size_t>(count)), d, to);
  }
}

// A compile-time stride that converts to a number.
template <int64_t kValue>
struct Fixed {
  constexpr operator size_t() const { return kValue; }
};
constexpr Fixed<1> kAdjacent;

// Prefetches a cache line: into L2 far ahead of its use, into L1 shortly
// before. Hardware prefetchers lose track when several rows are read side by
// side; without this, a core waits for memory half of the time.
enum class Level { kL1 = 3, kL2 = 2 };
template <Level kLevel>
HWY_INLINE void Prefetch(const void* p) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(p, /*rw=*/0, /*locality=*/static_cast<int>(kLevel));
#else
  (void)p;
#endif
}

// Prefetches a row.
HWY_INLINE void PrefetchRow(const float* row, int64_t count) {
  for (int64_t d = 0; d < count; d += 16) Prefetch<Level::kL1>(row + d);
}

// acc += x * b, with the sum always left in acc's register. Left to choose, g++
// moves sums between registers with 15 of 16 in use, or 27 of 32, and spills
// some: a quarter of the instructions with AVX-512, a tenth of the speed of
// long products with AVX2.
HWY_INLINE void MulAddInto(VF x, VF b, VF& acc) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX2 && \
    (HWY_COMPILER_GCC_ACTUAL || HWY_COMPILER_CLANG)
  asm("vfmadd231ps %2, %1, %0" : "+v"(acc.raw) : "v"(b.raw), "v"(x.raw));
#else
  acc = hn::MulAdd(x, b, acc);
#endif
}

// acc0 += *x * b0 and, if kV is 2, acc1 += *x * b1.
//
// AVX-512 can broadcast *x within the multiply-add: the same arithmetic in two
// instructions instead of three. On a core without a busy sibling the third
// would be free, but it sets the speed if another hyper-thread takes every
// other cycle of the decoder. Compilers would share one broadcast unless this
// is asm.
template <bool kWithin, size_t kV>
HWY_INLINE void MulAddBroadcast(const float* x, VF b0, VF b1, VF& acc0,
                                VF& acc1) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3 && \
    (HWY_COMPILER_GCC_ACTUAL || HWY_COMPILER_CLANG)
  if constexpr (kWithin) {
    asm("vfmadd231ps %2%{1to16%}, %1, %0"
        : "+v"(acc0.raw)
        : "v"(b0.raw), "m"(*x));
    if constexpr (kV == 2) {
      asm("vfmadd231ps %2%{1to16%}, %1, %0"
          : "+v"(acc1.raw)
          : "v"(b1.raw), "m"(*x));
    }
    return;
  }
#endif
  const VF all = hn::Set(kDF, *x);
  MulAddInto(all, b0, acc0);
  if constexpr (kV == 2) MulAddInto(all, b1, acc1);
}

// The accumulators of a product: kV vectors for each row. Rows are compile-time
// indices rather than a loop: only then do compilers keep all sums in registers
// wherever the product is inlined.
template <size_t kV, typename Rows>
struct Sums;
template <size_t kV, size_t... kRow>
struct Sums<kV, std::index_sequence<kRow...>> {
  HWY_INLINE Sums() {
    ((x0[kRow] = hn::Zero(kDF), x1[kRow] = hn::Zero(kDF)), ...);
  }
  // Adds the outer product of A's column, A[r] at a[r * ar], and B's row at b.
  template <typename Stride>
  HWY_INLINE void Add(const float* a, Stride ar, const float* b) {
    const VF b0 = hn::LoadU(kDF, b);
    const VF b1 = kV == 2 ? hn::LoadU(kDF, b + kLanes) : b0;
    (MulAddBroadcast<kWithin<Stride, kRow>, kV>(
         a + kRow * static_cast<size_t>(ar), b0, b1, x0[kRow], x1[kRow]),
     ...);
  }
  template <typename End>
  HWY_INLINE void Finish(const End& end) const {
    if constexpr (kV == 2) {
      (end(kRow, x0[kRow], x1[kRow]), ...);
    } else {
      (end(kRow, x0[kRow]), ...);
    }
  }
  // Two of three rows broadcast within the multiply-add: with more the load
  // ports, with fewer the decoder would be the bottleneck.
  template <typename Stride, size_t kR>
  static constexpr bool kWithin = !std::is_integral_v<Stride> && kR % 3 != 0;

  VF x0[sizeof...(kRow)];
  VF x1[sizeof...(kRow)];
};

// sum_k A[k, r] B[k, :] for kR rows and kV vectors of columns, one or two.
//
// A is read at a[k * ak + r * ar], B at b[k * bk ..]; loads may be unaligned.
// With a Fixed `ar`, the rows of A are constant displacements from one address,
// as the broadcast within a multiply-add needs. The epilogue end(r, x0, x1), or
// end(r, x0), receives the sum of row r in registers; it is inlined.
template <size_t kR = kRows, size_t kV = 2, typename Stride, typename End>
HWY_INLINE void Product(const float* HWY_RESTRICT a, size_t ak, Stride ar,
                        const float* HWY_RESTRICT b, int64_t bk, size_t depth,
                        const End& end) {
  static_assert(kR <= kRows && (kV == 1 || kV == 2));
  Sums<kV, std::make_index_sequence<kR>> sums;
  // Unrolled by four: otherwise one instruction in ten is loop overhead.
  size_t left = depth;
  for (; left >= 4; left -= 4) {
    sums.Add(a, ar, b);
    sums.Add(a + ak, ar, b + bk);
    sums.Add(a + 2 * ak, ar, b + 2 * bk);
    sums.Add(a + 3 * ak, ar, b + 3 * bk);
    a += 4 * ak;
    b += 4 * bk;
  }
  for (; left > 0; --left) {
    sums.Add(a, ar, b);
    a += ak;
    b += bk;
  }
  sums.Finish(end);
}

// Epilogues of a product.
struct Store {
  HWY_INLINE void operator()(size_t r, VF x0, VF x1) const {
    hn::StoreU(x0, kDF, c + r * ldc);
    hn::StoreU(x1, kDF, c + r * ldc + kLanes);
  }
  float* HWY_RESTRICT c;
  size_t ldc;
};
// Adds row[r][0..kCols) first. Added terms come after the product: a large bias
// at the start would cost every step of the sum precision.
template <typename End>
struct AddRows {
  HWY_INLINE void operator()(size_t r, VF x0, VF x1) const {
    end(r, hn::Add(x0, hn::LoadU(kDF, row[r])),
        hn::Add(x1, hn::LoadU(kDF, row[r] + kLanes)));
  }
  const float* const* row;
  End end;
};
// Adds scale * row[r][0..kCols).
template <typename End>
struct AddScaledRows {
  HWY_INLINE void operator()(size_t r, VF x0, VF x1) const {
    end(r, hn::MulAdd(scale, hn::LoadU(kDF, row[r]), x0),
        hn::MulAdd(scale, hn::LoadU(kDF, row[r] + kLanes), x1));
  }
  VF scale;
  const float* const* row;
  End end;
};
// Adds x[r] + (y0, y1).
template <typename End>
struct AddOuter {
  HWY_INLINE void operator()(size_t r, VF x0, VF x1) const {
    const VF own = hn::Set(kDF, x[r]);
    end(r, hn::Add(x0, hn::Add(own, y0)), hn::Add(x1, hn::Add(own, y1)));
  }
  VF y0, y1;
  const float* x;
  End end;
};
// Adds the same row[0..kCols) to every row.
template <typename End>
struct AddRow {
  HWY_INLINE void operator()(size_t r, VF x0, VF x1) const {
    end(r, hn::Add(x0, hn::LoadU(kDF, row)),
        hn::Add(x1, hn::LoadU(kDF, row + kLanes)));
  }
  const float* row;
  End end;
};
// Also updates the maximum of each row per lane, in max [kRows][kLanes].
struct StoreMax {
  HWY_INLINE void operator()(size_t r, VF x0, VF x1) const {
    hn::StoreU(x0, kDF, c + r * ldc);
    hn::StoreU(x1, kDF, c + r * ldc + kLanes);
    const VF old = hn::Load(kDF, max + r * kLanes);
    hn::Store(hn::Max(old, hn::Max(x0, x1)), kDF, max + r * kLanes);
  }
  float* HWY_RESTRICT c;
  size_t ldc;
  float* HWY_RESTRICT max;
};
// C += the product.
struct AddTo {
  HWY_INLINE void operator()(size_t r, VF x0, VF x1) const {
    float* HWY_RESTRICT to = c + r * ldc;
    hn::StoreU(hn::Add(hn::LoadU(kDF, to), x0), kDF, to);
    hn::StoreU(hn::Add(hn::LoadU(kDF, to + kLanes), x1), kDF, to + kLanes);
  }
  float* HWY_RESTRICT c;
  size_t ldc;
};
// C = rescale[r] * C + the product.
struct ScaleAddTo {
  HWY_INLINE void operator()(size_t r, VF x0, VF x1) const {
    float* HWY_RESTRICT to = c + r * ldc;
    const VF k = hn::Set(kDF, rescale[r]);
    hn::StoreU(hn::MulAdd(k, hn::LoadU(kDF, to), x0), kDF, to);
    hn::StoreU(hn::MulAdd(k, hn::LoadU(kDF, to + kLanes), x1), kDF,
               to + kLanes);
  }
  const float* HWY_RESTRICT rescale;
  float* HWY_RESTRICT c;
  size_t ldc;
};

#if HWY_TARGET != HWY_SCALAR
// Stores the blocks of four lanes of x, `stride` apart.
template <class D>
HWY_INLINE void StoreQuads(D d, hn::Vec<D> x, float* HWY_RESTRICT to,
                           size_t stride) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(x, d, to);
  } else {
    const hn::Half<D> half;
    StoreQuads(half, hn::LowerHalf(half, x), to, stride);
    StoreQuads(half, hn::UpperHalf(half, x),
               to + hn::MaxLanes(half) / 4 * stride, stride);
  }
}
#endif

// Transposes four rows into columns of a packed operand: to[d * stride + 0..3]
// = row0..3[d].
HWY_INLINE void Transpose4(const float* HWY_RESTRICT row0,
                           const float* HWY_RESTRICT row1,
                           const float* HWY_RESTRICT row2,
                           const float* HWY_RESTRICT row3, size_t depth,
                           float* HWY_RESTRICT to, size_t stride) {
#if HWY_TARGET == HWY_SCALAR
  const size_t whole = 0;
#else
  const size_t whole = depth / kLanes * kLanes;
  // In each block of four lanes: pairs of rows, then pairs of pairs.
  const hn::Repartition<uint64_t, DF> pairs;
  const auto store = [&](auto x, size_t d) HWY_ATTR {
    StoreQuads(kDF, hn::BitCast(kDF, x), to + d * stride, 4 * stride);
  };
  for (size_t d = 0; d < whole; d += kLanes) {
    const VF x0 = hn::LoadU(kDF, row0 + d), x1 = hn::LoadU(kDF, row1 + d);
    const VF x2 = hn::LoadU(kDF, row2 + d), x3 = hn::LoadU(kDF, row3 + d);
    const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(kDF, x0, x1));
    const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(kDF, x2, x3));
    const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(kDF, x0, x1));
    const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(kDF, x2, x3));
    store(hn::InterleaveLower(pairs, low01, low23), d);
    store(hn::InterleaveUpper(pairs, low01, low23), d + 1);
    store(hn::InterleaveLower(pairs, high01, high23), d + 2);
    store(hn::InterleaveUpper(pairs, high01, high23), d + 3);
  }
#endif
  for (size_t d = whole; d < depth; ++d) {
    to[d * stride] = row0[d];
    to[d * stride + 1] = row1[d];
    to[d * stride + 2] = row2[d];
    to[d * stride + 3] = row3[d];
  }
}

// Transposes rows [kRows][depth] into a block [depth][kRows], four at a time;
// the last four may overlap the previous ones.
inline void PackBlock(const float* rows, int64_t depth, float* block) {
  static_assert(kRows >= 4);
  for (int64_t next = 0; next < kRowsI; next += 4) {
    const int64_t r = std::min(next, kRowsI - 4);
    const float* row = rows + r * depth;
    Transpose4(row, row + depth, row + 2 * depth, row + 3 * depth,
               static_cast<size_t>(depth), block + r, kRows);
  }
}

// y = w x; AddScaled: y += w x.
HWY_INLINE void SetScaled(float w, const float* x, int64_t count, float* y) {
  const VF all = hn::Set(kDF, w);
  const int64_t whole = AlignDown(count, kLanesI);
  int64_t d = 0;
  for (; d < whole; d += kLanesI) {
    hn::StoreU(hn::Mul(all, hn::LoadU(kDF, x + d)), kDF, y + d);
  }
  for (; d < count; ++d) y[d] = w * x[d];
}
inline void AddScaled(float w, const float* x, int64_t count, float* y) {
  const VF all = hn::Set(kDF, w);
  int64_t d = 0;
  for (; d + kLanesI <= count; d += kLanesI) {
    hn::StoreU(hn::MulAdd(all, hn::LoadU(kDF, x + d), hn::LoadU(kDF, y + d)),
               kDF, y + d);
  }
  for (; d < count; ++d) y[d] += w * x[d];
}

// Whether all elements are finite.
inline bool Finite(const float* x, int64_t count) {
  VF sum = hn::Zero(kDF);  // x * 0 is 0 if x is finite, else NaN
  int64_t d = 0;
  for (; d + kLanesI <= count; d += kLanesI) {
    sum = hn::MulAdd(hn::LoadU(kDF, x + d), hn::Zero(kDF), sum);
  }
  float rest = hn::GetLane(hn::SumOfLanes(kDF, sum));
  for (; d < count; ++d) rest += x[d] * 0.0F;
  return rest == 0.0F;
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SIMD_PRODUCT_INL_H_
