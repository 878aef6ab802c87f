// Locus' fused attention as an operation of libtorch, with gradients.
#ifndef LOCUS_LAB_TRAIN_ATTENTION_H_
#define LOCUS_LAB_TRAIN_ATTENTION_H_

#include <torch/types.h>

#include <memory>
#include <vector>

#include "locus/encoding.h"

namespace locus::lab {

// An encoding and the present values of its parameters, in the order of
// Encoding::Params(). `form` gives everything except those values.
struct EncodingValues {
  std::shared_ptr<const Encoding> form = {};
  std::vector<torch::Tensor> params = {};

  std::shared_ptr<const Encoding> Build() const;
};

struct AttentionCall {
  bool causal = true;
  int threads = 1;
};

// q, k, v [B, H, L, D] float32, any strides -> [B, H, L, D]. Differentiable in
// q, k, v and the parameters. Nothing is copied on the way in, and nothing
// of size L x L is made in either direction.
torch::Tensor FusedAttention(const torch::Tensor& q, const torch::Tensor& k,
                             const torch::Tensor& v,
                             const EncodingValues& encoding,
                             const AttentionCall& call);

// The rows E[0 .. length - 1], [length, model_dim], of an encoding of the
// input. Differentiable in the parameters.
torch::Tensor EmbedPositions(const EncodingValues& encoding, int64_t length);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_ATTENTION_H_
