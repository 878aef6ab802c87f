// Everything about a call that its tensors do not hold, found once: sizes,
// positions, mask, terms, threads and the driver that runs it.
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

// What only the callers inside this room say about a call.
struct PlanRequest {
  Pass pass = Pass::kForward;
  // Keys come from a cache: of any type, and rotated already by the rotation of
  // the terms.
  bool cached_keys = false;
  bool keys_rotated = false;
  // For tests: the driver to take without asking it; nullptr: the first that
  // accepts. And as many threads, however short the call; 0: as many as pay.
  const char* driver = nullptr;
  int threads = 0;
};

struct Plan {
  // Throws Error if the tensors, options and terms do not fit each other, or no
  // driver takes the call. Options and terms must outlive the plan; an encoding
  // need not.
  Plan(const Tensor& q, const Tensor& k, const Tensor& v, const Terms& terms,
       const AttentionOptions& options, const PlanRequest& request = {});
  Plan(const Tensor& q, const Tensor& k, const Tensor& v,
       const Encoding& encoding, const AttentionOptions& options,
       const PlanRequest& request = {});
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Throws Error unless the tensors are of the shapes and types planned for.
  void CheckSame(const Tensor& q, const Tensor& k, const Tensor& v) const;
  CallReport Report() const;

  const AttentionOptions& options;
  const PlanRequest request;
  const CallSizes sizes;
  const DType dtype;  // of q and of the result
  const CallMask mask;
  const Shape shape;

 private:
  const std::optional<Terms> lowered_;  // of an encoding

 public:
  const Terms& terms;
  const int threads;
  const Driver* driver = nullptr;
  // For drivers that ask for them.
  SortedTokens tokens;
  PairBits pairs;  // empty: intervals tell what queries see
  // Cosines and sines of the sorted tokens of each sequence.
  std::vector<RotationTable> q_angles, k_angles;
  // The same for the rotation of values, where it differs: of the keys, and of
  // the queries if it is relative.
  std::vector<RotationTable> value_angles, output_angles;

 private:
  Plan(const Tensor& q, const Tensor& k, const Tensor& v, const Terms* terms,
       const Encoding* encoding, const AttentionOptions& options,
       const PlanRequest& request);
  void Choose();
  void MakeAngles();
};

// A plan with its operands: what a driver runs.
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
  // What query token i of sequence b may see, in sorted order: some of it may
  // be hidden, if the call hides anything.
  Interval VisibleKeys(int64_t b, int64_t i) const {
    return plan.tokens.VisibleKeys(b, i).all;
  }
  // What query i of head h sees of `keys`, and whether something in between is
  // hidden from it.
  Glimpse Look(int64_t b, int64_t h, int64_t i, Interval keys) const {
    const Visible& visible = plan.tokens.VisibleKeys(b, i);
    if (!hides) return {.seen = Within(visible.all, keys)};
    return GlimpseOf(visible, plan.pairs.Row(b, h, i), keys);
  }
  // Calls f(begin, end) for what is hidden from it inside `seen`.
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

  // Cosines and sines that the values of sequence b are rotated by, and its
  // outputs rotated back.
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
  bool hides;     // some queries do not see all between two that they see
};

// Where the results of a forward call go: out [B, Hq, Lq, Dv] is contiguous, of
// the type of q; lse [B, Hq, Lq] and weights [B, Hq, Lq, Lk], or nullptr.
struct CallResult {
  // Of all pairs. A driver does so when it has all of its memory, and then
  // writes the weights of what is seen.
  void ClearWeights(const CallSizes& s) const {
    if (weights == nullptr) return;
    std::fill_n(weights, s.batch * s.q_heads * s.q_len * s.k_len, 0.0F);
  }

  Tensor& out;
  float* lse = nullptr;
  float* weights = nullptr;
};

// A table whose buckets the offset alone does not tell: of a 2-D window, or
// with a special token.
inline bool ByPair(const BucketMap& buckets) {
  return buckets.grid || buckets.special;
}
bool TablesByPair(const Terms& terms);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_PLAN_H_
