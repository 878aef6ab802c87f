// Attention of short sequences, behind run-time dispatch.
//
// A call of a few tokens is over in less time than sorting its tokens and
// packing its operands would take. Here positions are consecutive, what a query
// sees is computed instead of looked up, and whole rows of scores fit in L1.
#ifndef LOCUS_SRC_KERNELS_SHORT_SHORT_H_
#define LOCUS_SRC_KERNELS_SHORT_SHORT_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/plan/call.h"

namespace locus::kernels {

// Tokens on either side. Beyond that the tiled kernel is as fast: setting up is
// a hundredth of the work.
inline constexpr int64_t kShortTokens = 256;
// Channels of a key and of a value: rows of a block are this far apart.
inline constexpr int64_t kShortChannels = 256;

// Whether Short takes a call that CheckCall has passed: at most kShortTokens
// tokens at consecutive positions, alike in all sequences, without segments;
// of the terms scale, rotation, extra dimensions and biases. A few queries over
// many keys are left to Decode.
bool IsShort(const CallSizes& sizes, const Terms& terms,
             const AttentionOptions& options);

// A short call; throws Error if the terms do not fit it. One at a time may be
// alive in a thread.
struct ShortCall {
  ShortCall(const CallSizes& call_sizes, const Tensor& q_tensor,
            const Tensor& k_tensor, const Tensor& v_tensor,
            const Terms& call_terms, const AttentionOptions& options);

  int64_t Keys(int64_t b) const {
    return key_lengths.empty() ? sizes.k_len
                               : key_lengths[static_cast<size_t>(b)];
  }
  // What query i of sequence b sees.
  Interval Sees(int64_t b, int64_t i) const {
    const int64_t keys = Keys(b);
    const int64_t at = q_first + i - k_first;  // the key at the same position
    Interval seen{std::clamp<int64_t>(at - behind, 0, keys),
                  std::clamp<int64_t>(at + ahead + 1, 0, keys)};
    if (seen.begin > seen.end) seen.begin = seen.end;
    return seen;
  }

  // The bias of query i of head h and key j, times log2(e), at [j]; keys past
  // the last may be read, up to a whole panel.
  const float* BiasRow(int64_t h, int64_t i) const {
    return bias + h * bias_head + i * bias_row;
  }

  const CallSizes& sizes;
  const Terms& terms;
  Shape shape;
  Rows q, k, v;
  float softcap = 0.0F;
  std::span<const int64_t> key_lengths;
  int64_t q_first = 0;  // query i is at position q_first + i
  int64_t k_first = 0;  // key j is at position k_first + j
  int64_t behind = 0;   // a query sees so many keys back and ahead
  int64_t ahead = 0;
  // Memory of the calling thread: biases by rel = n - m or, where they do not
  // depend on the offset alone, by pair; and cosines and sines of the first
  // query and the first key onwards, [tokens, pairs] each. nullptr: no bias, no
  // rotation.
  const float* bias = nullptr;
  int64_t bias_head = 0, bias_row = 0;
  const float *q_cos = nullptr, *q_sin = nullptr;
  const float *k_cos = nullptr, *k_sin = nullptr;

 private:
  void FindShape(const AttentionOptions& o);
  void LayOutByRel();
  void LayOutByPair();
  void FindAngles();
};

// The same results as Forward. out [B, Hq, Lq, Dv] is contiguous, lse
// [B, Hq, Lq] or nullptr.
void Short(const ShortCall& call, Tensor& out, float* lse, int threads);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_SHORT_SHORT_H_
