// Sizes, positions and mask of an attention call, resolved once, for both the
// reference and the kernels.
#ifndef LOCUS_SRC_TERMS_CALL_H_
#define LOCUS_SRC_TERMS_CALL_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "locus/attention.h"
#include "locus/tensor.h"
#include "locus/terms.h"

namespace locus {

// Sizes of a call, from q [B, Hq, Lq, D], k [B, Hkv, Lk, D] and
// v [B, Hkv, Lk, Dv]. Query head h uses key head h / (q_heads / kv_heads).
struct CallSizes {
  int64_t batch = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t q_len = 0;
  int64_t k_len = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
};

// Checks ranks, matching sizes and the options' spans; throws Error.
CallSizes CheckCall(const Tensor& q, const Tensor& k, const Tensor& v,
                    const AttentionOptions& options);

// Throws Error if the options have a scale other than that of the terms.
void CheckScale(const Terms& terms, const AttentionOptions& options);

// Throws Error if there are table queries without a query table.
void CheckTableQueries(const Terms& terms, const AttentionOptions& options);

// Throws Error if the options of a backward pass do not match the call.
void CheckBackward(const CallSizes& sizes, const AttentionOptions& options,
                   const BackwardOptions& backward);
// Zero gradients, f64, for the operands that have gradients.
OperandGrads ZeroOperandGrads(const AttentionOptions& options,
                              const BackwardOptions& backward);

// A range [first, last] of places: what causality and window compare, which are
// positions, or indices with AttentionOptions::by_index.
struct PlaceRange {
  int64_t first = kLowestPosition;
  int64_t last = kHighestPosition;
};

// The resolved positions and mask of a call. Its options must outlive it.
class CallMask {
 public:
  CallMask(const CallSizes& sizes, const AttentionOptions& options);

  int64_t QPos(int64_t b, int64_t i) const {
    return q_pos_.empty() ? QIndex(b, i)
                          : q_pos_[static_cast<size_t>(b * q_step_ + i)];
  }
  int64_t KPos(int64_t b, int64_t j) const {
    return k_pos_.empty() ? j : k_pos_[static_cast<size_t>(b * k_step_ + j)];
  }
  // The places of query i and key j.
  int64_t QPlace(int64_t b, int64_t i) const {
    return by_index_ ? QIndex(b, i) : QPos(b, i);
  }
  int64_t KPlace(int64_t b, int64_t j) const {
    return by_index_ ? j : KPos(b, j);
  }
  bool ByIndex() const { return by_index_; }
  // Without a prefix, a query at place m sees key places
  // [m - Behind(), m + Ahead()] that are in Chunk(m).
  int64_t Behind() const {
    return window_ ? std::min(BucketMap::kHighest, window_->left)
                   : BucketMap::kHighest;
  }
  int64_t Ahead() const {
    if (causal_) return 0;
    return window_ ? std::min(BucketMap::kHighest, window_->right)
                   : BucketMap::kHighest;
  }
  // The places of the chunk that contains m; without chunks, all places.
  PlaceRange Chunk(int64_t m) const;
  // Keys below this index are visible to every query of their segment.
  int64_t Prefix(int64_t b) const {
    return prefix_lengths_.empty() ? 0
                                   : prefix_lengths_[static_cast<size_t>(b)];
  }
  // Number of valid keys of a sequence.
  int64_t Keys(int64_t b) const {
    return key_lengths_.empty() ? k_len_ : key_lengths_[static_cast<size_t>(b)];
  }
  // Whether query i of head h of sequence b sees key j.
  bool Visible(int64_t b, int64_t h, int64_t i, int64_t j) const;

  // The shape that an encoding is lowered for: the ranges of positions, and of
  // offsets that causality, window and segments leave visible.
  Shape ShapeOf(const CallSizes& sizes, const AttentionOptions& options) const;

 private:
  int64_t QIndex(int64_t b, int64_t i) const {
    return std::max<int64_t>(Keys(b) - q_len_, 0) + i;
  }

  std::span<const int64_t> q_pos_, k_pos_, key_lengths_, q_seg_, k_seg_,
      prefix_lengths_;
  int64_t q_len_ = 0, k_len_ = 0;
  int64_t q_step_ = 0, k_step_ = 0, q_seg_step_ = 0, k_seg_step_ = 0;
  bool causal_ = false;
  bool by_index_ = false;  // set only if there are positions
  std::optional<Window> window_;
  std::optional<int64_t> chunk_;
  PairMask pairs_;
};

}  // namespace locus

#endif  // LOCUS_SRC_TERMS_CALL_H_
