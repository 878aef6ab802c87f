// What the kernel of short sequences reads beside q, k and v.
#ifndef LOCUS_SRC_KERNELS_SHORT_CALL_H_
#define LOCUS_SRC_KERNELS_SHORT_CALL_H_

#include <algorithm>
#include <cstdint>

#include "kernels/plan/plan.h"

namespace locus::kernels {

// Tokens on either side. Beyond that the tiled kernel is as fast: setting up is
// a hundredth of the work.
inline constexpr int64_t kShortTokens = 256;
// Channels of a key and of a value: rows of a block are this far apart.
inline constexpr int64_t kShortChannels = 256;

// A short call. One at a time may be alive in a thread: it uses memory that the
// thread keeps.
struct ShortCall {
  explicit ShortCall(const Call& c);

  int64_t Keys(int64_t b) const { return call.plan.mask.Keys(b); }
  // What query i sees of the first `keys` keys.
  Interval VisibleOf(int64_t keys, int64_t i) const {
    const int64_t at = q_first + i - k_first;  // the key at the same position
    Interval seen{std::clamp<int64_t>(at - behind, 0, keys),
                  std::clamp<int64_t>(at + ahead + 1, 0, keys)};
    if (seen.begin > seen.end) seen.begin = seen.end;
    return seen;
  }
  // What query i of sequence b sees.
  Interval VisibleKeys(int64_t b, int64_t i) const {
    return VisibleOf(Keys(b), i);
  }

  // The bias of query i of head h and key j, times log2(e), at [j]; keys past
  // the last may be read, up to a whole panel.
  const float* BiasRow(int64_t h, int64_t i) const {
    return bias + h * bias_head + i * bias_row;
  }

  const Call& call;
  const CallSizes& sizes;
  const Terms& terms;
  int64_t q_first = 0;  // query i is at position q_first + i
  int64_t k_first = 0;  // key j is at position k_first + j
  int64_t behind = 0;   // a query sees so many keys back and ahead
  int64_t ahead = 0;
  // Biases by offset or, where they do not depend on the offset alone, by pair;
  // and cosines and sines of the first query and the first key onwards,
  // [tokens, pairs] each. nullptr: no bias, no rotation.
  const float* bias = nullptr;
  int64_t bias_head = 0, bias_row = 0;
  const float *q_cos = nullptr, *q_sin = nullptr;
  const float *k_cos = nullptr, *k_sin = nullptr;

 private:
  void LayOutBias();
  void FindAngles();
};

// Adds the bias of a call to rows of zeros, one for each head and query of a
// short call: [heads][q_len][stride], keys at [j]. For biases that offsets
// alone do not decide.
void AddBiasByPair(const ShortCall& call, int64_t heads, int64_t stride,
                   float* rows);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_SHORT_CALL_H_
