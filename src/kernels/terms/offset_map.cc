#include "kernels/terms/offset_map.h"

namespace locus::kernels {

RelMap::RelMap(const BucketMap& map, const Shape& shape) {
  // Offsets below the second piece, or from the last one on, are all alike.
  int64_t lo = map.min_offset;
  int64_t hi = map.max_offset;
  if (!map.grid) {
    lo = std::max(lo, shape.min_offset);
    hi = std::min(hi, shape.max_offset);
  }
  if (map.pieces.size() > 1 && map.pieces.front().step == 0) {
    lo = std::max(lo, map.pieces[1].start - 1);
  }
  if (map.pieces.back().step == 0 && map.pieces.size() > 1) {
    hi = std::min(hi, map.pieces.back().start);
  }
  if (map.pieces.size() == 1 && map.pieces[0].step == 0) lo = hi = 0;
  // The whole call may lie beyond one end.
  if (lo > hi) {
    if (shape.min_offset >= hi) {
      lo = hi;
    } else {
      hi = lo;
    }
  }
  first = -hi;
  for (int64_t offset = hi; offset >= lo; --offset) {
    bucket.push_back(map.OfOffset(offset));
  }
  same_until.assign(bucket.size(), width());
  for (size_t e = bucket.size() - 1; e-- > 0;) {
    same_until[e] = bucket[e] == bucket[e + 1] ? same_until[e + 1]
                                               : static_cast<int64_t>(e) + 1;
  }
}

}  // namespace locus::kernels
