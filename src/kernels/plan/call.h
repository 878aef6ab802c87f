// What the kernels are given: a validated call, and its tokens in order.
#ifndef LOCUS_SRC_KERNELS_PLAN_CALL_H_
#define LOCUS_SRC_KERNELS_PLAN_CALL_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/simd/rows.h"
#include "locus/attention.h"
#include "locus/tensor.h"
#include "locus/terms.h"

namespace locus::kernels {

// Tensors for the result of a call, contents undefined; lse only if asked for.
AttentionResult NewResult(const CallSizes& sizes, DType dtype, bool with_lse);

// Threads for a call: as requested, but fewer if it is short. Results do not
// depend on it.
int ThreadsFor(const CallSizes& sizes, int requested);

// A run of tokens whose positions rise by one: first token, count.
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
  int64_t size() const { return static_cast<int64_t>(position.size()); }
  // What masks compare, in order.
  const std::vector<int64_t>& places() const {
    return index.empty() ? position : index;
  }
};

// The keys [begin, end) that a query sees, in sorted order.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  bool empty() const { return begin >= end; }
};
// What two have in common; {0, 0} if nothing.
constexpr Interval Within(Interval a, Interval b) {
  const Interval both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.begin < both.end ? both : Interval{};
}

// A call, checked, with its tokens sorted.
struct Call {
  Call(const Tensor& q, const Tensor& k, const Tensor& v, const Terms& terms,
       const AttentionOptions& options);

  // What query token i (in sorted order) of sequence b sees.
  Interval Sees(int64_t b, int64_t i) const {
    return sees[shared ? 0 : static_cast<size_t>(b)][static_cast<size_t>(i)];
  }

  // The union of what queries [first, first + count) see.
  Interval AnySees(int64_t b, int64_t first, int64_t count) const {
    Interval any{sizes.k_len, 0};
    for (int64_t i = first; i < first + count; ++i) {
      const Interval seen = Sees(b, i);
      if (seen.begin >= seen.end) continue;
      any.begin = std::min(any.begin, seen.begin);
      any.end = std::max(any.end, seen.end);
    }
    return any;
  }

  const Tokens& Queries(int64_t b) const {
    return queries[shared ? 0 : static_cast<size_t>(b)];
  }
  const Tokens& Keys(int64_t b) const {
    return keys[shared ? 0 : static_cast<size_t>(b)];
  }
  int64_t KvHead(int64_t h) const {
    return h / (sizes.q_heads / sizes.kv_heads);
  }

  CallSizes sizes;
  const Terms& terms;
  Shape shape;
  Rows q, k, v;
  float softcap = 0.0F;
  bool causal = false;
  std::optional<Window> window;
  bool shared = false;  // every sequence has the same tokens
  std::vector<Tokens> queries;
  std::vector<Tokens> keys;
  std::vector<std::vector<Interval>> sees;

 private:
  Interval FindInterval(const Tokens& qs, const Tokens& ks, int64_t i) const;
};

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_CALL_H_
