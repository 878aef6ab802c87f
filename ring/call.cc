#include "ring/call.h"

#include <algorithm>

namespace locus::ring {

int64_t CountBefore(const Chunk& tokens, int64_t length) {
  if (length <= tokens.first) return 0;
  const int64_t before =
      (length - tokens.first + tokens.stride - 1) / tokens.stride;
  return std::min(before, tokens.count);
}

std::vector<int64_t> TokenIds::Of(const Piece& piece) const {
  std::vector<int64_t> ids;
  const int64_t step = PerSequence() ? length : 0;
  for (int64_t b = 0; b < (PerSequence() ? batch : 1); ++b) {
    const auto first = values.begin() + b * step + piece.begin;
    ids.insert(ids.end(), first, first + piece.tokens.count);
  }
  return ids;
}

Range Call::Offsets() const {
  Range offsets{.lo = BucketMap::kLowest, .hi = BucketMap::kHighest};
  if (window) {
    offsets = {.lo = std::max(offsets.lo, -window->right),
               .hi = std::min(offsets.hi, window->left)};
  }
  if (causal) offsets.lo = std::max<int64_t>(offsets.lo, 0);
  return offsets;
}

Range Call::Chunks(const Range& positions) const {
  if (!chunk) return {.lo = 0, .hi = 0};
  // Rounded down, including for negative positions.
  const auto number = [this](int64_t position) {
    return position >= 0 ? position / *chunk
                         : -((-position + *chunk - 1) / *chunk);
  };
  return {.lo = number(positions.lo), .hi = number(positions.hi)};
}

bool Call::InPrefix(const Piece& k) const {
  return std::ranges::any_of(prefix_lengths, [&k](int64_t length) {
    return CountBefore(k.tokens, length) > 0;
  });
}

bool Call::Sees(const Piece& q, const Piece& k) const {
  if (q.positions.Empty() || k.positions.Empty()) return false;
  if (segmented && !q.segments.Meets(k.segments)) return false;
  if (InPrefix(k)) return true;
  if (!Chunks(q.positions).Meets(Chunks(k.positions))) return false;
  const Range offsets{.lo = q.positions.lo - k.positions.hi,
                      .hi = q.positions.hi - k.positions.lo};
  return offsets.Meets(Offsets());
}

bool Call::Needs(int rank, int owner) const {
  for (const Piece& q : queries[static_cast<size_t>(rank)]) {
    for (const Piece& k : keys[static_cast<size_t>(owner)]) {
      if (Sees(q, k)) return true;
    }
  }
  return false;
}

}  // namespace locus::ring
