// The same attention as plain tensor operations of libtorch, with its L x L
// scores in memory: the peer that fused attention is measured and checked
// against.
//
// Written as a careful user of PyTorch would: whatever depends on the length
// alone (buckets, cosines, masks, fixed biases) is made once and kept, tables
// are gathered from one small product, and additions are in place.
#ifndef LOCUS_LAB_MATERIALISED_H_
#define LOCUS_LAB_MATERIALISED_H_

#include <torch/types.h>

#include <map>
#include <utility>

#include "lab/attention.h"

namespace locus::lab {

class MaterialisedAttention {
 public:
  // Arguments and result as for FusedAttention; q, k and v may be float64 too.
  // One object serves one encoding, whose options must not change. Throws Error
  // for an encoding that has no such form here.
  torch::Tensor operator()(const torch::Tensor& q, const torch::Tensor& k,
                           const torch::Tensor& v,
                           const EncodingValues& encoding,
                           const AttentionCall& call);

  // What depends on the length alone.
  struct Constants {
    double scale = 1.0;
    bool interleaved = false;  // pairs of the rotation
    int64_t first_channel = 0;
    torch::Tensor q_cos = {}, q_sin = {};  // [L, pairs], q and k apart: xPos
    torch::Tensor k_cos = {}, k_sin = {};  // scales them differently
    torch::Tensor q_buckets = {};          // [L, L], query by key
    torch::Tensor k_buckets = {};
    torch::Tensor v_buckets = {};
    torch::Tensor bias_buckets = {};
    torch::Tensor bias = {};  // [heads or 1, L, L]: fixed bias and mask
    torch::Tensor mask = {};  // [L, L]: 0 or -infinity
  };

 private:
  std::map<int64_t, Constants> by_length_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_MATERIALISED_H_
