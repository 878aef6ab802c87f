// The inputs of the short-sequence kernel besides q, k and v.
#ifndef LOCUS_SRC_KERNELS_SHORT_CALL_H_
#define LOCUS_SRC_KERNELS_SHORT_CALL_H_

#include <algorithm>
#include <cstdint>

#include "kernels/plan/plan.h"

namespace locus::kernels {

// The largest number of queries or keys. Beyond it the tiled kernel is as fast:
// its setup is a hundredth of the work.
inline constexpr int64_t kShortTokens = 256;
// The largest head_dim and value_dim: sets the stride of a block's rows.
inline constexpr int64_t kShortChannels = 256;

// Cosines and sines of the queries or the keys, from the first token on: each
// [tokens, pairs] per key head; nullptr if they are not rotated.
struct SideAngles {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t pairs = 0;
  int64_t head_step = 0;  // floats between key heads; 0 if they share angles
};

// A short call. It uses thread-local memory, so at most one per thread may be
// alive.
struct ShortCall {
  explicit ShortCall(const Call& c);

  int64_t Keys(int64_t b) const { return call.plan.mask.Keys(b); }
  // The keys, among the first `keys`, that query i sees, apart from prefix and
  // pair mask.
  Interval VisibleOf(int64_t keys, int64_t i) const {
    const int64_t at = q_first + i - k_first;  // the key at the same position
    Interval seen{std::clamp<int64_t>(at - behind, 0, keys),
                  std::clamp<int64_t>(at + ahead + 1, 0, keys)};
    if (seen.begin > seen.end) seen.begin = seen.end;
    return chunks ? WithinChunk(seen, i) : seen;
  }
  // The same for all sequences: all keys if there are prefixes.
  Interval ReachOf(int64_t keys, int64_t i) const {
    return call.plan.options.prefix_lengths.empty() ? VisibleOf(keys, i)
                                                    : Interval{0, keys};
  }
  // The keys that query i of head h of sequence b sees. Unless `hides`,
  // VisibleOf is enough.
  Glimpse Look(int64_t b, int64_t h, int64_t i) const {
    return GlimpseOf(VisibleKeys(b, i), call.plan.pairs.Row(b, h, i),
                     {0, Keys(b)});
  }
  // Calls f(begin, end) for each range of keys in `seen` hidden from query i.
  template <typename F>
  void ForHidden(int64_t b, int64_t h, int64_t i, Interval seen,
                 const F& f) const {
    ForHiddenKeys(VisibleKeys(b, i), call.plan.pairs.Row(b, h, i), seen, f);
  }

  // The bias of query i of head h by key, times log2(e). Rows are readable up
  // to a whole panel past the last key.
  const float* BiasRow(int64_t h, int64_t i) const {
    return bias + h * bias_head + i * bias_row;
  }

  const Call& call;
  const CallSizes& sizes;
  const Terms& terms;
  int64_t q_first = 0;  // query i is at position q_first + i
  int64_t k_first = 0;  // key j is at position k_first + j
  int64_t behind = 0;   // how many keys back and ahead a query sees
  int64_t ahead = 0;
  bool chunks = false;  // whether queries see only keys of their own chunk
  bool hides = false;  // for some queries, keys between visible ones are hidden
  // Bias by offset or, if it depends on more than the offset, by pair; nullptr
  // if there is none.
  const float* bias = nullptr;
  int64_t bias_head = 0, bias_row = 0;
  // Angles of queries and keys, and of values and outputs.
  SideAngles q_angles, k_angles, v_angles, out_angles;

 private:
  Interval WithinChunk(Interval seen, int64_t i) const;
  // The keys that query i of sequence b sees, apart from the pair mask.
  Visible VisibleKeys(int64_t b, int64_t i) const {
    const int64_t keys = Keys(b);
    return WithPrefix({0, std::min(call.plan.mask.Prefix(b), keys)},
                      VisibleOf(keys, i));
  }
  void LayOutBias();
  void FindAngles();
  void FindValueAngles();
};

// Scratch of this thread for all workers of a short call, at most 600 KiB per
// worker. Holds zeros or what earlier short calls of the thread left there.
float* ShortScratch(int64_t floats);

// Adds the bias of a call to zeroed rows, one per head and query:
// [heads][q_len][stride], indexed by key. For biases that depend on more than
// the offset.
void AddBiasByPair(const ShortCall& call, int64_t heads, int64_t stride,
                   float* rows);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_SHORT_CALL_H_
