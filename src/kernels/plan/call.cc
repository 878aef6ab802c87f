#include "kernels/plan/call.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/fail.h"
#include "core/threads.h"

namespace locus::kernels {
namespace {

// Tokens whose positions are their indices.
Tokens CountTokens(int64_t count) {
  Tokens t;
  t.source.resize(static_cast<size_t>(count));
  std::iota(t.source.begin(), t.source.end(), 0);
  t.position = t.source;
  return t;
}

// `place` is what masks compare: `by_index`, something else than the position.
Tokens SortTokens(int64_t count, const auto& position, const auto& place,
                  bool by_index, const auto& segment, bool segmented) {
  Tokens t = CountTokens(count);
  const auto fill = [&] {
    std::ranges::transform(t.source, t.position.begin(), position);
    if (by_index) {
      t.index.resize(t.source.size());
      std::ranges::transform(t.source, t.index.begin(), place);
    }
    if (segmented) {
      t.segment.resize(t.source.size());
      std::ranges::transform(t.source, t.segment.begin(), segment);
    }
  };
  fill();
  const auto key = [&](int64_t i) {
    return std::pair(segmented ? segment(i) : 0, place(i));
  };
  const bool sorted = segmented ? std::ranges::is_sorted(t.source, {}, key)
                                : std::ranges::is_sorted(t.places());
  if (sorted) return t;
  t.in_order = false;
  std::ranges::stable_sort(t.source, {}, key);
  fill();
  return t;
}

// Runs of the positions as the bucket maps see them: respaced on a grid, and
// with a special token apart. `counted`: positions count up by one.
void FindRuns(Tokens& t, const Terms& terms, bool counted) {
  const BucketMap* map = nullptr;
  if (terms.bias && std::holds_alternative<BiasTable>(*terms.bias)) {
    map = &std::get<BiasTable>(*terms.bias).buckets;
  }
  const bool respaced = map != nullptr && map->grid;
  const int64_t special = map != nullptr && map->special
                              ? map->special->position
                              : std::numeric_limits<int64_t>::min();
  const std::vector<int64_t>& p = t.position;
  const bool plain =
      !respaced && t.segment.empty() && (map == nullptr || !map->special);
  if (plain && counted && !p.empty()) {
    t.runs.push_back({.first = 0, .count = t.size()});
    return;
  }
  const auto joins = [&](size_t at) {
    if (p[at] != p[at - 1] + 1) return false;
    if (plain) return true;
    if (p[at] == special || p[at - 1] == special) return false;
    if (!t.segment.empty() && t.segment[at] != t.segment[at - 1]) return false;
    return !respaced || map->Respace(p[at]) == map->Respace(p[at - 1]) + 1;
  };
  for (size_t first = 0; first < p.size();) {
    size_t end = first + 1;
    while (end < p.size() && joins(end)) ++end;
    t.runs.push_back({.first = static_cast<int64_t>(first),
                      .count = static_cast<int64_t>(end - first)});
    first = end;
  }
}

}  // namespace

int ThreadsFor(const CallSizes& s, int requested) {
  // A thread must have some tens of microseconds of multiply-adds to be worth
  // waking.
  constexpr double kWorthAThread = 2e6;
  const int threads = NumThreads(requested);
  if (threads == 1) return 1;
  const double work = static_cast<double>(s.batch * s.q_heads) *
                      static_cast<double>(s.q_len * s.k_len) *
                      static_cast<double>(s.head_dim + s.value_dim);
  return static_cast<int>(
      std::clamp(work / kWorthAThread, 1.0, static_cast<double>(threads)));
}

Call::Call(const Tensor& q_tensor, const Tensor& k_tensor,
           const Tensor& v_tensor, const Terms& call_terms,
           const AttentionOptions& options)
    : sizes(CheckCall(q_tensor, k_tensor, v_tensor, options)),
      terms(call_terms),
      q(q_tensor),
      k(k_tensor),
      v(v_tensor),
      softcap(static_cast<float>(options.softcap.value_or(0.0))),
      causal(options.causal),
      window(options.window) {
  const CallMask mask(sizes, options);
  shape = mask.ShapeOf(sizes, options);
  Validate(terms, shape);
  if (terms.v_table && terms.v_table->rows.size(2) != sizes.value_dim) {
    Fail("the value table {} does not match v {}",
         terms.v_table->rows.Describe(), v_tensor.Describe());
  }
  const auto per_sequence = [&](std::span<const int64_t> span, int64_t length) {
    return sizes.batch > 1 && static_cast<int64_t>(span.size()) > length;
  };
  shared = options.key_lengths.empty() &&
           !per_sequence(options.q_positions, sizes.q_len) &&
           !per_sequence(options.k_positions, sizes.k_len) &&
           !per_sequence(options.q_segments, sizes.q_len) &&
           !per_sequence(options.k_segments, sizes.k_len);
  const auto segment_of = [](std::span<const int64_t> span, int64_t length,
                             int64_t b, int64_t i) {
    const int64_t step =
        static_cast<int64_t>(span.size()) == length ? 0 : length;
    return span[static_cast<size_t>(b * step + i)];
  };
  const bool segmented = !options.q_segments.empty();
  for (int64_t b = 0; b < (shared ? 1 : sizes.batch); ++b) {
    queries.push_back(SortTokens(
        sizes.q_len, [&](int64_t i) { return mask.QPos(b, i); },
        [&](int64_t i) { return mask.QPlace(b, i); }, mask.ByIndex(),
        [&](int64_t i) {
          return segment_of(options.q_segments, sizes.q_len, b, i);
        },
        segmented));
    const int64_t present = mask.Keys(b);
    const bool counted = options.k_positions.empty() && !segmented;
    if (counted) {
      keys.push_back(CountTokens(present));
    } else {
      keys.push_back(SortTokens(
          present, [&](int64_t j) { return mask.KPos(b, j); },
          [&](int64_t j) { return mask.KPlace(b, j); }, mask.ByIndex(),
          [&](int64_t j) {
            return segment_of(options.k_segments, sizes.k_len, b, j);
          },
          segmented));
    }
    FindRuns(queries.back(), terms, options.q_positions.empty() && !segmented);
    FindRuns(keys.back(), terms, counted);
    std::vector<Interval>& seen = sees.emplace_back();
    for (int64_t i = 0; i < sizes.q_len; ++i) {
      seen.push_back(FindInterval(queries.back(), keys.back(), i));
    }
  }
}

size_t Tokens::RunOf(int64_t i) const {
  const auto after = std::ranges::upper_bound(runs, i, {}, &Run::first);
  return static_cast<size_t>(after - runs.begin()) - 1;
}

Interval Call::FindInterval(const Tokens& qs, const Tokens& ks,
                            int64_t i) const {
  const int64_t m = qs.places()[static_cast<size_t>(i)];
  const std::vector<int64_t>& places = ks.places();
  auto begin = places.begin();
  auto end = places.end();
  if (!qs.segment.empty()) {
    const auto range = std::equal_range(ks.segment.begin(), ks.segment.end(),
                                        qs.segment[static_cast<size_t>(i)]);
    begin += range.first - ks.segment.begin();
    end = places.begin() + (range.second - ks.segment.begin());
  }
  Interval seen{begin - places.begin(), end - places.begin()};
  if (causal || window) {
    int64_t ahead = BucketMap::kHighest;
    if (window) ahead = std::min(ahead, window->right);
    if (causal) ahead = 0;
    seen.end = std::upper_bound(begin, end, m + ahead) - places.begin();
  }
  if (window) {
    const int64_t behind = std::min(BucketMap::kHighest, window->left);
    seen.begin = std::lower_bound(begin, end, m - behind) - places.begin();
  }
  if (seen.begin > seen.end) seen.begin = seen.end;
  return seen;
}

}  // namespace locus::kernels
