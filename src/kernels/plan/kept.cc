// AttentionPlan: a plan that is kept and run many times.
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/fail.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/run.h"
#include "locus/plan.h"

namespace locus {

// Plans hold references to options and terms, so both are copied here and never
// move.
struct AttentionPlan::Kept {
  explicit Kept(const AttentionOptions& given) : options(given) {
    std::span<const int64_t>* spans[] = {
        &options.q_positions, &options.k_positions, &options.key_lengths,
        &options.q_segments,  &options.k_segments,  &options.prefix_lengths};
    lists.reserve(std::size(spans));
    for (std::span<const int64_t>* span : spans) {
      *span = lists.emplace_back(span->begin(), span->end());
    }
  }

  template <typename Position>
  void Make(const Tensor& q, const Tensor& k, const Tensor& v,
            const Position& position) {
    forward.emplace(q, k, v, position, options);
    if (options.return_lse) {
      backward.emplace(q, k, v, position, options,
                       kernels::PlanRequest{.pass = Pass::kBackward});
    }
  }

  AttentionOptions options;
  std::vector<std::vector<int64_t>> lists;
  Terms terms;
  std::optional<kernels::Plan> forward, backward;
};

AttentionPlan::AttentionPlan(const Tensor& q, const Tensor& k, const Tensor& v,
                             const Terms& terms,
                             const AttentionOptions& options)
    : kept_(std::make_unique<Kept>(options)) {
  kept_->terms = terms;
  kept_->Make(q, k, v, kept_->terms);
}

AttentionPlan::AttentionPlan(const Tensor& q, const Tensor& k, const Tensor& v,
                             const Encoding& encoding,
                             const AttentionOptions& options)
    : kept_(std::make_unique<Kept>(options)) {
  kept_->Make(q, k, v, encoding);
}

AttentionPlan::AttentionPlan(AttentionPlan&&) noexcept = default;
AttentionPlan& AttentionPlan::operator=(AttentionPlan&&) noexcept = default;
AttentionPlan::~AttentionPlan() = default;

AttentionResult AttentionPlan::Run(const Tensor& q, const Tensor& k,
                                   const Tensor& v) const {
  kept_->forward->CheckSame(q, k, v);
  return kernels::Run(*kept_->forward, kernels::Rows(q), kernels::Rows(k),
                      kernels::Rows(v));
}

void AttentionPlan::RunInto(const Tensor& q, const Tensor& k, const Tensor& v,
                            AttentionResult& result) const {
  kept_->forward->CheckSame(q, k, v);
  kernels::RunInto(*kept_->forward, q, k, v, result);
}

AttentionGrads AttentionPlan::RunBackward(
    const Tensor& d_out, const Tensor& q, const Tensor& k, const Tensor& v,
    const AttentionResult& forward, const BackwardOptions& backward) const {
  if (!kept_->backward) {
    Fail("the plan was made without return_lse, which the backward pass needs");
  }
  kept_->backward->CheckSame(q, k, v);
  return kernels::RunBackward(*kept_->backward, d_out, q, k, v, forward,
                              backward);
}

CallReport AttentionPlan::Report() const { return kept_->forward->Report(); }

}  // namespace locus
