// The public functions: each makes a plan and runs it.
#include "locus/attention.h"

#include "kernels/plan/plan.h"
#include "kernels/plan/run.h"
#include "locus/encoding.h"

namespace locus {

using kernels::Plan;
using kernels::Rows;

AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Terms& terms, const AttentionOptions& options) {
  // The plan comes first: it checks that the tensors have four axes.
  const Plan plan(q, k, v, terms, options);
  return kernels::Run(plan, Rows(q), Rows(k), Rows(v));
}

AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Encoding& encoding,
                          const AttentionOptions& options) {
  const Plan plan(q, k, v, encoding, options);
  return kernels::Run(plan, Rows(q), Rows(k), Rows(v));
}

void AttentionInto(const Tensor& q, const Tensor& k, const Tensor& v,
                   const Terms& terms, const AttentionOptions& options,
                   AttentionResult& result) {
  kernels::RunInto(Plan(q, k, v, terms, options), q, k, v, result);
}

void AttentionInto(const Tensor& q, const Tensor& k, const Tensor& v,
                   const Encoding& encoding, const AttentionOptions& options,
                   AttentionResult& result) {
  kernels::RunInto(Plan(q, k, v, encoding, options), q, k, v, result);
}

AttentionGrads AttentionBackward(const Tensor& d_out, const Tensor& q,
                                 const Tensor& k, const Tensor& v,
                                 const AttentionResult& forward,
                                 const Terms& terms,
                                 const AttentionOptions& options,
                                 const BackwardOptions& backward) {
  const Plan plan(q, k, v, terms, options, {.pass = Pass::kBackward});
  return kernels::RunBackward(plan, d_out, q, k, v, forward, backward);
}

EncodingGrads AttentionBackward(const Tensor& d_out, const Tensor& q,
                                const Tensor& k, const Tensor& v,
                                const AttentionResult& forward,
                                const Encoding& encoding,
                                const AttentionOptions& options,
                                const BackwardOptions& backward) {
  const Plan plan(q, k, v, encoding, options, {.pass = Pass::kBackward});
  const AttentionGrads grads =
      kernels::RunBackward(plan, d_out, q, k, v, forward, backward);
  return {.d_q = grads.d_q,
          .d_k = grads.d_k,
          .d_v = grads.d_v,
          .operands = grads.operands,
          .params = encoding.PullBack(plan.shape, grads.terms)};
}

}  // namespace locus
