// Sizes, positions and mask of an attention call: resolved once, for the
// reference and the kernels alike.
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

// Sizes of a call, read off q [B, Hq, Lq, D], k [B, Hkv, Lk, D] and
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

// Terms that are given to a call carry their scale: throws Error if the options
// ask for another.
void CheckScale(const Terms& terms, const AttentionOptions& options);

// Resolved positions and mask of a call.
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
  // What causality and window compare.
  int64_t QPlace(int64_t b, int64_t i) const {
    return by_index_ ? QIndex(b, i) : QPos(b, i);
  }
  int64_t KPlace(int64_t b, int64_t j) const {
    return by_index_ ? j : KPos(b, j);
  }
  bool ByIndex() const { return by_index_; }
  // How many keys of a sequence exist.
  int64_t Keys(int64_t b) const {
    return key_lengths_.empty() ? k_len_ : key_lengths_[static_cast<size_t>(b)];
  }
  bool Visible(int64_t b, int64_t i, int64_t j) const;

  // The shape an encoding lowers for: extreme positions, and extreme offsets
  // that causality, window and segments leave.
  Shape ShapeOf(const CallSizes& sizes, const AttentionOptions& options) const;

 private:
  int64_t QIndex(int64_t b, int64_t i) const {
    return std::max<int64_t>(Keys(b) - q_len_, 0) + i;
  }

  std::span<const int64_t> q_pos_, k_pos_, key_lengths_, q_seg_, k_seg_;
  int64_t q_len_ = 0, k_len_ = 0;
  int64_t q_step_ = 0, k_step_ = 0, q_seg_step_ = 0, k_seg_step_ = 0;
  bool causal_ = false;
  bool by_index_ = false;  // and positions are something else
  std::optional<Window> window_;
};

}  // namespace locus

#endif  // LOCUS_SRC_TERMS_CALL_H_
