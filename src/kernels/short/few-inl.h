// The shortest calls: at most four keys, and operands that can be used where
// they lie. Nothing is planned, copied or kept: such a call is over in the time
// that setting up the general way takes. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_SHORT_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_SHORT_FEW_INL_H_
#undef LOCUS_SRC_KERNELS_SHORT_FEW_INL_H_
#else
#define LOCUS_SRC_KERNELS_SHORT_FEW_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "kernels/short/call.h"
#include "kernels/short/rows-inl.h"
#include "kernels/simd/stream-inl.h"
#include "kernels/terms/log2_domain.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace short_seq {

using kernels::ShortCall;

// Dot products with four keys cost about what transposing them would.
constexpr int64_t kFewKeys = std::min<int64_t>(kLanesI, 4);

// Whether Few takes the call: at most kFewKeys keys that every query sees, one
// scale, no rotation, extra dimension, cap or operand, rows of floats in whole
// vectors. Not over a cache, whose keys may be of another type or in blocks:
// the bits do not depend on how it stores them.
inline bool IsFew(const ShortCall& call) {
  const CallSizes& s = call.sizes;
  if (s.k_len > kFewKeys || s.head_dim % kLanesI != 0 ||
      s.value_dim % kLanesI != 0) {
    return false;
  }
  if (call.call.plan.request.cached_keys) return false;
  const auto in_place = [](const kernels::Rows& rows) {
    return rows.dtype() == DType::kF32 && rows.unit_stride();
  };
  const Terms& terms = call.terms;
  const AttentionOptions& o = call.call.plan.options;
  return in_place(call.call.q) && in_place(call.call.k) &&
         in_place(call.call.v) && !terms.rotate && !terms.rotate_values &&
         !terms.extra_dot && !terms.scale.rows.defined() &&
         !o.sinks.defined() && !o.key_bias.defined() &&
         !o.pair_bias.defined() && o.dropout.rate == 0.0 && !o.return_weights &&
         call.call.softcap == 0.0F && o.key_lengths.empty() &&
         call.behind == BucketMap::kHighest &&
         call.ahead == BucketMap::kHighest && !call.chunks && !call.hides;
}

// Where a block of queries, and the keys and values of its head, begin.
struct FewOperands {
  const float* q;
  const float* k;
  const float* v;
};

// The lanes of a vector, or of all rows if these are fewer, seen as blocks of
// four: the greatest and the sum of a block in each of its lanes.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE VF BlockMax(VF x) { return x; }
HWY_INLINE VF BlockSum(VF x) { return x; }
#else
HWY_INLINE VF BlockMax(VF x) {
  x = hn::Max(x, hn::Shuffle2301(x));
  return hn::Max(x, hn::Shuffle1032(x));
}
HWY_INLINE VF BlockSum(VF x) {
  x = hn::Add(x, hn::Shuffle2301(x));
  return hn::Add(x, hn::Shuffle1032(x));
}
#endif

// Rows of scores lie kFewKeys apart: several to a vector.
template <size_t kR>
constexpr size_t kFewScores = std::max(kR* static_cast<size_t>(kFewKeys),
                                       kLanes);

// As SoftmaxRows, of `keys` scores in each of kR such rows: one exponential for
// as many rows as a vector holds. False, and nothing is changed, if a row needs
// the general way.
template <size_t kR>
HWY_INLINE bool SoftmaxFew(float* HWY_RESTRICT scores, int64_t keys,
                           RowState* states) {
  constexpr size_t kScores = kFewScores<kR>;
  constexpr size_t kBlock = static_cast<size_t>(kFewKeys);
  const hn::RebindToSigned<DF> di;
  const auto key = hn::And(hn::Iota(di, 0), hn::Set(di, kFewKeys - 1));
  const auto present =
      hn::RebindMask(kDF, hn::Lt(key, hn::Set(di, static_cast<int32_t>(keys))));
  HWY_ALIGN float refs[kScores];
  HWY_ALIGN float sums[kScores];
  bool usual = true;
  for (size_t n = 0; n < kScores; n += kLanes) {
    const VF x = hn::IfThenElse(present, hn::Load(kDF, scores + n),
                                hn::Set(kDF, kMinusInf));
    const VF ref = hn::Ceil(BlockMax(x));
    usual &=
        hn::AllTrue(kDF, hn::Le(hn::Abs(ref), hn::Set(kDF, kLargestReference)));
    hn::Store(ref, kDF, refs + n);
  }
  if (!usual) return false;
  for (size_t n = 0; n < kScores; n += kLanes) {
    const VF p = hn::IfThenElseZero(
        present, Exp2(hn::Load(kDF, scores + n),
                      Exp2Reference(hn::Load(kDF, refs + n))));
    hn::Store(BlockSum(p), kDF, sums + n);
    hn::Store(p, kDF, scores + n);
  }
  for (size_t r = 0; r < kR; ++r) {
    states[r] = {.ref = refs[r * kBlock], .sum = sums[r * kBlock]};
  }
  return true;
}

// The same for any scores, row by row.
template <size_t kR>
HWY_NOINLINE void SoftmaxAnyFew(float* scores, int64_t keys, RowState* states) {
  for (size_t r = 0; r < kR; ++r) {
    // A row is written in whole vectors.
    HWY_ALIGN float row[kLanes] = {};
    std::copy_n(scores + r * kFewKeys, keys, row);
    states[r] = RowState();
    OnlineSoftmaxRow(row, keys, RowMax(row, keys), states[r]);
    std::copy_n(row, keys, scores + r * kFewKeys);
  }
}

// Attends kR queries of head h from query i on: out [kR][Dv] and, unless
// nullptr, lse [kR].
template <size_t kR>
HWY_INLINE void AttendFew(const ShortCall& call, const FewOperands& in,
                          int64_t h, int64_t i, float* out, float* lse) {
  const CallSizes& s = call.sizes;
  constexpr int64_t kCount = static_cast<int64_t>(kR);
  constexpr size_t kScores = kFewScores<kR>;
  // Four sums may be written where there are fewer keys or lanes.
  HWY_ALIGN float p[std::max<size_t>(kScores, kR * 4)] = {};
  const auto key = [&](int64_t j) {
    return in.k + std::min(j, s.k_len - 1) * call.call.k.row_stride();
  };
  if constexpr (kR == 1) {
    // A vector that is stored whole is loaded again without waiting.
    VF dots = hn::Zero(kDF);
    for (int64_t j = 0; j < s.k_len; ++j) {
      const auto here =
          hn::Eq(hn::Iota(kDF, 0.0F), hn::Set(kDF, static_cast<float>(j)));
      dots = hn::IfThenElse(here, Dot(in.q, key(j), s.head_dim), dots);
    }
    hn::StoreU(dots, kDF, p);
  } else {
    // As many rows as share four keys.
    constexpr size_t kStep = stream::kShared<kR> == 4 ? kR : 2;
    const int64_t step = call.call.q.row_stride();
    const float* const keys[] = {key(0), key(1), key(2), key(3)};
    for (size_t r = 0; r < kR; r += kStep) {
      stream::DotKeys<kStep, 4, /*kPrefetch=*/false>(
          keys, in.q + static_cast<int64_t>(r) * step, step, s.head_dim,
          /*far=*/0, /*near=*/0, p + r * kFewKeys, kFewKeys);
    }
  }
  const VF scale =
      hn::Set(kDF, static_cast<float>(call.terms.scale.scale * kLog2E));
  for (size_t n = 0; n < kScores; n += kLanes) {
    hn::Store(hn::Mul(scale, hn::Load(kDF, p + n)), kDF, p + n);
  }
  if (call.bias != nullptr) {
    for (int64_t r = 0; r < kCount; ++r) {
      const float* bias = call.BiasRow(h, i + r);
      for (int64_t j = 0; j < s.k_len; ++j) p[r * kFewKeys + j] += bias[j];
    }
  }
  RowState states[kR];
  if (!SoftmaxFew<kR>(p, s.k_len, states)) {
    SoftmaxAnyFew<kR>(p, s.k_len, states);
  }
  float inverse[kR];
  for (size_t r = 0; r < kR; ++r) inverse[r] = InverseSum(states[r]);
  MultiplyValues<kR>(p, Fixed<kFewKeys>(), in.v, call.call.v.row_stride(),
                     s.k_len, s.value_dim,
                     ScaleStore{inverse, kCount, out, s.value_dim});
  if (lse == nullptr) return;
  for (size_t r = 0; r < kR; ++r) lse[r] = LogSumExp(states[r]);
}

// Attends query i of head h to a single key, which has all the weight: false,
// and nothing is done, if the score is not finite.
HWY_INLINE bool OneKey(const ShortCall& call, const FewOperands& in, int64_t h,
                       int64_t i, float* out, float* lse) {
  const CallSizes& s = call.sizes;
  float score = hn::GetLane(Dot(in.q, in.k, s.head_dim)) *
                static_cast<float>(call.terms.scale.scale);
  if (call.bias != nullptr) {
    score += *call.BiasRow(h, i) * static_cast<float>(1.0 / kLog2E);
  }
  if (!std::isfinite(score)) return false;
  for (int64_t c = 0; c < s.value_dim; c += kLanesI) {
    hn::StoreU(hn::LoadU(kDF, in.v + c), kDF, out + c);
  }
  if (lse != nullptr) *lse = score;
  return true;
}

// The whole call, on one thread. out [B, Hq, Lq, Dv], lse [B, Hq, Lq] or
// nullptr.
inline void Few(const ShortCall& call, float* out, float* lse) {
  const CallSizes& s = call.sizes;
  const int64_t group = s.q_heads == s.kv_heads ? 1 : s.q_heads / s.kv_heads;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.q_heads; ++h) {
      const int64_t kv = group == 1 ? h : h / group;
      FewOperands in{.q = call.call.q.At<float>(b, h, 0),
                     .k = call.call.k.At<float>(b, kv, 0),
                     .v = call.call.v.At<float>(b, kv, 0)};
      for (int64_t i = 0; i < s.q_len;) {
        const int64_t left = s.q_len - i;
        int64_t rows = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (s.k_len == 1 && OneKey(call, in, h, i, out, lse)) {
          rows = 1;
        } else if (rows == 4) {
          AttendFew<4>(call, in, h, i, out, lse);
        } else if (rows == 2) {
          AttendFew<2>(call, in, h, i, out, lse);
        } else {
          AttendFew<1>(call, in, h, i, out, lse);
        }
        i += rows;
        in.q += rows * call.call.q.row_stride();
        out += rows * s.value_dim;
        if (lse != nullptr) lse += rows;
      }
    }
  }
}

}  // namespace short_seq

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SHORT_FEW_INL_H_
