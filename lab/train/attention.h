// Locus' fused attention as a differentiable libtorch operation.
#ifndef LOCUS_LAB_TRAIN_ATTENTION_H_
#define LOCUS_LAB_TRAIN_ATTENTION_H_

#include <torch/types.h>

#include <memory>
#include <vector>

#include "locus/encoding.h"

namespace locus::lab {

// An encoding and the current values of its parameters, in the order of
// Encoding::Params(). `form` provides everything except those values.
struct EncodingValues {
  std::shared_ptr<const Encoding> form = {};
  std::vector<torch::Tensor> params = {};

  std::shared_ptr<const Encoding> Build() const;
};

struct AttentionCall {
  bool causal = true;
  int threads = 1;
};

// q, k, v [B, H, L, D] float32 with any strides -> [B, H, L, D]. Differentiable
// in q, k, v and the parameters. Inputs are not copied, and no L x L tensor is
// created in either direction.
torch::Tensor FusedAttention(const torch::Tensor& q, const torch::Tensor& k,
                             const torch::Tensor& v,
                             const EncodingValues& encoding,
                             const AttentionCall& call);

// The rows E[0 .. length - 1], [length, model_dim], of an encoding of the
// input. Differentiable in the parameters.
torch::Tensor EmbedPositions(const EncodingValues& encoding, int64_t length);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_ATTENTION_H_
