// The tokens of a call in the order that masks compare, and what each query
// sees of them.
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

// Tokens whose positions rise by one: first token, count.
struct Run {
  int64_t first = 0;
  int64_t count = 0;
};

// One side of one sequence: tokens sorted by (segment, position), or by
// (segment, index) if that is what masks compare. Attention does not care about
// the order of keys, and sorted keys make what a query sees an interval.
struct Tokens {
  std::vector<int64_t> source;    // index in the tensor
  std::vector<int64_t> position;  // ascending within a segment, but for index
  std::vector<int64_t> segment;   // empty: all in one
  std::vector<int64_t> index;     // what masks compare; empty: the position
  std::vector<Run> runs;          // of consecutive positions, in order
  bool in_order = true;           // source[i] is i

  // `source`, or nullptr where every token is at its place.
  const int64_t* Order() const { return in_order ? nullptr : source.data(); }
  // The run that token i belongs to.
  size_t RunOf(int64_t i) const;
  // Whether tokens [begin, end) belong to one run.
  bool OneRun(int64_t begin, int64_t end) const {
    return runs.size() == 1 || RunOf(begin) == RunOf(end - 1);
  }
  int64_t Position(int64_t i) const { return position[static_cast<size_t>(i)]; }
  int64_t size() const { return static_cast<int64_t>(position.size()); }
  // What masks compare, in order.
  const std::vector<int64_t>& places() const {
    return index.empty() ? position : index;
  }
};

// `count` tokens at positions first, first + 1, ...
Tokens ConsecutiveTokens(int64_t first, int64_t count, const Terms& terms);

// The tokens of all sequences, and the keys that every query sees. Made by
// default it has none: every token is at its place.
class SortedTokens {
 public:
  SortedTokens() = default;
  SortedTokens(const CallSizes& sizes, const CallMask& mask,
               const AttentionOptions& options, const Terms& terms);

  const Tokens& Queries(int64_t b) const { return queries_[Sequence(b)]; }
  const Tokens& Keys(int64_t b) const { return keys_[Sequence(b)]; }
  // Where query token i of sequence b lies in the tensor, and where its keys
  // do: Order().
  int64_t QuerySource(int64_t b, int64_t i) const {
    return queries_.empty() ? i : Queries(b).source[static_cast<size_t>(i)];
  }
  const int64_t* KeyOrder(int64_t b) const {
    return keys_.empty() ? nullptr : Keys(b).Order();
  }
  // What query token i of sequence b sees, all in sorted order.
  const Visible& VisibleKeys(int64_t b, int64_t i) const {
    return visible_[Sequence(b)][static_cast<size_t>(i)];
  }
  // Whether queries have holes.
  bool holes() const { return holes_; }
  // Whether intervals do not tell what queries see: a prefix of keys that are
  // out of order.
  bool scattered_prefix() const { return scattered_prefix_; }
  // Sequences with tokens of their own; one, if all are alike.
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
