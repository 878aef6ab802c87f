// A plan: everything about a call except the contents of its tensors, resolved
// once: sizes, positions, mask, terms, threads and the driver that runs it.
#ifndef LOCUS_SRC_KERNELS_PLAN_PLAN_H_
#define LOCUS_SRC_KERNELS_PLAN_PLAN_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/plan/pair_bits.h"
#include "kernels/plan/tokens.h"
#include "kernels/plan/visible.h"
#include "kernels/rotary/angles.h"
#include "kernels/simd/rows.h"
#include "locus/attention.h"
#include "locus/encoding.h"
#include "locus/plan.h"
#include "locus/tensor.h"
#include "locus/terms.h"
#include "terms/call.h"

namespace locus::kernels {

struct Driver;

// Settings of a plan that are internal to the kernels.
struct PlanRequest {
  Pass pass = Pass::kForward;
  bool cached_keys = false;   // keys come from a cache, in any storage type
  bool keys_rotated = false;  // and are already rotated by terms.rotate
  // For tests: the driver to use unconditionally (nullptr: the first that
  // accepts), and the exact number of threads (0: as many as pay off).
  const char* driver = nullptr;
  int threads = 0;
};

struct Plan {
  // Throws Error if tensors, options and terms do not match, or if no driver
  // accepts the call. Options and terms must outlive the plan; an encoding need
  // not.
  Plan(const Tensor& q, const Tensor& k, const Tensor& v, const Terms& terms,
       const AttentionOptions& options, const PlanRequest& request = {});
  Plan(const Tensor& q, const Tensor& k, const Tensor& v,
       const Encoding& encoding, const AttentionOptions& options,
       const PlanRequest& request = {});
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Throws Error unless the tensors have the shapes and types planned for.
  void CheckSame(const Tensor& q, const Tensor& k, const Tensor& v) const;
  CallReport Report() const;

  const AttentionOptions& options;
  const PlanRequest request;
  const CallSizes sizes;
  const DType dtype;  // of q and of the result
  const CallMask mask;
  const Shape shape;

 private:
  const std::optional<Terms> lowered_;  // owned, if an encoding was given

 public:
  const Terms& terms;
  const int threads;
  const Driver* driver = nullptr;
  // Prepared only for drivers that want them (see Driver).
  SortedTokens tokens;
  PairBits pairs;  // empty: intervals describe visibility completely
  // Cosines and sines of the sorted tokens of each sequence.
  std::vector<RotationTable> q_angles, k_angles;
  // The same for the rotation of values, if it differs: at the keys and, if it
  // is relative, at the queries.
  std::vector<RotationTable> value_angles, output_angles;

 private:
  Plan(const Tensor& q, const Tensor& k, const Tensor& v, const Terms* terms,
       const Encoding* encoding, const AttentionOptions& options,
       const PlanRequest& request);
  void Choose();
  void MakeAngles();
};

// A plan with its operands: the argument of a driver.
struct Call {
  Call(const Plan& p, const Rows& q_rows, const Rows& k_rows,
       const Rows& v_rows)
      : plan(p),
        sizes(p.sizes),
        terms(p.terms),
        shape(p.shape),
        q(q_rows),
        k(k_rows),
        v(v_rows),
        softcap(static_cast<float>(p.options.softcap.value_or(0.0))),
        hides(p.tokens.holes() || !p.pairs.empty()) {}

  const Tokens& Queries(int64_t b) const { return plan.tokens.Queries(b); }
  const Tokens& Keys(int64_t b) const { return plan.tokens.Keys(b); }
  // The keys, in sorted order, between the first and the last that query token
  // i of sequence b may see; if `hides`, some in between may be hidden.
  Interval VisibleKeys(int64_t b, int64_t i) const {
    return plan.tokens.VisibleKeys(b, i).all;
  }
  // The part of `keys` from the first to the last that query i of head h sees,
  // and whether keys in between are hidden.
  Glimpse Look(int64_t b, int64_t h, int64_t i, Interval keys) const {
    const Visible& visible = plan.tokens.VisibleKeys(b, i);
    if (!hides) return {.seen = Within(visible.all, keys)};
    return GlimpseOf(visible, plan.pairs.Row(b, h, i), keys);
  }
  // Calls f(begin, end) for each range of keys in `seen` hidden from query i.
  template <typename F>
  void ForHidden(int64_t b, int64_t h, int64_t i, Interval seen,
                 const F& f) const {
    ForHiddenKeys(plan.tokens.VisibleKeys(b, i), plan.pairs.Row(b, h, i), seen,
                  f);
  }
  // The union of what queries [first, first + count) see.
  Interval AnyVisible(int64_t b, int64_t first, int64_t count) const {
    Interval any;
    for (int64_t i = first; i < first + count; ++i) {
      any = Around(any, VisibleKeys(b, i));
    }
    return any;
  }
  int64_t KvHead(int64_t h) const {
    return h / (sizes.q_heads / sizes.kv_heads);
  }
  // The sink of head h; -inf: none.
  double Sink(int64_t h) const {
    const Tensor& sinks = plan.options.sinks;
    return sinks.defined() ? sinks.At(h)
                           : -std::numeric_limits<double>::infinity();
  }
  // The rotation that keys still need, or nullptr.
  const Rotation* RotationOfKeys() const {
    return terms.rotate && !plan.request.keys_rotated ? &*terms.rotate
                                                      : nullptr;
  }

  // Cosines and sines that rotate the values of sequence b, and that rotate its
  // outputs back.
  const RotationTable& ValueAngles(int64_t b) const {
    const auto& own = plan.value_angles;
    return (own.empty() ? plan.k_angles : own)[plan.tokens.Sequence(b)];
  }
  const RotationTable& OutputAngles(int64_t b) const {
    const auto& own = plan.output_angles;
    return (own.empty() ? plan.q_angles : own)[plan.tokens.Sequence(b)];
  }

  const Plan& plan;
  const CallSizes& sizes;
  const Terms& terms;
  const Shape& shape;
  Rows q, k, v;
  float softcap;  // 0: none
  bool hides;     // for some queries, keys between visible ones are hidden
};

// The outputs of a forward call: out [B, Hq, Lq, Dv], contiguous, with the type
// of q; lse [B, Hq, Lq] and weights [B, Hq, Lq, Lk], or nullptr.
struct CallResult {
  // Zeroes the weights. Drivers call this after their last allocation and then
  // write the weights of visible pairs only.
  void ClearWeights(const CallSizes& s) const {
    if (weights == nullptr) return;
    std::fill_n(weights, s.batch * s.q_heads * s.q_len * s.k_len, 0.0F);
  }

  Tensor& out;
  float* lse = nullptr;
  float* weights = nullptr;
};

// Whether the bucket of a pair depends on more than its offset: for a 2-D
// window, or with a special token.
inline bool ByPair(const BucketMap& buckets) {
  return buckets.grid || buckets.special;
}
bool TablesByPair(const Terms& terms);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_PLAN_H_
