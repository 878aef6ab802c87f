#include "kernels/plan/tokens.h"

#include <limits>
#include <numeric>

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

// `place` is what masks compare; if `by_index`, it differs from the position.
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

// Finds runs of the positions that bucket maps use: respaced on a grid, and
// with a special token as a run of its own. `counted`: positions are known to
// increase by one.
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

int64_t SegmentOf(std::span<const int64_t> segments, int64_t length, int64_t b,
                  int64_t i) {
  const int64_t step =
      static_cast<int64_t>(segments.size()) == length ? 0 : length;
  return segments[static_cast<size_t>(b * step + i)];
}

// The keys of `ks` that query i of `qs` sees; the first `prefix` keys are
// visible to all queries.
Visible FindVisible(const CallMask& mask, int64_t prefix, const Tokens& qs,
                    const Tokens& ks, size_t i) {
  const int64_t m = qs.places()[i];
  const std::vector<int64_t>& places = ks.places();
  auto begin = places.begin();
  auto end = places.end();
  if (!qs.segment.empty()) {
    const auto range =
        std::equal_range(ks.segment.begin(), ks.segment.end(), qs.segment[i]);
    begin += range.first - ks.segment.begin();
    end = places.begin() + (range.second - ks.segment.begin());
  }
  Interval seen{begin - places.begin(), end - places.begin()};
  if (prefix > 0 && !ks.in_order) return {.all = seen, .hole = {}};
  const Interval kept = Within(seen, {0, prefix});
  const PlaceRange chunk = mask.Chunk(m);
  const int64_t last = std::min(m + mask.Ahead(), chunk.last);
  const int64_t first = std::max(m - mask.Behind(), chunk.first);
  if (last < kHighestPosition) {
    seen.end = std::upper_bound(begin, end, last) - places.begin();
  }
  if (first > kLowestPosition) {
    seen.begin = std::lower_bound(begin, end, first) - places.begin();
  }
  if (seen.begin > seen.end) seen.begin = seen.end;
  return WithPrefix(kept, seen);
}

}  // namespace

Tokens ConsecutiveTokens(int64_t first, int64_t count, const Terms& terms) {
  Tokens tokens = CountTokens(count);
  for (int64_t& position : tokens.position) position += first;
  FindRuns(tokens, terms, /*counted=*/true);
  return tokens;
}

size_t Tokens::RunOf(int64_t i) const {
  const auto after = std::ranges::upper_bound(runs, i, {}, &Run::first);
  return static_cast<size_t>(after - runs.begin()) - 1;
}

SortedTokens::SortedTokens(const CallSizes& sizes, const CallMask& mask,
                           const AttentionOptions& options,
                           const Terms& terms) {
  const auto per_sequence = [&](std::span<const int64_t> span, int64_t length) {
    return sizes.batch > 1 && static_cast<int64_t>(span.size()) > length;
  };
  const bool alike = options.key_lengths.empty() &&
                     (options.prefix_lengths.empty() || sizes.batch == 1) &&
                     !per_sequence(options.q_positions, sizes.q_len) &&
                     !per_sequence(options.k_positions, sizes.k_len) &&
                     !per_sequence(options.q_segments, sizes.q_len) &&
                     !per_sequence(options.k_segments, sizes.k_len);
  const bool segmented = !options.q_segments.empty();
  const bool count_queries = options.q_positions.empty() && !segmented;
  const bool count_keys = options.k_positions.empty() && !segmented;
  for (int64_t b = 0; b < (alike ? 1 : sizes.batch); ++b) {
    Tokens& qs = queries_.emplace_back(SortTokens(
        sizes.q_len, [&](int64_t i) { return mask.QPos(b, i); },
        [&](int64_t i) { return mask.QPlace(b, i); }, mask.ByIndex(),
        [&](int64_t i) {
          return SegmentOf(options.q_segments, sizes.q_len, b, i);
        },
        segmented));
    const int64_t present = mask.Keys(b);
    Tokens& ks = keys_.emplace_back(
        count_keys
            ? CountTokens(present)
            : SortTokens(
                  present, [&](int64_t j) { return mask.KPos(b, j); },
                  [&](int64_t j) { return mask.KPlace(b, j); }, mask.ByIndex(),
                  [&](int64_t j) {
                    return SegmentOf(options.k_segments, sizes.k_len, b, j);
                  },
                  segmented));
    FindRuns(qs, terms, count_queries);
    FindRuns(ks, terms, count_keys);
    std::vector<Visible>& seen = visible_.emplace_back();
    seen.reserve(qs.position.size());
    const int64_t prefix = std::min(mask.Prefix(b), present);
    scattered_prefix_ |= prefix > 0 && !ks.in_order;
    for (size_t i = 0; i < qs.position.size(); ++i) {
      seen.push_back(FindVisible(mask, prefix, qs, ks, i));
      holes_ |= !seen.back().hole.empty();
    }
  }
}

}  // namespace locus::kernels
