// Linear attention with rotary positions, O(N) in time and memory.
//
//   o_i = sum_j (R_m phi(q_i)).(R_n phi(k_j)) v_j / sum_j phi(q_i).phi(k_j)
//
// Su et al., "RoFormer" (2021), section 3.3: only the numerator is rotated, so
// that the denominator remains a sum of positive numbers.
// Katharopoulos et al., "Transformers are RNNs" (2020): phi(x) = elu(x) + 1.
#ifndef LOCUS_LINEAR_ATTENTION_H_
#define LOCUS_LINEAR_ATTENTION_H_

#include <functional>

#include "locus/api.h"
#include "locus/attention.h"
#include "locus/encoding.h"
#include "locus/tensor.h"

namespace LOCUS_API locus {

// A map of one row x [D] to features phi(x) [F], which must be >= 0.
struct FeatureMap {
  int64_t features = 0;  // F; 0 means F = D
  std::function<void(std::span<const double> x, std::span<double> phi)> map;

  static FeatureMap EluPlusOne();
};

struct LinearAttentionOptions {
  bool causal = false;
  FeatureMap feature_map = FeatureMap::EluPlusOne();
  std::span<const int64_t> q_positions = {};  // as in AttentionOptions
  std::span<const int64_t> k_positions = {};
};

// q [B, Hq, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv] -> [B, Hq, Lq, Dv],
// f64, for tokens in any order: causality compares positions. Throws Error for
// encodings that act on individual logits (biases, tables), which do not factor
// into features of q and k.
Tensor LinearAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const Encoding& encoding,
                       const LinearAttentionOptions& options = {});

}  // namespace locus

#endif  // LOCUS_LINEAR_ATTENTION_H_
