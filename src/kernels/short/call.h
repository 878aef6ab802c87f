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

// Cosines and sines of the first token of one side onwards, [tokens, pairs]
// each for a key head; nullptr: it is not rotated.
struct SideAngles {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t pairs = 0;
  int64_t head_step =
      0;  // floats from key head to key head; 0: they share them
};

// A short call. One at a time may be alive in a thread: it uses memory that the
// thread keeps.
struct ShortCall {
  explicit ShortCall(const Call& c);

  int64_t Keys(int64_t b) const { return call.plan.mask.Keys(b); }
  // What query i sees of the first `keys` keys, a prefix and a mask aside.
  Interval VisibleOf(int64_t keys, int64_t i) const {
    const int64_t at = q_first + i - k_first;  // the key at the same position
    Interval seen{std::clamp<int64_t>(at - behind, 0, keys),
                  std::clamp<int64_t>(at + ahead + 1, 0, keys)};
    if (seen.begin > seen.end) seen.begin = seen.end;
    return chunks ? WithinChunk(seen, i) : seen;
  }
  // All that it may see of them in some sequence.
  Interval ReachOf(int64_t keys, int64_t i) const {
    return call.plan.options.prefix_lengths.empty() ? VisibleOf(keys, i)
                                                    : Interval{0, keys};
  }
  // What query i of head h of sequence b sees. Where nothing hides, VisibleOf
  // tells all.
  Glimpse Look(int64_t b, int64_t h, int64_t i) const {
    return GlimpseOf(VisibleKeys(b, i), call.plan.pairs.Row(b, h, i),
                     {0, Keys(b)});
  }
  // Calls f(begin, end) for what is hidden from it inside `seen`.
  template <typename F>
  void ForHidden(int64_t b, int64_t h, int64_t i, Interval seen,
                 const F& f) const {
    ForHiddenKeys(VisibleKeys(b, i), call.plan.pairs.Row(b, h, i), seen, f);
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
  bool chunks = false;  // and none outside its chunk
  bool hides = false;   // some queries may not see all between two keys
  // Biases by offset or, where they do not depend on the offset alone, by pair;
  // nullptr: none.
  const float* bias = nullptr;
  int64_t bias_head = 0, bias_row = 0;
  // Of queries and keys, and of values and outputs.
  SideAngles q_angles, k_angles, v_angles, out_angles;

 private:
  Interval WithinChunk(Interval seen, int64_t i) const;
  // What query i of sequence b sees, a mask aside.
  Visible VisibleKeys(int64_t b, int64_t i) const {
    const int64_t keys = Keys(b);
    return WithPrefix({0, std::min(call.plan.mask.Prefix(b), keys)},
                      VisibleOf(keys, i));
  }
  void LayOutBias();
  void FindAngles();
  void FindValueAngles();
};

// Memory of this thread for the workers of a short call, which other short
// calls of it have left or which is zero: at most 600 KiB a worker.
float* ShortScratch(int64_t floats);

// Adds the bias of a call to rows of zeros, one for each head and query of a
// short call: [heads][q_len][stride], keys at [j]. For biases that offsets
// alone do not decide.
void AddBiasByPair(const ShortCall& call, int64_t heads, int64_t stride,
                   float* rows);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_SHORT_CALL_H_
