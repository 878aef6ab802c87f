#include "kernels/plan/plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/fail.h"
#include "core/threads.h"
#include "kernels/plan/drivers.h"

namespace locus::kernels {
namespace {

// Checks the types of the tensors and returns the sizes of the call.
CallSizes CheckOperands(const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionOptions& options,
                        const PlanRequest& request) {
  const CallSizes sizes = CheckCall(q, k, v, options);
  const bool alike = q.dtype() == k.dtype() && q.dtype() == v.dtype();
  if (q.dtype() == DType::kF64 || q.dtype() == DType::kI8 ||
      (!alike && !request.cached_keys)) {
    Fail("q, k and v must be all f32, all bf16 or all f16, got {}, {} and {}",
         q.Describe(), k.Describe(), v.Describe());
  }
  return sizes;
}

// The number of threads for a call: as requested, but fewer for short calls.
// Results do not depend on it.
int ThreadsFor(const CallSizes& s, int requested) {
  // Multiply-adds per thread: waking one pays off from some tens of
  // microseconds of work.
  constexpr double kMinWorkPerThread = 2e6;
  const int threads = NumThreads(requested);
  if (threads == 1) return 1;
  const double work = static_cast<double>(s.batch * s.q_heads) *
                      static_cast<double>(s.q_len * s.k_len) *
                      static_cast<double>(s.head_dim + s.value_dim);
  return static_cast<int>(
      std::clamp(work / kMinWorkPerThread, 1.0, static_cast<double>(threads)));
}

}  // namespace

bool TablesByPair(const Terms& terms) {
  const auto by_pair = [](const std::optional<BucketTable>& table) {
    return table && ByPair(table->buckets);
  };
  return by_pair(terms.q_table) || by_pair(terms.k_table) ||
         by_pair(terms.v_table);
}

Plan::Plan(const Tensor& q, const Tensor& k, const Tensor& v,
           const Terms* given, const Encoding* encoding,
           const AttentionOptions& call_options, const PlanRequest& how)
    : options(call_options),
      request(how),
      sizes(CheckOperands(q, k, v, options, how)),
      dtype(q.dtype()),
      mask(sizes, options),
      shape(mask.ShapeOf(sizes, options)),
      lowered_(encoding != nullptr ? std::optional(encoding->Lower(shape).terms)
                                   : std::nullopt),
      terms(given != nullptr ? *given : *lowered_),
      threads(request.threads > 0 ? request.threads
                                  : ThreadsFor(sizes, options.threads)) {
  if (given != nullptr) CheckScale(terms, options);
  CheckTableQueries(terms, options);
  Validate(terms, shape);
  if (terms.v_table && terms.v_table->rows.size(2) != sizes.value_dim) {
    Fail("the value table {} does not match v {}",
         terms.v_table->rows.Describe(), v.Describe());
  }
  Choose();
  if (driver->wants_tokens) {
    tokens = SortedTokens(sizes, mask, options, terms);
  }
  if (options.mask.defined() || tokens.scattered_prefix()) {
    pairs = PairBits(sizes, mask, options.mask, tokens, threads);
  }
  if (driver->wants_angles) MakeAngles();
}

Plan::Plan(const Tensor& q, const Tensor& k, const Tensor& v,
           const Terms& given, const AttentionOptions& call_options,
           const PlanRequest& how)
    : Plan(q, k, v, &given, nullptr, call_options, how) {}

Plan::Plan(const Tensor& q, const Tensor& k, const Tensor& v,
           const Encoding& encoding, const AttentionOptions& call_options,
           const PlanRequest& how)
    : Plan(q, k, v, nullptr, &encoding, call_options, how) {}

void Plan::Choose() {
  const char* reason = "there is no such driver";
  for (const Driver& each : DriversOf(request.pass)) {
    if (request.driver != nullptr) {
      if (std::strcmp(request.driver, each.name) != 0) continue;
      reason = nullptr;
    } else {
      reason = each.refuses(*this);
    }
    if (reason == nullptr) {
      driver = &each;
      return;
    }
  }
  Fail("{}", reason);
}

void Plan::MakeAngles() {
  const bool keys = terms.rotate && !request.keys_rotated;
  if (terms.rotate) {
    const Rotation& r = *terms.rotate;
    const int64_t origin = DecayOrigin(r, shape);
    for (int64_t b = 0; b < tokens.Sequences(); ++b) {
      q_angles.emplace_back(r, tokens.Queries(b).position, 1.0, origin,
                            threads);
      if (!keys) continue;
      k_angles.emplace_back(r, tokens.Keys(b).position, -1.0, origin, threads);
    }
  }
  if (!terms.rotate_values) return;
  const Rotation& r = terms.rotate_values->rotation;
  const bool shared = terms.rotate && terms.rotate->log_decay.empty() &&
                      SameAngles(*terms.rotate, r);
  for (int64_t b = 0; b < tokens.Sequences(); ++b) {
    if (!shared || !keys) {
      value_angles.emplace_back(r, tokens.Keys(b).position, 1.0, 0, threads);
    }
    if (!shared && terms.rotate_values->relative) {
      output_angles.emplace_back(r, tokens.Queries(b).position, 1.0, 0,
                                 threads);
    }
  }
}

void Plan::CheckSame(const Tensor& q, const Tensor& k, const Tensor& v) const {
  const CallSizes& s = sizes;
  const auto same = [&](const Tensor& t, int64_t heads, int64_t length,
                        int64_t dim) {
    return t.dtype() == dtype &&
           t.shape() == std::vector<int64_t>{s.batch, heads, length, dim};
  };
  if (same(q, s.q_heads, s.q_len, s.head_dim) &&
      same(k, s.kv_heads, s.k_len, s.head_dim) &&
      same(v, s.kv_heads, s.k_len, s.value_dim)) {
    return;
  }
  Fail(
      "the plan is for {} q [{}, {}, {}, {}], k [{}, {}, {}, {}] and v [{}, "
      "{}, {}, {}], got {}, {} and {}",
      DTypeName(dtype), s.batch, s.q_heads, s.q_len, s.head_dim, s.batch,
      s.kv_heads, s.k_len, s.head_dim, s.batch, s.kv_heads, s.k_len,
      s.value_dim, q.Describe(), k.Describe(), v.Describe());
}

}  // namespace locus::kernels
