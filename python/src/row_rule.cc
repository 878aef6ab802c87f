#include "row_rule.h"

#include <algorithm>
#include <limits>

#include "locus/error.h"

namespace locus::python {
namespace {

using Pieces = std::vector<BucketMap::Piece>;

std::string Text(int64_t value) { return std::to_string(value); }

// Where a rule without offsets begins, for `count` offsets.
int64_t FirstOffset(const std::string& name, int64_t count,
                    const RowRule& rule) {
  if (rule.first_offset) return *rule.first_offset;
  if (count % 2 == 0) {
    throw Error(name + " covers " + Text(count) +
                " offsets, which are not symmetric about 0: give first_offset");
  }
  return -(count / 2);
}

void CheckRange(const std::string& name, int64_t first, int64_t count) {
  if (first < BucketMap::kLowest || first > BucketMap::kHighest - count) {
    throw Error("the offsets of " + name + " must lie in [" +
                Text(BucketMap::kLowest) + ", " + Text(BucketMap::kHighest) +
                "], and begin at " + Text(first));
  }
}

// Offset first + i takes row rows[i]: stretches that rise, fall or stay.
Pieces PiecesOf(int64_t first, const std::vector<int64_t>& rows) {
  Pieces pieces;
  for (size_t i = 0; i < rows.size();) {
    size_t end = i + 1;
    int64_t step = 0;
    if (end < rows.size() && std::abs(rows[end] - rows[i]) <= 1) {
      step = rows[end] - rows[i];
      while (end < rows.size() && rows[end] - rows[end - 1] == step) ++end;
    }
    pieces.push_back({.start = first + static_cast<int64_t>(i),
                      .first_bucket = static_cast<int32_t>(rows[i]),
                      .step = static_cast<int32_t>(step)});
    i = end;
  }
  return pieces;
}

// Row b serves starts[b] up to starts[b + 1] - 1, and nothing if these are
// equal; the last row its own offset.
Pieces PiecesFrom(const std::vector<int64_t>& starts) {
  const auto serves = [&](size_t b) {
    return b + 1 < starts.size() ? starts[b + 1] - starts[b] : 1;
  };
  Pieces pieces;
  for (size_t b = 0; b < starts.size();) {
    size_t end = b + 1;
    if (serves(b) == 1) {
      while (end < starts.size() && serves(end) == 1) ++end;
    }
    if (serves(b) > 0) {
      pieces.push_back({.start = starts[b],
                        .first_bucket = static_cast<int32_t>(b),
                        .step = end - b > 1 ? 1 : 0});
    }
    b = end;
  }
  return pieces;
}

void CheckBuckets(const std::string& name, int64_t rows,
                  const std::vector<int64_t>& buckets) {
  for (const int64_t b : buckets) {
    if (b >= 0 && b < rows) continue;
    throw Error("the buckets of " + name + " must lie in [0, " +
                Text(rows - 1) + "], its rows, got " + Text(b));
  }
}

void CheckStarts(const std::string& name, int64_t rows, const RowRule& rule) {
  if (rule.first_offset || !rule.buckets.empty()) {
    throw Error("the offsets of " + name +
                " are given one by one: leave out first_offset and buckets");
  }
  const std::vector<int64_t>& starts = rule.offsets;
  if (static_cast<int64_t>(starts.size()) != rows) {
    throw Error("offsets must have an entry for each of the " + Text(rows) +
                " rows of " + name + ", got " + Text(starts.size()));
  }
  const auto falls = std::is_sorted_until(starts.begin(), starts.end());
  if (falls != starts.end()) {
    throw Error("the offsets of " + name + " must not fall, got " +
                Text(*falls) + " after " + Text(*(falls - 1)));
  }
  CheckRange(name, starts.front(), 1);
  CheckRange(name, starts.back(), 1);
}

}  // namespace

BucketMap MapOf(const std::string& name, int64_t rows, const RowRule& rule) {
  if (rows < 1 || rows > std::numeric_limits<int32_t>::max()) {
    throw Error(name + " must have from 1 to 2^31 - 1 rows, got " + Text(rows));
  }
  const bool plain = rule.buckets.empty() && rule.offsets.empty();
  if (plain && rows == 1 && rule.clip) return BucketMap::Constant();
  BucketMap map;
  map.count = static_cast<int32_t>(rows);
  int64_t first = 0, last = 0;
  if (!rule.offsets.empty()) {
    CheckStarts(name, rows, rule);
    first = rule.offsets.front();
    last = rule.offsets.back();
    map.pieces = PiecesFrom(rule.offsets);
  } else {
    const auto count =
        rule.buckets.empty() ? rows : static_cast<int64_t>(rule.buckets.size());
    first = FirstOffset(name, count, rule);
    CheckRange(name, first, count);
    last = first + count - 1;
    CheckBuckets(name, rows, rule.buckets);
    map.pieces = rule.buckets.empty()
                     ? Pieces{{.start = first, .first_bucket = 0, .step = 1}}
                     : PiecesOf(first, rule.buckets);
  }
  if (!rule.clip) {
    map.min_offset = first;
    map.max_offset = last;
    return map;
  }
  // The open ends stay as they are at the ends.
  const int32_t lowest = map.OfOffset(first), highest = map.OfOffset(last);
  if (map.pieces.front().step == 0) {
    map.pieces.front().start = BucketMap::kLowest;
  } else {
    map.pieces.insert(
        map.pieces.begin(),
        {.start = BucketMap::kLowest, .first_bucket = lowest, .step = 0});
  }
  if (map.pieces.back().step != 0) {
    map.pieces.push_back({.start = last, .first_bucket = highest, .step = 0});
  }
  return map;
}

}  // namespace locus::python
