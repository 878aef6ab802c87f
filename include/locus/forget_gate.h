// Forget gates as a bias per key: what a head forgets depends on the data.
//
// Lin et al., "Forgetting Transformer: Softmax Attention with a Forget Gate"
// (2025); "data-dependent ALiBi" is the same. With f_t in (0, 1] the gate of
// token t of one sequence and head, a causal query i sees key j with
//
//   s_ij += log f_{j+1} + ... + log f_i = F_i - F_j
//   F_t = log f_0 + ... + log f_t
//
// F_i is the same for all keys of a query and cancels in the softmax, so what
// remains is AttentionOptions::key_bias. Counted back from the last key it is
//
//   K_j = F_last - F_j = sum_{l > j} log f_l
//
// which is small where weights are large: near the newest keys. lse is then
// that of the formula plus F_last - F_i. What sees more of a row of scores than
// their differences (a soft cap, sinks) would see that number too: it does not
// go with forget gates.
//
// Sums are made in float64 and K is rounded to float32 once. So a score is off
// by at most 2^-24 |K_j|, and as much again where K joins it. A query sees keys
// with |K_j| >= |F_last - F_i|: early queries of heads that forget fast lose
// most.
//
// Packed sequences just work: tokens see only their own segment, in which
// what earlier segments add to F cancels like F_i.
#ifndef LOCUS_FORGET_GATE_H_
#define LOCUS_FORGET_GATE_H_

#include "locus/api.h"
#include "locus/tensor.h"

namespace LOCUS_API locus {

// F of log gates [B, H, L], float64 in their shape. `before` [B, H]: F of the
// last token before these, for keys that join those of a cache; absent: 0.
// Throws Error where a log gate is not finite: a gate of 0 forgets what
// segments can hide, and leaves no bias to the queries before it.
Tensor ForgetGateSums(const Tensor& log_gates, const Tensor& before = {});

// K of the sums F [B, H, Lk] of all keys, float32 in their shape.
Tensor ForgetGateBias(const Tensor& sums);

// The gradient of the log gates, given that of K, [B, H, Lk]:
//   d_log_f[l] = sum_{j < l} d_K[j]
// summed in float64; float64 if d_K is, else float32.
Tensor ForgetGatePullBack(const Tensor& d_key_bias);

}  // namespace locus

#endif  // LOCUS_FORGET_GATE_H_
