// Everything about a call that its tensors do not hold, found once: sizes,
// positions, mask, terms, threads and the driver that runs it.
#ifndef LOCUS_SRC_KERNELS_PLAN_PLAN_H_
#define LOCUS_SRC_KERNELS_PLAN_PLAN_H_

#include <cstdint>
#include <vector>

#include "kernels/plan/tokens.h"
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
  // driver takes the call. Terms must outlive the plan, as must what the
  // options point to; an encoding need not.
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

  const AttentionOptions options;
  const PlanRequest request;
  const CallSizes sizes;
  const DType dtype;  // of q and of the result
  const CallMask mask;
  const Shape shape;

 private:
  const Terms lowered_;  // of an encoding

 public:
  const Terms& terms;
  const int threads;
  const Driver* driver = nullptr;
  // For drivers that ask for them.
  SortedTokens tokens;
  // Cosines and sines of the sorted tokens of each sequence.
  std::vector<RotationTable> q_angles, k_angles;

 private:
  Plan(const Tensor& q, const Tensor& k, const Tensor& v, const Terms* terms,
       const Encoding* encoding, const AttentionOptions& options,
       const PlanRequest& request);
  void Choose();
  void MakeAngles();
};

// A plan with its operands: what a driver runs.
struct Call {
  Call(const Plan& p, const Tensor& q_tensor, const Tensor& k_tensor,
       const Tensor& v_tensor)
      : plan(p),
        sizes(p.sizes),
        terms(p.terms),
        shape(p.shape),
        q(q_tensor),
        k(k_tensor),
        v(v_tensor),
        softcap(static_cast<float>(p.options.softcap.value_or(0.0))) {}

  const Tokens& Queries(int64_t b) const { return plan.tokens.Queries(b); }
  const Tokens& Keys(int64_t b) const { return plan.tokens.Keys(b); }
  // What query token i of sequence b sees, in sorted order.
  Interval VisibleKeys(int64_t b, int64_t i) const {
    return plan.tokens.VisibleKeys(b, i);
  }
  // The union of what queries [first, first + count) see.
  Interval AnyVisible(int64_t b, int64_t first, int64_t count) const {
    Interval any{sizes.k_len, 0};
    for (int64_t i = first; i < first + count; ++i) {
      const Interval seen = VisibleKeys(b, i);
      if (seen.empty()) continue;
      any.begin = std::min(any.begin, seen.begin);
      any.end = std::max(any.end, seen.end);
    }
    return any;
  }
  int64_t KvHead(int64_t h) const {
    return h / (sizes.q_heads / sizes.kv_heads);
  }
  // The rotation that keys still need, or nullptr.
  const Rotation* RotationOfKeys() const {
    return terms.rotate && !plan.request.keys_rotated ? &*terms.rotate
                                                      : nullptr;
  }

  const Plan& plan;
  const CallSizes& sizes;
  const Terms& terms;
  const Shape& shape;
  Rows q, k, v;
  float softcap;  // 0: none
};

// A table whose buckets the offset alone does not tell: of a 2-D window, or
// with a special token.
inline bool ByPair(const BucketMap& buckets) {
  return buckets.grid || buckets.special;
}
bool TablesByPair(const Terms& terms);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_PLAN_H_
