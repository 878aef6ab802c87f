#include "encodings/common.h"

#include <cmath>

#include "core/threads.h"

namespace locus {

void CheckSize(const char* what, int64_t value) {
  if (value < 1 || value > (int64_t{1} << 24)) {
    Fail("{} must be a positive number, at most 2^24, got {}", what, value);
  }
}

void CheckPositive(const char* what, double value) {
  if (!std::isfinite(value) || value <= 0.0) {
    Fail("{} must be positive and finite, got {}", what, value);
  }
}

void CheckFinite(const char* what, const Tensor& tensor) {
  for (double value : tensor.ToVector()) {
    if (!std::isfinite(value)) {
      Fail("{} {} holds a value that is not finite: {}", what,
           tensor.Describe(), value);
    }
  }
}

void CheckCallHeads(const char* encoding, int64_t heads, const Shape& shape) {
  if (heads != shape.q_heads) {
    Fail("{} was made for {} heads, but the call has {}", encoding, heads,
         shape.q_heads);
  }
}

void CheckCallDim(const char* encoding, int64_t dim, const Shape& shape) {
  if (dim != shape.head_dim) {
    Fail("{} was made for heads of {} channels, but the call has {}", encoding,
         dim, shape.head_dim);
  }
}

void CheckParamCount(const Encoding& encoding, std::span<const Tensor> values) {
  const size_t count = encoding.Params().size();
  if (values.size() != count) {
    Fail("{} has {} trainable parameter{}, got {}", encoding.Name(), count,
         count == 1 ? "" : "s", values.size());
  }
}

Tensor WithHeadAxis(const Tensor& table) {
  if (table.rank() == 3) return table;
  const Tensor rows = table.To(table.dtype());
  std::vector<int64_t> shape = {1, rows.size(0), rows.size(1)};
  if (rows.dtype() == DType::kF64) {
    return Tensor::Borrow(rows.dtype(), shape, {}, rows.Data<double>(),
                          std::make_shared<Tensor>(rows));
  }
  if (rows.dtype() == DType::kF32) {
    return Tensor::Borrow(rows.dtype(), shape, {}, rows.Data<float>(),
                          std::make_shared<Tensor>(rows));
  }
  return Tensor::Borrow(rows.dtype(), shape, {}, rows.Data<uint16_t>(),
                        std::make_shared<Tensor>(rows));
}

Tensor LikeParam(const Tensor& grad, const Tensor& like) {
  return Tensor::From(like.shape(), grad.ToVector());
}

Tensor FillRows(std::span<const int64_t> positions, int64_t dim,
                const RowFiller& fill) {
  Tensor rows =
      Tensor::Zeros(DType::kF64, {static_cast<int64_t>(positions.size()), dim});
  double* row = rows.MutableData<double>();
  for (int64_t position : positions) {
    CheckInterrupt();
    fill(position, row);
    row += dim;
  }
  return rows;
}

void CheckSpan(const char* what, int64_t lo, int64_t hi) {
  // 2^27 float64 values are 1 GiB: beyond any length that attention can run.
  constexpr int64_t kMost = int64_t{1} << 27;
  if (hi - lo >= kMost) {
    Fail("{} span {} .. {}, more than 2^27 in one call", what, lo, hi);
  }
}

Lowered LowerInput(const Shape& shape, int64_t dim, int64_t widen,
                   const RowFiller& fill) {
  const int64_t first = shape.MinPosition();
  CheckSpan("the positions of an input table", first, shape.MaxPosition());
  std::vector<int64_t> positions;
  for (int64_t p = first; p <= shape.MaxPosition(); ++p) positions.push_back(p);
  Lowered lowered = LowerPlain(shape);
  lowered.terms.input_add = InputAdd{.table = FillRows(positions, dim, fill),
                                     .first_position = first,
                                     .widen = widen};
  return lowered;
}

Lowered LowerPlain(const Shape& shape) {
  Lowered lowered;
  lowered.terms.scale.scale = shape.ScaleOr();
  return lowered;
}

BiasTable BiasByOffset(const Shape& shape,
                       const std::function<double(int64_t, int64_t)>& value) {
  CheckSpan("the offsets of a bias", shape.min_offset, shape.max_offset);
  BiasTable bias;
  bias.buckets = BucketMap::Identity(shape.min_offset, shape.max_offset);
  const int64_t count = bias.buckets.count;
  bias.values = Tensor::Zeros(DType::kF64, {shape.q_heads, count});
  double* out = bias.values.MutableData<double>();
  for (int64_t h = 0; h < shape.q_heads; ++h) {
    for (int64_t b = 0; b < count; ++b) {
      if (b % 1024 == 0) CheckInterrupt();
      out[h * count + b] = value(h, shape.min_offset + b);
    }
  }
  return bias;
}

Tensor RandomTable(std::vector<int64_t> shape, double deviation,
                   uint64_t seed) {
  Tensor table = Tensor::Zeros(DType::kF64, std::move(shape));
  double* out = table.MutableData<double>();
  // SplitMix64, then Box-Muller.
  uint64_t state = seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019;
  const auto uniform = [&state] {
    state += 0x9E3779B97F4A7C15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    z ^= z >> 31;
    return (static_cast<double>(z >> 11) + 0.5) * 0x1p-53;
  };
  for (int64_t n = 0; n < table.NumElements(); ++n) {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    out[n] = deviation * radius * std::cos(6.283185307179586 * uniform());
  }
  return table;
}

}  // namespace locus
