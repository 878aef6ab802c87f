// The tokens of a call, sorted by what masks compare, and the keys that each
// query sees.
#ifndef LOCUS_SRC_KERNELS_PLAN_TOKENS_H_
#define LOCUS_SRC_KERNELS_PLAN_TOKENS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/plan/visible.h"
#include "locus/attention.h"
#include "locus/terms.h"
#include "terms/call.h"

namespace locus::kernels {

// Tokens whose positions increase by one.
struct Run {
  int64_t first = 0;
  int64_t count = 0;
};

// The queries or the keys of one sequence, sorted by (segment, position), or by
// (segment, index) if that is what masks compare. Attention does not depend on
// the order of keys, and among sorted keys a query sees an interval.
struct Tokens {
  std::vector<int64_t> source;    // index in the tensor
  std::vector<int64_t> position;  // ascending per segment unless `index` is set
  std::vector<int64_t> segment;   // empty: one segment
  std::vector<int64_t> index;     // what masks compare; empty: the position
  std::vector<Run> runs;          // of consecutive positions, in order
  bool in_order = true;           // source[i] == i

  // `source`, or nullptr if the tokens are in order.
  const int64_t* Order() const { return in_order ? nullptr : source.data(); }
  // The index of the run that contains token i.
  size_t RunOf(int64_t i) const;
  // Whether tokens [begin, end) belong to one run.
  bool OneRun(int64_t begin, int64_t end) const {
    return runs.size() == 1 || RunOf(begin) == RunOf(end - 1);
  }
  int64_t Position(int64_t i) const { return position[static_cast<size_t>(i)]; }
  int64_t size() const { return static_cast<int64_t>(position.size()); }
  // What masks compare, ascending per segment.
  const std::vector<int64_t>& places() const {
    return index.empty() ? position : index;
  }
};

// `count` tokens at positions first, first + 1, ...
Tokens ConsecutiveTokens(int64_t first, int64_t count, const Terms& terms);

// The tokens of all sequences, and the keys that each query sees. If
// default-constructed it is empty and stands for tokens in tensor order.
class SortedTokens {
 public:
  SortedTokens() = default;
  SortedTokens(const CallSizes& sizes, const CallMask& mask,
               const AttentionOptions& options, const Terms& terms);

  const Tokens& Queries(int64_t b) const { return queries_[Sequence(b)]; }
  const Tokens& Keys(int64_t b) const { return keys_[Sequence(b)]; }
  // The index in the tensor of query token i of sequence b, and the order of
  // its keys, as Order().
  int64_t QuerySource(int64_t b, int64_t i) const {
    return queries_.empty() ? i : Queries(b).source[static_cast<size_t>(i)];
  }
  const int64_t* KeyOrder(int64_t b) const {
    return keys_.empty() ? nullptr : Keys(b).Order();
  }
  // The keys that query token i of sequence b sees; both in sorted order.
  const Visible& VisibleKeys(int64_t b, int64_t i) const {
    return visible_[Sequence(b)][static_cast<size_t>(i)];
  }
  // Whether some query has a hole.
  bool holes() const { return holes_; }
  // Whether there is a prefix of keys that are out of order, so that intervals
  // cannot describe visibility.
  bool scattered_prefix() const { return scattered_prefix_; }
  // Number of distinct sequences: 1 if all have the same tokens.
  int64_t Sequences() const { return static_cast<int64_t>(keys_.size()); }
  size_t Sequence(int64_t b) const {
    return keys_.size() == 1 ? 0 : static_cast<size_t>(b);
  }

 private:
  std::vector<Tokens> queries_, keys_;
  std::vector<std::vector<Visible>> visible_;
  bool holes_ = false;
  bool scattered_prefix_ = false;
};

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_TOKENS_H_
