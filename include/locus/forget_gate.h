// Forget gates (data-dependent ALiBi) as a bias per key.
//
// Lin et al., "Forgetting Transformer: Softmax Attention with a Forget Gate"
// (2025). With f_t in (0, 1] the gate of token t of one sequence and head, the
// score of a causal query i and a key j <= i becomes
//
//   s_ij += log f_{j+1} + ... + log f_i = F_i - F_j
//   F_t = log f_0 + ... + log f_t
//
// F_i is the same for all keys of a query and cancels in the softmax, which
// leaves a bias per key, AttentionOptions::key_bias. Summed back from the last
// key it is
//
//   K_j = F_last - F_j = sum_{l > j} log f_l
//
// which is small where weights are large: near the newest keys. lse is then
// that of the formula plus F_last - F_i. Soft caps and sinks depend on more
// than the differences of a row's scores and would see that constant, so they
// cannot be combined with forget gates.
//
// Sums are computed in float64, and K is rounded to float32 once. A score is
// thus off by at most 2^-24 |K_j|, and by as much again where K is added to it.
// Query i sees keys with |K_j| >= |F_last - F_i|: early queries of heads that
// forget fast lose the most accuracy.
//
// Packed sequences need nothing special: tokens see only their own segment, in
// which the contribution of earlier segments to F cancels like F_i.
#ifndef LOCUS_FORGET_GATE_H_
#define LOCUS_FORGET_GATE_H_

#include "locus/api.h"
#include "locus/tensor.h"

namespace LOCUS_API locus {

// F for log gates [B, H, L]: float64, the same shape. `before` [B, H] is F of
// the last token before these, for keys appended to a cache; absent: 0. Throws
// Error if a log gate is not finite: a gate of 0 would make K infinite for
// every earlier key, also for earlier queries (use segments instead).
Tensor ForgetGateSums(const Tensor& log_gates, const Tensor& before = {});

// K for the sums F [B, H, Lk] of all keys: float32, the same shape.
Tensor ForgetGateBias(const Tensor& sums);

// The gradient of the log gates, given that of K, [B, H, Lk]:
//   d_log_f[l] = sum_{j < l} d_K[j]
// summed in float64; the result is float64 if d_K is, else float32.
Tensor ForgetGatePullBack(const Tensor& d_key_bias);

}  // namespace locus

#endif  // LOCUS_FORGET_GATE_H_
