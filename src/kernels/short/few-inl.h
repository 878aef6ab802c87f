// The shortest calls: at most four keys, and operands that can be read in
// place. Nothing is planned, copied or cached: such a call takes no longer than
// the setup of the general path. Compiled once per SIMD target.
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
#include "kernels/terms/softmax_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace short_seq {

using kernels::ShortCall;

// Whether Few accepts the call: at most kBlockKeys keys, for which dot products
// cost about as much as transposing the keys; all keys visible to all queries;
// one scale; no rotation, extra dimensions, soft cap or operands; f32 rows of
// whole vectors. Not for a cache, whose keys may have another type or lie in
// blocks: results must not depend on how a cache stores them.
inline bool IsFew(const ShortCall& call) {
  const CallSizes& s = call.sizes;
  if (s.k_len > kBlockKeys || s.head_dim % kLanesI != 0 ||
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

// The first rows of a block of queries, and of the keys and values of its head.
struct FewOperands {
  const float* q;
  const float* k;
  const float* v;
};

// Attention of kR queries of head h from query i on: writes out [kR][Dv], whose
// rows are `step` floats apart, and, unless nullptr, lse [kR].
template <size_t kR>
HWY_INLINE void AttendFew(const ShortCall& call, const FewOperands& in,
                          int64_t h, int64_t i, float* out, int64_t step,
                          float* lse) {
  const CallSizes& s = call.sizes;
  constexpr int64_t kCount = static_cast<int64_t>(kR);
  constexpr size_t kScores = kBlockScores<kR>;
  // At least 4 x kR, since DotKeys writes four sums per row.
  HWY_ALIGN float p[std::max<size_t>(kScores, kR * 4)] = {};
  const auto key = [&](int64_t j) {
    return in.k + std::min(j, s.k_len - 1) * call.call.k.row_stride();
  };
  if constexpr (kR == 1) {
    // A stored whole vector can be reloaded without a store-forwarding stall.
    VF dots = hn::Zero(kDF);
    for (int64_t j = 0; j < s.k_len; ++j) {
      const auto here =
          hn::Eq(hn::Iota(kDF, 0.0F), hn::Set(kDF, static_cast<float>(j)));
      dots = hn::IfThenElse(here, Dot(in.q, key(j), s.head_dim), dots);
    }
    hn::StoreU(dots, kDF, p);
  } else {
    // DotKeys shares four keys among up to kStep rows.
    constexpr size_t kStep = stream::kShared<kR> == 4 ? kR : 2;
    const int64_t q_step = call.call.q.row_stride();
    const float* const keys[] = {key(0), key(1), key(2), key(3)};
    for (size_t r = 0; r < kR; r += kStep) {
      stream::DotKeys<kStep, 4, /*kPrefetch=*/false>(
          keys, in.q + static_cast<int64_t>(r) * q_step, q_step, s.head_dim,
          /*far=*/0, /*near=*/0, p + r * kBlockKeys, kBlockKeys);
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
      for (int64_t j = 0; j < s.k_len; ++j) p[r * kBlockKeys + j] += bias[j];
    }
  }
  RowState states[kR];
  SoftmaxBlocks<kR>(p, s.k_len, states);
  float inverse[kR];
  for (size_t r = 0; r < kR; ++r) inverse[r] = InverseSum(states[r]);
  MultiplyValues<kR>(p, Fixed<kBlockKeys>(), in.v, call.call.v.row_stride(),
                     s.k_len, s.value_dim,
                     ScaleStore{inverse, kCount, out, step});
  if (lse == nullptr) return;
  for (size_t r = 0; r < kR; ++r) lse[r] = LogSumExp(states[r]);
}

// Attention of query i of head h to a single key, which has weight 1. Returns
// false without writing if the score is not finite.
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

// Runs the whole call on one thread.
inline void Few(const ShortCall& call, const kernels::CallResult& result) {
  const CallSizes& s = call.sizes;
  const int64_t step = result.out.strides()[2];
  float* lse = result.lse;
  const int64_t group = s.q_heads == s.kv_heads ? 1 : s.q_heads / s.kv_heads;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.q_heads; ++h) {
      const int64_t kv = group == 1 ? h : h / group;
      FewOperands in{.q = call.call.q.At<float>(b, h, 0),
                     .k = call.call.k.At<float>(b, kv, 0),
                     .v = call.call.v.At<float>(b, kv, 0)};
      auto* out = static_cast<float*>(kernels::RowOf(result.out, b, h, 0));
      for (int64_t i = 0; i < s.q_len;) {
        const int64_t left = s.q_len - i;
        int64_t rows = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (s.k_len == 1 && OneKey(call, in, h, i, out, lse)) {
          rows = 1;
        } else if (rows == 4) {
          AttendFew<4>(call, in, h, i, out, step, lse);
        } else if (rows == 2) {
          AttendFew<2>(call, in, h, i, out, step, lse);
        } else {
          AttendFew<1>(call, in, h, i, out, step, lse);
        }
        i += rows;
        in.q += rows * call.call.q.row_stride();
        out += rows * step;
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
