// Which keys of its sequence a query sees.
#ifndef LOCUS_SRC_KERNELS_PLAN_VISIBLE_H_
#define LOCUS_SRC_KERNELS_PLAN_VISIBLE_H_

#include <algorithm>
#include <bit>
#include <cstdint>

namespace locus::kernels {

// Keys [begin, end) in sorted order.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  bool empty() const { return begin >= end; }
  int64_t size() const { return empty() ? 0 : end - begin; }
};
// The intersection of two intervals; {0, 0} if it is empty.
constexpr Interval Within(Interval a, Interval b) {
  const Interval both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.begin < both.end ? both : Interval{};
}

// The smallest interval that contains both.
constexpr Interval Around(Interval a, Interval b) {
  if (b.begin >= b.end) return a;
  if (a.begin >= a.end) return b;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

// The keys that a query sees, pair masks aside: an interval except for a hole,
// which a window leaves after a prefix.
struct Visible {
  Interval all;
  Interval hole;
};

// The keys of a query that sees `seen` and a prefix before it.
inline Visible WithPrefix(Interval prefix, Interval seen) {
  if (prefix.empty()) return {.all = seen, .hole = {}};
  if (seen.empty()) return {.all = prefix, .hole = {}};
  return {.all = {prefix.begin, std::max(prefix.end, seen.end)},
          .hole = prefix.end < seen.begin ? Interval{prefix.end, seen.begin}
                                          : Interval{}};
}

// One row of a pair mask: key j is bit j % 64 of word j / 64.
struct BitRow {
  // The first key of [begin, end) that is visible (`seen`) or hidden (!`seen`);
  // `end` if there is none.
  int64_t First(int64_t begin, int64_t end, bool seen) const {
    while (begin < end) {
      const uint64_t word =
          (seen ? words[begin >> 6] : ~words[begin >> 6]) >> (begin & 63);
      if (word != 0) return std::min(end, begin + std::countr_zero(word));
      begin = (begin | 63) + 1;
    }
    return end;
  }
  // One past the last visible key of [begin, end); `begin` if there is none.
  int64_t AfterLast(int64_t begin, int64_t end) const {
    while (begin < end) {
      const uint64_t word = words[(end - 1) >> 6] << (63 - ((end - 1) & 63));
      if (word != 0) return std::max(begin, end - std::countl_zero(word));
      end = (end - 1) & ~int64_t{63};
    }
    return begin;
  }

  const uint64_t* words = nullptr;  // nullptr: no mask
};

// The part of some keys that a query sees.
struct Glimpse {
  Interval seen;      // from the first visible key to the last
  bool gaps = false;  // some keys in between are hidden
};

// The part of `keys` that a query sees, given `visible` and its row of the pair
// mask.
inline Glimpse GlimpseOf(const Visible& visible, BitRow row, Interval keys) {
  Interval seen = Within(visible.all, keys);
  if (seen.empty()) return {};
  if (row.words != nullptr) {
    seen.begin = row.First(seen.begin, seen.end, /*seen=*/true);
    seen.end = row.AfterLast(seen.begin, seen.end);
    if (seen.empty()) return {};
    if (row.First(seen.begin, seen.end, /*seen=*/false) < seen.end) {
      return {.seen = seen, .gaps = true};
    }
  }
  if (visible.hole.empty()) return {.seen = seen};
  // A hole at either end shortens the interval.
  if (visible.hole.begin <= seen.begin) {
    seen.begin = std::max(seen.begin, visible.hole.end);
  }
  if (visible.hole.end >= seen.end) {
    seen.end = std::min(seen.end, visible.hole.begin);
  }
  if (seen.empty()) return {};
  return {.seen = seen, .gaps = !Within(visible.hole, seen).empty()};
}

// Calls f(begin, end) for each range of keys in `seen` hidden from the query.
template <typename F>
void ForHiddenKeys(const Visible& visible, BitRow row, Interval seen,
                   const F& f) {
  const Interval hole = Within(visible.hole, seen);
  if (!hole.empty()) f(hole.begin, hole.end);
  if (row.words == nullptr) return;
  for (int64_t j = seen.begin; j < seen.end;) {
    const int64_t begin = row.First(j, seen.end, /*seen=*/false);
    if (begin == seen.end) return;
    j = row.First(begin, seen.end, /*seen=*/true);
    f(begin, j);
  }
}

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_PLAN_VISIBLE_H_
