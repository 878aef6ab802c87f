// Buckets by offset, in the order of the keys.
#ifndef LOCUS_SRC_KERNELS_TERMS_OFFSET_MAP_H_
#define LOCUS_SRC_KERNELS_TERMS_OFFSET_MAP_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "locus/terms.h"

namespace locus::kernels {

// A bucket map laid out by rel = n - m, the way keys run: bucket[e] belongs to
// rel = first + e, and saturates at both ends.
struct RelMap {
  RelMap() = default;
  RelMap(const BucketMap& map, const Shape& shape);

  int64_t first = 0;
  std::vector<int32_t> bucket;
  std::vector<int64_t> same_until;  // the next entry of another bucket

  bool operator==(const RelMap& other) const {
    return first == other.first && bucket == other.bucket;
  }
  int64_t width() const { return static_cast<int64_t>(bucket.size()); }
  int32_t Bucket(int64_t rel) const {
    const int64_t e = std::clamp<int64_t>(rel - first, 0, width() - 1);
    return bucket[static_cast<size_t>(e)];
  }
};

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_TERMS_OFFSET_MAP_H_
