// Reference attention: the algebra of terms.h in float64, O(N^2), forward and
// backward, written to be read beside the papers and to test the kernels.
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
  Tensor weights = {};  // [B, Hq, Lq, Lk] f64, with return_weights only
};

struct Backward {
  Tensor d_q = {};  // with the shapes of q, k and v; f64
  Tensor d_k = {};
  Tensor d_v = {};
  OperandGrads operands = {};  // f64
  TermGrads terms = {};
};

// q [B, Hq, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv] of any element type.
// A query that sees no key yields zeros and lse = -inf. Throws Error if
// operands, terms and options do not match.
Forward Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                  const Terms& terms, const AttentionOptions& options = {});

// Gradients of sum(d_out * out) + sum(d_lse * lse), with d_out
// [B, Hq, Lq, Dv].
Backward AttentionBackward(const Tensor& d_out, const Tensor& q,
                           const Tensor& k, const Tensor& v, const Terms& terms,
                           const AttentionOptions& options = {},
                           const BackwardOptions& backward = {});

// The same for an encoding, which is lowered for the call. Encodings of the
// input act on x before the projections, so they add nothing here.
Forward Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                  const Encoding& encoding,
                  const AttentionOptions& options = {});

EncodingGrads AttentionBackward(const Tensor& d_out, const Tensor& q,
                                const Tensor& k, const Tensor& v,
                                const Encoding& encoding,
                                const AttentionOptions& options = {},
                                const BackwardOptions& backward = {});

// The logits s_ij of a call before the soft cap, computed on demand.
class Scorer {
 public:
  // Copies q and k to float64; the spans of `options` must outlive the Scorer.
  Scorer(const Tensor& q, const Tensor& k, const Terms& terms,
         const AttentionOptions& options = {});
  ~Scorer();

  // s_ij of batch entry b and head h; -inf where masked.
  double At(int64_t b, int64_t h, int64_t i, int64_t j) const;

  // The logits of one batch entry and head: [Lq, Lk] f64.
  Tensor Of(int64_t b, int64_t h) const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

// Rotates one row [head_dim] of a key head in place by its position, without
// the decay, which acts on pairs of tokens.
void RotateRow(const Rotation& rotation, int64_t position, double* row,
               int64_t kv_head = 0);

}  // namespace reference
}  // namespace locus

#endif  // LOCUS_REFERENCE_H_
