// The same attention with plain tensor operations of libtorch and its L x L
// scores in memory: the baseline for measuring and checking fused attention.
// Like the library it executes terms, and knows no encodings.
//
// Written as a careful PyTorch user would: whatever depends only on the length
// (buckets, cosines, masks, fixed biases) is computed once and cached, tables
// are gathered from a small product, and additions are in place.
#ifndef LOCUS_LAB_TRAIN_MATERIALISED_H_
#define LOCUS_LAB_TRAIN_MATERIALISED_H_

#include <torch/types.h>

#include <map>

#include "lab/train/attention.h"
#include "lab/train/lower_terms.h"

namespace locus::lab {

class MaterialisedAttention {
 public:
  // Arguments and result as for FusedAttention; q, k and v may also be float64.
  // An object serves a single encoding, whose options must not change.
  torch::Tensor operator()(const torch::Tensor& q, const torch::Tensor& k,
                           const torch::Tensor& v,
                           const EncodingValues& encoding,
                           const AttentionCall& call);

  // Cosines and sines [L, pairs], separate for q and k since xPos scales them
  // differently.
  struct CosSin {
    torch::Tensor q_cos = {}, q_sin = {};
    torch::Tensor k_cos = {}, k_sin = {};
  };

  // Values that depend only on the length.
  struct Constants {
    Terms terms = {};
    torch::Tensor coordinates = {};  // [L, axes] of the rotation
    torch::Tensor decay = {};        // [L, pairs]: log of q's factor
    torch::Tensor q_buckets = {};    // [L, L], query by key
    torch::Tensor k_buckets = {};
    torch::Tensor v_buckets = {};
    torch::Tensor bias_buckets = {};
    torch::Tensor mask = {};    // [L, L]: 0 or -infinity
    CosSin value_cos_sin = {};  // of values at the key
    TermTensors fixed = {};     // without parameters: the terms,
    CosSin cos_sin = {};        // their rotation,
    torch::Tensor bias = {};    // and their bias with the mask
  };

 private:
  std::map<int64_t, Constants> by_length_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_MATERIALISED_H_
