// The tokens of a call in the order that masks compare, and what each query
// sees of them.
#ifndef LOCUS_SRC_KERNELS_PLAN_TOKENS_H_
#define LOCUS_SRC_KERNELS_PLAN_TOKENS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

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

// Keys [begin, end) in sorted order.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  bool empty() const { return begin >= end; }
  int64_t size() const { return empty() ? 0 : end - begin; }
};
// What two have in common; {0, 0} if nothing.
constexpr Interval Within(Interval a, Interval b) {
  const Interval both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.begin < both.end ? both : Interval{};
}

// The tokens of all sequences, and the keys that every query sees.
class SortedTokens {
 public:
  SortedTokens() = default;
  SortedTokens(const CallSizes& sizes, const CallMask& mask,
               const AttentionOptions& options, const Terms& terms);

  const Tokens& Queries(int64_t b) const { return queries_[Sequence(b)]; }
  const Tokens& Keys(int64_t b) const { return keys_[Sequence(b)]; }
  // What query token i of sequence b sees, all in sorted order.
  Interval VisibleKeys(int64_t b, int64_t i) const {
    return visible_[Sequence(b)][static_cast<size_t>(i)];
  }
  // Sequences with tokens of their own; one, if all are alike.
  int64_t Sequences() const { return static_cast<int64_t>(keys_.size()); }
  size_t Sequence(int64_t b) const {
    return keys_.size() == 1 ? 0 : static_cast<size_t>(b);
  }

 private:
  std::vector<Tokens> queries_, keys_;
  std::vector<std::vector<Interval>> visible_;
};

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_TOKENS_H_
