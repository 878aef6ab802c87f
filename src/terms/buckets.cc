// Bucket maps as integer pieces: the papers' formulas solved for thresholds.
#include <cmath>

#include "core/fail.h"
#include "locus/terms.h"

namespace locus {
namespace {

// A bucket of a distance n >= 0: bucket = first + step * (n - start).
struct DistancePiece {
  int64_t start;
  int32_t first;
  int32_t step;
};

// Bounds the relative error of a threshold: a long double with 64 mantissa bits
// rounds the exponent k / n and the power, 2^-64 * (ln 2^40 + 1) = 1.6e-18. A
// wider margin would mistake thresholds near 2^40 for integers.
constexpr long double kRounding = 1e-17L;

// Smallest integer n with n >= t. A threshold within rounding error of an
// integer counts as that integer: the papers' logarithms hit powers exactly.
int64_t IntegerAtLeast(long double t) {
  const long double nearest = std::round(t);
  if (std::abs(t - nearest) <= kRounding * std::max(1.0L, nearest)) {
    return static_cast<int64_t>(nearest);
  }
  return static_cast<int64_t>(std::ceil(t));
}

// Smallest integer n with n > t.
int64_t IntegerAbove(long double t) {
  const int64_t at_least = IntegerAtLeast(t);
  return std::abs(t - static_cast<long double>(at_least)) <= kRounding * t
             ? at_least + 1
             : at_least;
}

// Appends a piece, dropping earlier ones with the same start, which it
// overrides.
void PushPiece(std::vector<DistancePiece>& pieces, DistancePiece piece) {
  if (!pieces.empty() && pieces.back().start == piece.start) {
    pieces.back() = piece;
  } else {
    pieces.push_back(piece);
  }
}

// Raffel et al. 2020, as published with T5: bucket n below nb / 2, then
//   nb/2 + floor( ln(n / (nb/2)) / ln(max_distance / (nb/2)) * (nb - nb/2) ),
// at most nb - 1. Bucket nb/2 + k starts at n = nb/2 * ratio^(k / (nb - nb/2)).
std::vector<DistancePiece> T5Distances(int64_t num_buckets,
                                       int64_t max_distance) {
  const int64_t exact = num_buckets / 2;
  std::vector<DistancePiece> pieces;
  pieces.push_back({.start = 0, .first = 0, .step = 1});
  const int64_t log_buckets = num_buckets - exact;
  const long double ratio =
      static_cast<long double>(max_distance) / static_cast<long double>(exact);
  for (int64_t k = 0; k < log_buckets; ++k) {
    const long double power =
        static_cast<long double>(k) / static_cast<long double>(log_buckets);
    const int64_t start = IntegerAtLeast(static_cast<long double>(exact) *
                                         std::pow(ratio, power));
    PushPiece(
        pieces,
        {.start = start, .first = static_cast<int32_t>(exact + k), .step = 0});
  }
  return pieces;
}

// He et al. 2021, as published with DeBERTa-v2: n up to mid = floor(B / 2),
// then
//   mid + ceil( ln(n / mid) / ln((M - 1) / mid) * (mid - 1) ).
// Bucket mid + k starts above n = mid * ratio^((k - 1) / (mid - 1)); with
// mid = 1, mid is the only bucket.
std::vector<DistancePiece> DebertaDistances(int64_t position_buckets,
                                            int64_t max_positions) {
  const int64_t mid = position_buckets / 2;
  std::vector<DistancePiece> pieces;
  pieces.push_back({.start = 0, .first = 0, .step = 1});
  const long double ratio = static_cast<long double>(max_positions - 1) /
                            static_cast<long double>(mid);
  if (mid == 1) {
    PushPiece(pieces, {.start = 1, .first = 1, .step = 0});
    return pieces;
  }
  // Bucket B, one past the last, is the far end of the negative side.
  for (int64_t k = 1; k <= position_buckets - mid; ++k) {
    const long double power =
        static_cast<long double>(k - 1) / static_cast<long double>(mid - 1);
    const int64_t start =
        IntegerAbove(static_cast<long double>(mid) * std::pow(ratio, power));
    PushPiece(
        pieces,
        {.start = start, .first = static_cast<int32_t>(mid + k), .step = 0});
  }
  return pieces;
}

// Appends the pieces of the offsets 0, 1, 2, ..., with buckets shifted by `add`
// and capped at `last`.
void AppendPast(const std::vector<DistancePiece>& distances, int32_t add,
                int32_t last, std::vector<BucketMap::Piece>& pieces) {
  for (const DistancePiece& d : distances) {
    if (d.first + add > last) break;
    pieces.push_back(
        {.start = d.start, .first_bucket = d.first + add, .step = d.step});
  }
}

// Appends the pieces of the offsets ..., -2, -1. Distance n is offset -n, with
// bucket base + sign * (bucket of n).
void AppendFuture(const std::vector<DistancePiece>& distances, int32_t base,
                  int32_t sign, std::vector<BucketMap::Piece>& pieces) {
  for (size_t p = distances.size(); p-- > 0;) {
    const DistancePiece& d = distances[p];
    const bool farthest = p + 1 == distances.size();
    // Distances d.start .. last belong to this piece.
    const int64_t last =
        farthest ? -BucketMap::kLowest : distances[p + 1].start - 1;
    const int32_t reach =
        d.step == 0 ? 0 : static_cast<int32_t>(last - d.start) * d.step;
    pieces.push_back({.start = -last,
                      .first_bucket = base + sign * (d.first + reach),
                      .step = -sign * d.step});
  }
}

}  // namespace

BucketMap BucketMap::Constant() {
  BucketMap map;
  map.count = 1;
  map.pieces = {{.start = kLowest, .first_bucket = 0, .step = 0}};
  return map;
}

BucketMap BucketMap::Identity(int64_t lo, int64_t hi) {
  if (lo > hi) Fail("an offset range must not be empty, got [{}, {}]", lo, hi);
  if (lo < kLowest || hi > kHighest ||
      hi - lo >= std::numeric_limits<int32_t>::max()) {
    Fail("offsets [{}, {}] are too many for one table", lo, hi);
  }
  BucketMap map;
  map.count = static_cast<int32_t>(hi - lo + 1);
  map.min_offset = lo;
  map.max_offset = hi;
  map.pieces = {{.start = lo, .first_bucket = 0, .step = 1}};
  return map;
}

BucketMap BucketMap::Clip(int64_t lo, int64_t hi) {
  if (lo > hi) Fail("clipping needs r_min <= r_max, got {} > {}", lo, hi);
  BucketMap map = Identity(lo, hi);
  map.min_offset = kLowest;
  map.max_offset = kHighest;
  map.pieces.insert(map.pieces.begin(),
                    {.start = kLowest, .first_bucket = 0, .step = 0});
  map.pieces.push_back({.start = hi, .first_bucket = map.count - 1, .step = 0});
  return map;
}

BucketMap BucketMap::T5(int64_t num_buckets, int64_t max_distance,
                        bool bidirectional) {
  const int64_t per_side = bidirectional ? num_buckets / 2 : num_buckets;
  if (per_side < 2 || num_buckets > (int64_t{1} << 24) ||
      (bidirectional && num_buckets % 2 != 0)) {
    Fail("T5 needs {} buckets (and at most 2^24), got {}",
         bidirectional ? "an even number of at least 4" : "at least 2",
         num_buckets);
  }
  if (max_distance <= per_side / 2 || max_distance > (int64_t{1} << 40)) {
    Fail("T5 max_distance must be above {} (and at most 2^40), got {}",
         per_side / 2, max_distance);
  }
  BucketMap map;
  map.count = static_cast<int32_t>(num_buckets);
  const auto distances = T5Distances(per_side, max_distance);
  if (bidirectional) {
    // m - n < 0, a key after the query, takes the upper half.
    AppendFuture(distances, static_cast<int32_t>(per_side), 1, map.pieces);
  } else {
    map.pieces.push_back({.start = kLowest, .first_bucket = 0, .step = 0});
  }
  AppendPast(distances, 0, map.count, map.pieces);
  return map;
}

BucketMap BucketMap::Deberta(int64_t position_buckets,
                             int64_t max_relative_positions) {
  const bool logarithmic = position_buckets > 0;
  const int64_t span = logarithmic ? position_buckets : max_relative_positions;
  if (span < 1 || span > (int64_t{1} << 24)) {
    Fail(
        "DeBERTa needs a positive span (at most 2^24), got position_buckets {} "
        "and max_relative_positions {}",
        position_buckets, max_relative_positions);
  }
  BucketMap map;
  map.count = static_cast<int32_t>(2 * span);
  if (!logarithmic) {
    BucketMap clip = Clip(-span, span - 1);
    map.pieces = clip.pieces;
    return map;
  }
  if (position_buckets < 2 ||
      max_relative_positions - 1 <= position_buckets / 2 ||
      max_relative_positions > (int64_t{1} << 40)) {
    Fail(
        "DeBERTa log buckets need a position_buckets of at least 2 and "
        "max_relative_positions above {} (and at most 2^40), got {} and {}",
        position_buckets / 2 + 1, position_buckets, max_relative_positions);
  }
  const auto distances =
      DebertaDistances(position_buckets, max_relative_positions);
  const int32_t zero = static_cast<int32_t>(span);
  AppendFuture(distances, zero, -1, map.pieces);
  AppendPast(distances, zero, map.count - 1, map.pieces);
  return map;
}

BucketMap BucketMap::Window2D(int64_t height, int64_t width) {
  if (height < 1 || width < 1 || height > 4096 || width > 4096) {
    Fail("a 2-D window needs sides from 1 to 4096, got {} x {}", height, width);
  }
  const int64_t stride = 2 * width - 1;
  const int64_t reach = (height - 1) * stride + width - 1;
  BucketMap map = Identity(-reach, reach);
  map.grid = Grid{.width = width, .stride = stride, .origin = 0};
  return map;
}

BucketMap BucketMap::WithSpecial(int64_t position, bool both) const {
  BucketMap map = *this;
  map.special = SpecialPosition{.position = position,
                                .as_query = count,
                                .as_key = count + 1,
                                .as_both = both ? count + 2 : count};
  map.count = count + (both ? 3 : 2);
  return map;
}

int32_t BucketMap::OfOffset(int64_t offset) const {
  // The last piece that starts at or before the offset.
  size_t lo = 0;
  size_t hi = pieces.size();
  while (hi - lo > 1) {
    const size_t mid = (lo + hi) / 2;
    (pieces[mid].start <= offset ? lo : hi) = mid;
  }
  const Piece& piece = pieces[lo];
  if (piece.step == 0) return piece.first_bucket;
  return piece.first_bucket +
         piece.step * static_cast<int32_t>(offset - piece.start);
}

int32_t BucketMap::operator()(int64_t q_pos, int64_t k_pos) const {
  if (special) {
    const bool as_query = q_pos == special->position;
    const bool as_key = k_pos == special->position;
    if (as_query && as_key) return special->as_both;
    if (as_query) return special->as_query;
    if (as_key) return special->as_key;
  }
  return OfOffset(Respace(q_pos) - Respace(k_pos));
}

std::string BucketMap::Describe() const {
  std::string text = fmt::format("{} bucket{}", count, count == 1 ? "" : "s");
  if (pieces.size() == 1 && pieces[0].step == 1) {
    text += fmt::format(", one per offset in [{}, {}]", min_offset, max_offset);
  } else if (pieces.size() > 1) {
    // The map saturates at the first and the last start after the open end.
    const int64_t first = pieces[1].start;
    const int64_t last = pieces.back().start;
    text +=
        fmt::format(", constant below offset {} and from {} on", first, last);
  }
  if (grid) text += fmt::format(", 2-D window {} wide", grid->width);
  if (special) {
    text += fmt::format(", position {} apart", special->position);
  }
  return text;
}

}  // namespace locus
