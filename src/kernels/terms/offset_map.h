// Buckets tabulated by offset m - n, in the order of the keys: along the keys
// of a query positions n increase, so offsets decrease.
#ifndef LOCUS_SRC_KERNELS_TERMS_OFFSET_MAP_H_
#define LOCUS_SRC_KERNELS_TERMS_OFFSET_MAP_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "locus/terms.h"

namespace locus::kernels {

// bucket[e] = bucket of the offset `first - e` clamped to [lo, hi], for
// e < width. Every offset in [lo, hi] must have a bucket.
void FillBuckets(const BucketMap& map, int64_t first, int64_t lo, int64_t hi,
                 int64_t width, int32_t* bucket);

// The range of offsets of a call over which a bucket map varies: entry e is the
// offset max_offset - e. Offsets beyond either end have the bucket of that end.
struct OffsetMap {
  OffsetMap() = default;
  OffsetMap(const BucketMap& map, const Shape& shape);

  bool operator==(const OffsetMap& other) const {
    return max_offset == other.max_offset && bucket == other.bucket;
  }
  int64_t width() const { return static_cast<int64_t>(bucket.size()); }
  // The entry of an offset, or the nearest one beyond the ends.
  int64_t Entry(int64_t offset) const {
    return std::clamp<int64_t>(max_offset - offset, 0, width() - 1);
  }
  int32_t Bucket(int64_t offset) const {
    return bucket[static_cast<size_t>(Entry(offset))];
  }
  int64_t min_offset() const { return max_offset - width() + 1; }

  int64_t max_offset = 0;
  std::vector<int32_t> bucket;
  std::vector<int64_t> same_until;  // the next entry with a different bucket
};

// rows[h * stride + e] = log2(e) B[h, first - e] for e < width and each head of
// a table or a ramp; offsets are clamped to [lo, hi].
void FillBiasRows(const Bias& bias, int64_t first, int64_t lo, int64_t hi,
                  int64_t width, int64_t stride, float* rows);
// Number of heads of such a bias; 1 if all heads share it.
int64_t BiasHeads(const Bias& bias);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_TERMS_OFFSET_MAP_H_
