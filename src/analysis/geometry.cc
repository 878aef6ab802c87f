#include "analysis/geometry.h"

#include <algorithm>

namespace locus::analysis {
namespace {

// The largest s with s^root <= value.
int64_t IntegerRoot(int64_t value, size_t root) {
  const auto fits = [&](int64_t s) {
    int64_t power = 1;
    for (size_t n = 0; n < root; ++n) power *= s;
    return power <= value;
  };
  int64_t s = 1;
  if (root == 1) return value;
  while (fits(s + 1)) ++s;
  return s;
}

const BucketMap* GriddedBuckets(const Terms& terms) {
  for (const auto* table : {&terms.q_table, &terms.k_table, &terms.v_table}) {
    if (*table && (*table)->buckets.grid) return &(*table)->buckets;
  }
  if (terms.bias) {
    const auto* table = std::get_if<BiasTable>(&*terms.bias);
    if (table != nullptr && table->buckets.grid) return &table->buckets;
  }
  return nullptr;
}

}  // namespace

Geometry Geometry::Of(const Terms& terms) {
  Geometry g;
  if (terms.rotate && terms.rotate->axes.size() > 1) {
    g.axes_ = terms.rotate->axes;
    g.origin_ = terms.rotate->origin.value_or(terms.rotate->packed_from);
    g.limits_.clear();
    for (const Axis& axis : g.axes_) {
      g.limits_.push_back(axis.modulus == 0 ? INT64_MAX : axis.modulus);
    }
  } else if (const BucketMap* map = GriddedBuckets(terms)) {
    const Grid& grid = *map->grid;
    // The largest offset is between opposite corners: (height - 1) stride +
    // width - 1.
    const int64_t height =
        (map->max_offset - (grid.width - 1)) / grid.stride + 1;
    g.axes_ = {{.divisor = grid.width, .modulus = 0},
               {.divisor = 1, .modulus = grid.width}};
    g.limits_ = {height, grid.width};
    g.origin_ = grid.origin;
  }
  return g;
}

std::vector<int64_t> Geometry::Coordinates(int64_t position) const {
  std::vector<int64_t> coordinates;
  for (const Axis& axis : axes_) {
    const int64_t along = (position - origin_) / axis.divisor;
    coordinates.push_back(axis.modulus == 0 ? along : along % axis.modulus);
  }
  return coordinates;
}

std::vector<int64_t> Geometry::Sides(int64_t count) const {
  std::vector<int64_t> sides(axes_.size());
  int64_t left = count;
  for (size_t a = axes_.size(); a-- > 0;) {
    sides[a] = std::min(IntegerRoot(left, a + 1), limits_[a]);
    left /= sides[a];
  }
  return sides;
}

std::vector<int64_t> Geometry::Box(const std::vector<int64_t>& sides) const {
  std::vector<int64_t> positions = {origin_};
  for (size_t a = 0; a < axes_.size(); ++a) {
    std::vector<int64_t> wider;
    for (int64_t position : positions) {
      for (int64_t c = 0; c < sides[a]; ++c) {
        wider.push_back(position + c * axes_[a].divisor);
      }
    }
    positions = std::move(wider);
  }
  return positions;
}

int64_t Geometry::Moved(int64_t position,
                        const std::vector<int64_t>& by) const {
  for (size_t a = 0; a < axes_.size(); ++a) {
    position += by[a] * axes_[a].divisor;
  }
  return position;
}

}  // namespace locus::analysis
