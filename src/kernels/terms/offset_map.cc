#include "kernels/terms/offset_map.h"

#include "kernels/terms/log2_domain.h"

namespace locus::kernels {
namespace {

template <typename T>
void FillTable(const Tensor& values, const std::vector<int32_t>& bucket,
               int64_t stride, float* rows) {
  const int64_t step = values.strides()[1];
  for (int64_t h = 0; h < values.size(0); ++h, rows += stride) {
    const T* from = values.Data<T>() + h * values.strides()[0];
    for (size_t e = 0; e < bucket.size(); ++e) {
      rows[e] = Log2Bias(from[bucket[e] * step]);
    }
  }
}

}  // namespace

void FillBuckets(const BucketMap& map, int64_t first, int64_t lo, int64_t hi,
                 int64_t width, int32_t* bucket) {
  // Piece by piece, from the last one down, since offsets decrease.
  size_t at = map.pieces.size() - 1;
  for (int64_t e = 0; e < width;) {
    const int64_t offset = std::clamp(first - e, lo, hi);
    while (at > 0 && map.pieces[at].start > offset) --at;
    const BucketMap::Piece& piece = map.pieces[at];
    int32_t here = piece.first_bucket;
    if (piece.step != 0) {
      here += piece.step * static_cast<int32_t>(offset - piece.start);
    }
    // Beyond either end the bucket is constant.
    int32_t step = 0;
    int64_t end = width;
    if (first - e > hi) {
      end = first - hi;
    } else if (offset > lo) {
      step = piece.step;
      end = first - std::max(piece.start, lo + 1) + 1;
    }
    end = std::clamp(end, e + 1, width);
    for (; e < end; ++e, here -= step) bucket[e] = here;
  }
}

OffsetMap::OffsetMap(const BucketMap& map, const Shape& shape) {
  // The bucket is constant below the second piece and from the last one on.
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
  // All offsets of the call may be beyond one end.
  if (lo > hi) {
    if (shape.min_offset >= hi) {
      lo = hi;
    } else {
      hi = lo;
    }
  }
  max_offset = hi;
  bucket.resize(static_cast<size_t>(hi - lo + 1));
  FillBuckets(map, hi, lo, hi, width(), bucket.data());
  same_until.assign(bucket.size(), width());
  for (size_t e = bucket.size() - 1; e-- > 0;) {
    same_until[e] = bucket[e] == bucket[e + 1] ? same_until[e + 1]
                                               : static_cast<int64_t>(e) + 1;
  }
}

int64_t BiasHeads(const Bias& bias) {
  if (const auto* table = std::get_if<BiasTable>(&bias)) {
    return table->values.size(0);
  }
  if (const auto* ramp = std::get_if<BiasRamp>(&bias)) {
    return static_cast<int64_t>(ramp->past.size());
  }
  return std::get<BiasProfile>(bias).base.size(0);
}

void FillBiasRows(const Bias& bias, int64_t first, int64_t lo, int64_t hi,
                  int64_t width, int64_t stride, float* rows) {
  if (const auto* table = std::get_if<BiasTable>(&bias)) {
    std::vector<int32_t> bucket(static_cast<size_t>(width));
    FillBuckets(table->buckets, first, lo, hi, width, bucket.data());
    const Tensor& values = table->values;
    if (values.dtype() == DType::kF32) {
      FillTable<float>(values, bucket, stride, rows);
    } else if (values.dtype() == DType::kF64) {
      FillTable<double>(values, bucket, stride, rows);
    } else {
      FillTable<double>(values.To(DType::kF64), bucket, stride, rows);
    }
    return;
  }
  // B = -past max(m - n, 0) - future max(n - m, 0)
  const auto& ramp = std::get<BiasRamp>(bias);
  for (size_t h = 0; h < ramp.past.size(); ++h, rows += stride) {
    const double past = -ramp.past[h], future = ramp.future[h];
    for (int64_t e = 0; e < width; ++e) {
      const auto offset = static_cast<double>(std::clamp(first - e, lo, hi));
      rows[e] = Log2Bias(offset * (offset > 0.0 ? past : future));
    }
  }
}

}  // namespace locus::kernels
