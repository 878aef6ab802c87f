// Reference attention: the algebra of terms.h in float64, O(N^2), forward and
// backward, written to be read beside the papers and to judge the kernels.
#ifndef LOCUS_REFERENCE_H_
#define LOCUS_REFERENCE_H_

#include <cstdint>
#include <memory>

#include "locus/api.h"
#include "locus/attention.h"
#include "locus/encoding.h"
#include "locus/tensor.h"
#include "locus/terms.h"

namespace locus {
namespace LOCUS_API reference {

struct Forward {
  Tensor out = {};      // [B, Hq, Lq, Dv] f64
  Tensor lse = {};      // [B, Hq, Lq] f64: log of the softmax denominator
  Tensor weights = {};  // [B, Hq, Lq, Lk] f64; absent unless asked for
};

struct Backward {
  Tensor d_q = {};  // as q, k, v; f64
  Tensor d_k = {};
  Tensor d_v = {};
  OperandGrads operands = {};  // f64
  TermGrads terms = {};
};

// q [B, Hq, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv] of any element type.
// A query that sees no key yields zeros and lse = -inf.
Forward Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                  const Terms& terms, const AttentionOptions& options = {});

// d_out [B, Hq, Lq, Dv]: gradients of sum(d_out * out) + sum(d_lse * lse).
Backward AttentionBackward(const Tensor& d_out, const Tensor& q,
                           const Tensor& k, const Tensor& v, const Terms& terms,
                           const AttentionOptions& options = {},
                           const BackwardOptions& backward = {});

// The same for an encoding: lowers it for the call. An encoding of the input
// has acted on x before the projections and adds nothing here.
Forward Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                  const Encoding& encoding,
                  const AttentionOptions& options = {});

EncodingGrads AttentionBackward(const Tensor& d_out, const Tensor& q,
                                const Tensor& k, const Tensor& v,
                                const Encoding& encoding,
                                const AttentionOptions& options = {},
                                const BackwardOptions& backward = {});

// The logits s_ij of a call before the soft-cap, computed as they are asked
// for.
class Scorer {
 public:
  // Keeps copies in float64; what `options` point to must outlive it.
  Scorer(const Tensor& q, const Tensor& k, const Terms& terms,
         const AttentionOptions& options = {});
  ~Scorer();

  // s_ij of batch entry b and head h; -inf where masked.
  double At(int64_t b, int64_t h, int64_t i, int64_t j) const;

  // All of one batch entry and head: [Lq, Lk] f64.
  Tensor Of(int64_t b, int64_t h) const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

// Rotates a row of channels of a key head in place by its position; a decay,
// which belongs to a pair of tokens, is left out.
void RotateRow(const Rotation& rotation, int64_t position, double* row,
               int64_t kv_head = 0);

}  // namespace reference
}  // namespace locus

#endif  // LOCUS_REFERENCE_H_
