// Plan a call once and run it many times; report which kernel runs it and why.
#ifndef LOCUS_PLAN_H_
#define LOCUS_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "locus/api.h"
#include "locus/attention.h"
#include "locus/encoding.h"
#include "locus/tensor.h"
#include "locus/terms.h"

namespace LOCUS_API locus {

enum class Pass : uint8_t { kForward, kBackward };

// How a call is run. With LOCUS_VERBOSE=1 in the environment, every call prints
// Line() and its milliseconds to standard error.
struct CallReport {
  // A driver tried before the chosen one, and why it cannot run the call:
  // "more than 256 tokens".
  struct Refusal {
    std::string driver = {};
    std::string reason = {};
  };

  Pass pass = Pass::kForward;
  std::string driver = {};  // "short", "decode", "tiled"
  std::vector<Refusal> refusals = {};
  std::string simd_target = {};  // as in simd.h
  int threads = 1;
  DType dtype = DType::kF32;
  int64_t batch = 0, q_heads = 0, kv_heads = 0;
  int64_t q_len = 0, k_len = 0, head_dim = 0, value_dim = 0;
  std::string mask = {};                // "causal, window 127 back, 0 ahead"
  std::vector<std::string> terms = {};  // as TermNames

  // One line: "forward decode f32 batch 1, heads 8/2, lengths 1x512, dims
  // 64/64, causal, rotate, 1 thread, AVX2; not short: more than 256 tokens".
  std::string Line() const;
};

// How Attention (or AttentionBackward) would run a call, without running it.
// Throws Error where the call itself would.
CallReport ExplainCall(const Tensor& q, const Tensor& k, const Tensor& v,
                       const Terms& terms, const AttentionOptions& options = {},
                       Pass pass = Pass::kForward);
CallReport ExplainCall(const Tensor& q, const Tensor& k, const Tensor& v,
                       const Encoding& encoding,
                       const AttentionOptions& options = {},
                       Pass pass = Pass::kForward);

// A call that is checked, lowered and laid out once and then run on any tensors
// of the same shapes and types: the layers of a model, the steps of a training
// run. With return_lse it serves the backward pass as well. The encoding and
// the options with their spans need not outlive the plan; tensors are shared,
// and the bytes of a PairMask must stay valid. Several threads may run one plan
// at the same time.
class AttentionPlan {
 public:
  AttentionPlan(const Tensor& q, const Tensor& k, const Tensor& v,
                const Terms& terms, const AttentionOptions& options = {});
  AttentionPlan(const Tensor& q, const Tensor& k, const Tensor& v,
                const Encoding& encoding, const AttentionOptions& options = {});
  AttentionPlan(AttentionPlan&&) noexcept;
  AttentionPlan& operator=(AttentionPlan&&) noexcept;
  ~AttentionPlan();

  // As Attention and AttentionInto. Throws Error for other shapes or types.
  AttentionResult Run(const Tensor& q, const Tensor& k, const Tensor& v) const;
  void RunInto(const Tensor& q, const Tensor& k, const Tensor& v,
               AttentionResult& result) const;
  // As AttentionBackward with Terms.
  AttentionGrads RunBackward(const Tensor& d_out, const Tensor& q,
                             const Tensor& k, const Tensor& v,
                             const AttentionResult& forward,
                             const BackwardOptions& backward = {}) const;

  // How RunInto runs: the report of the forward pass.
  CallReport Report() const;

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

}  // namespace locus

#endif  // LOCUS_PLAN_H_
