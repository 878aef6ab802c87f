// The sites that tokens can have: on a line, on a grid, or in time and space.
//
// One int64 position may encode several coordinates. A check that moves tokens
// must move their coordinates, or a raster index would wrap at the end of a
// row.
#ifndef LOCUS_SRC_ANALYSIS_GEOMETRY_H_
#define LOCUS_SRC_ANALYSIS_GEOMETRY_H_

#include <cstdint>
#include <vector>

#include "locus/terms.h"

namespace locus::analysis {

class Geometry {
 public:
  // Derived from what the encoding lowers to: the axes of its rotation, or the
  // grid of its buckets; otherwise a line.
  static Geometry Of(const Terms& terms);

  bool IsLine() const { return axes_.size() == 1; }
  size_t NumAxes() const { return axes_.size(); }
  // Whether an axis has at least a million steps.
  bool IsFree(size_t axis) const { return limits_[axis] >= kFree; }

  // Coordinates along an axis are below this.
  int64_t Limit(size_t axis) const { return limits_[axis]; }
  // The site where every coordinate is 0.
  int64_t Origin() const { return origin_; }

  // The coordinates of a position.
  std::vector<int64_t> Coordinates(int64_t position) const;

  // Sides of a box of at most `count` sites, about as wide as it is high.
  std::vector<int64_t> Sides(int64_t count) const;
  // Positions of a box, the last axis fastest. In reverse order, it is the box
  // mirrored about its centre.
  std::vector<int64_t> Box(const std::vector<int64_t>& sides) const;
  // The position moved by `by` along each axis.
  int64_t Moved(int64_t position, const std::vector<int64_t>& by) const;

 private:
  // More than any shift of a check (10^6), and at most the length of an M-RoPE
  // axis.
  static constexpr int64_t kFree = int64_t{1} << 20;

  std::vector<Axis> axes_ = {Axis{}};
  std::vector<int64_t> limits_ = {INT64_MAX};  // coordinates below this
  int64_t origin_ = 0;
};

}  // namespace locus::analysis

#endif  // LOCUS_SRC_ANALYSIS_GEOMETRY_H_
