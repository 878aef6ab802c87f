// A small transformer: pre-norm, GELU, one positional encoding.
//
//   x = sqrt(d) E[tokens]  (+ E_pos)
//   x += W_o attention(LN(x));   x += W_2 gelu(W_1 LN(x))      a layer
//   logits = W_head LN(x)
//
// Vaswani et al. (2017), with the norm before each part (Xiong et al. 2020).
#ifndef LOCUS_LAB_TRAIN_MODEL_H_
#define LOCUS_LAB_TRAIN_MODEL_H_

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lab/train/materialised.h"
#include "lab/train/parameters.h"
#include "lab/train/position.h"

namespace locus::lab {

struct ModelConfig {
  PositionConfig position = {};  // layers and heads are the model's too
  int64_t vocabulary = 256;
  bool fused = true;
  uint64_t seed = 1;
  int threads = 1;

  int64_t ModelDim() const { return position.heads * position.head_dim; }
};

class Model {
 public:
  explicit Model(const ModelConfig& config);

  const ParameterSet& parameters() const { return *parameters_; }
  const Position& position() const { return *position_; }
  const ModelConfig& config() const { return config_; }

  // tokens int64 [B, L]; rows int64 [n] selects which of the B * L tokens get
  // logits. Returns [n, vocabulary].
  torch::Tensor Logits(const torch::Tensor& tokens,
                       const torch::Tensor& rows) const;

  // The inputs of a layer's attention: q and k [B, H, L, D].
  struct LayerInput {
    torch::Tensor q = {};
    torch::Tensor k = {};
  };
  std::vector<LayerInput> AttentionInputs(const torch::Tensor& tokens) const;

  // Changes the options of the same encoding from here on, keeping the
  // parameters. Throws Error if their sizes differ with these options.
  void SetOptions(const std::map<std::string, std::string>& options);

 private:
  // The hidden state after all layers; stores layer inputs in `inputs` if
  // given.
  torch::Tensor Hidden(const torch::Tensor& tokens,
                       std::vector<LayerInput>* inputs) const;
  torch::Tensor Linear(const torch::Tensor& x, const std::string& name) const;
  torch::Tensor Norm(const torch::Tensor& x, const std::string& name) const;
  torch::Tensor Attend(const torch::Tensor& x, int64_t layer,
                       std::vector<LayerInput>* inputs) const;

  ModelConfig config_;
  std::unique_ptr<Position> position_;
  std::unique_ptr<ParameterSet> parameters_;
  // Caches what depends only on the length: not part of the model's value.
  mutable MaterialisedAttention materialised_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_MODEL_H_
