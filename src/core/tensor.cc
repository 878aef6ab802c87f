#include "locus/tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/buffer.h"
#include "core/fail.h"

namespace locus {
namespace {

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

// The product of the sizes; fails on a negative size or on more bytes than
// memory can address.
int64_t CheckedElements(DType dtype, const std::vector<int64_t>& shape) {
  int64_t elements = 1, bytes = DTypeBytes(dtype);
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0)
      Fail("tensor sizes must not be negative, got [{}]",
           fmt::join(shape, ", "));
    if (size == 0) {
      empty = true;
      continue;
    }
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      Fail("a tensor of sizes [{}] is too large", fmt::join(shape, ", "));
    }
    elements *= size;
  }
  return empty ? 0 : elements;
}

double FromBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

double FromF16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  // 2^-24 is the smallest subnormal; a normal number has the hidden bit 1024.
  const double magnitude =
      exponent == 0 ? mantissa
                    : (1024 + mantissa) * double(1 << (exponent - 1));
  return sign * magnitude * 0x1p-24;
}

// Rounds to nearest, ties to even, through float.
uint16_t ToBF16(double value) {
  const float narrow = static_cast<float>(value);
  uint32_t bits = std::bit_cast<uint32_t>(narrow);
  if (narrow != narrow)
    return static_cast<uint16_t>((bits >> 16) | 64);  // stays a NaN
  bits += 0x7FFF + ((bits >> 16) & 1);
  return static_cast<uint16_t>(bits >> 16);
}

int8_t ToI8(double value) {
  if (value != value) return 0;
  return static_cast<int8_t>(std::nearbyint(std::clamp(value, -128.0, 127.0)));
}

uint16_t ToF16(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  if (value != value) return static_cast<uint16_t>(sign | 0x7E00);
  if (magnitude >= 65520.0)
    return static_cast<uint16_t>(sign | 0x7C00);  // rounds to infinity
  // Units in the last place: 2^-24 below 2^-14, then ten bits below the leading
  // one.
  int exponent = 0;
  std::frexp(magnitude,
             &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  const int ulp = magnitude < 0x1p-14 ? -24 : exponent - 11;
  const int64_t steps =
      static_cast<int64_t>(std::nearbyint(std::ldexp(magnitude, -ulp)));
  // A carry out of the mantissa moves into the exponent by itself.
  const int64_t bits = ulp == -24 ? steps : (int64_t{ulp + 24} << 10) + steps;
  return static_cast<uint16_t>(sign | bits);
}

}  // namespace

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI8:
      return "i8";
  }
  return "unknown";
}

namespace {

// At least one element, so that an empty tensor still has storage and is
// `defined`.
size_t StorageBytes(DType dtype, int64_t elements) {
  return static_cast<size_t>(std::max<int64_t>(elements, 1) *
                             DTypeBytes(dtype));
}

}  // namespace

Tensor Tensor::Zeros(DType dtype, std::vector<int64_t> shape) {
  const int64_t elements = CheckedElements(dtype, shape);
  Tensor t;
  t.dtype_ = dtype;
  t.strides_ = RowMajorStrides(shape);
  t.shape_ = std::move(shape);
  auto storage = std::shared_ptr<std::byte[]>(
      new std::byte[StorageBytes(dtype, elements)]());
  t.data_ = storage.get();
  t.owner_ = std::move(storage);
  return t;
}

Tensor Tensor::Empty(DType dtype, std::vector<int64_t> shape) {
  const int64_t elements = CheckedElements(dtype, shape);
  Tensor t;
  t.dtype_ = dtype;
  t.strides_ = RowMajorStrides(shape);
  t.shape_ = std::move(shape);
  const auto floats = static_cast<int64_t>(
      (StorageBytes(dtype, elements) + sizeof(float) - 1) / sizeof(float));
  auto storage = std::make_shared<FloatBuffer>(floats);
  t.data_ = storage->data();
  t.owner_ = std::move(storage);
  return t;
}

namespace {
template <typename T>
Tensor FromValues(DType dtype, std::vector<int64_t> shape,
                  std::vector<T> values) {
  const int64_t elements = CheckedElements(dtype, shape);
  if (elements != static_cast<int64_t>(values.size())) {
    Fail("a tensor of sizes [{}] needs {} values, got {}",
         fmt::join(shape, ", "), elements, values.size());
  }
  if (values.empty()) return Tensor::Zeros(dtype, std::move(shape));
  auto storage = std::make_shared<const std::vector<T>>(std::move(values));
  const void* data = storage->data();
  return Tensor::Borrow(dtype, std::move(shape), {}, data, std::move(storage));
}
}  // namespace

Tensor Tensor::From(std::vector<int64_t> shape, std::vector<float> values) {
  return FromValues(DType::kF32, std::move(shape), std::move(values));
}

Tensor Tensor::From(std::vector<int64_t> shape, std::vector<double> values) {
  return FromValues(DType::kF64, std::move(shape), std::move(values));
}

Tensor Tensor::Borrow(DType dtype, std::vector<int64_t> shape,
                      std::vector<int64_t> strides, const void* data,
                      std::shared_ptr<const void> owner) {
  const int64_t elements = CheckedElements(dtype, shape);
  if (strides.empty()) strides = RowMajorStrides(shape);
  if (strides.size() != shape.size()) {
    Fail("a tensor of rank {} needs {} strides, got {}", shape.size(),
         shape.size(), strides.size());
  }
  if (data == nullptr) {
    if (elements > 0) {
      Fail("a borrowed tensor of sizes [{}] has no data",
           fmt::join(shape, ", "));
    }
    return Zeros(dtype, std::move(shape));
  }
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = std::move(shape);
  t.strides_ = std::move(strides);
  t.data_ = data;
  t.owner_ = std::move(owner);
  return t;
}

int64_t Tensor::NumElements() const {
  int64_t elements = defined() ? 1 : 0;
  for (int64_t size : shape_) elements *= size;
  return elements;
}

bool Tensor::IsContiguous() const {
  int64_t expected = 1;
  for (size_t axis = shape_.size(); axis-- > 0;) {
    if (shape_[axis] > 1 && strides_[axis] != expected) return false;
    expected *= shape_[axis];
  }
  return true;
}

std::string Tensor::Describe() const {
  if (!defined()) return "none";
  return fmt::format("{} [{}]", DTypeName(dtype_), fmt::join(shape_, ", "));
}

double Tensor::Load(int64_t offset) const {
  switch (dtype_) {
    case DType::kF32:
      return static_cast<const float*>(data_)[offset];
    case DType::kF64:
      return static_cast<const double*>(data_)[offset];
    case DType::kBF16:
      return FromBF16(static_cast<const uint16_t*>(data_)[offset]);
    case DType::kF16:
      return FromF16(static_cast<const uint16_t*>(data_)[offset]);
    case DType::kI8:
      return static_cast<const int8_t*>(data_)[offset];
  }
  return 0;
}

void Tensor::FailType() const {
  Fail("elements of {} read as another type", Describe());
}

std::vector<double> Tensor::ToVector() const {
  std::vector<double> values;
  const int64_t elements = NumElements();
  values.reserve(static_cast<size_t>(elements));
  if (shape_.empty()) {
    if (elements > 0) values.push_back(Load(0));
    return values;
  }
  // Row by row, so that the offset of a row is computed once.
  const int64_t length = shape_.back();
  std::vector<int64_t> index(shape_.size(), 0);
  for (int64_t n = 0; n < elements; n += length) {
    int64_t offset = 0;
    for (size_t axis = 0; axis + 1 < index.size(); ++axis)
      offset += index[axis] * strides_[axis];
    for (int64_t i = 0; i < length; ++i) {
      values.push_back(Load(offset + i * strides_.back()));
    }
    for (size_t axis = index.size() - 1; axis-- > 0;) {
      if (++index[axis] < shape_[axis]) break;
      index[axis] = 0;
    }
  }
  return values;
}

Tensor Tensor::To(DType dtype) const {
  if (!defined() || (dtype == dtype_ && IsContiguous())) return *this;
  const std::vector<double> values = ToVector();
  Tensor out = Zeros(dtype, shape_);
  void* data = const_cast<void*>(out.data_);
  for (size_t n = 0; n < values.size(); ++n) {
    switch (dtype) {
      case DType::kF32:
        static_cast<float*>(data)[n] = static_cast<float>(values[n]);
        break;
      case DType::kF64:
        static_cast<double*>(data)[n] = values[n];
        break;
      case DType::kBF16:
        static_cast<uint16_t*>(data)[n] = ToBF16(values[n]);
        break;
      case DType::kF16:
        static_cast<uint16_t*>(data)[n] = ToF16(values[n]);
        break;
      case DType::kI8:
        static_cast<int8_t*>(data)[n] = ToI8(values[n]);
        break;
    }
  }
  return out;
}

size_t Tensor::AxisIndex(int axis) const {
  const int from_start = axis < 0 ? axis + rank() : axis;
  if (from_start < 0 || from_start >= rank()) {
    Fail("{} has no axis {}", Describe(), axis);
  }
  return static_cast<size_t>(from_start);
}

Tensor Tensor::Transposed(int a, int b) const {
  Tensor t = *this;
  std::swap(t.shape_[AxisIndex(a)], t.shape_[AxisIndex(b)]);
  std::swap(t.strides_[AxisIndex(a)], t.strides_[AxisIndex(b)]);
  return t;
}

Tensor Tensor::Sliced(int axis, int64_t begin, int64_t end) const {
  const size_t at = AxisIndex(axis);
  if (begin < 0 || end < begin || end > shape_[at]) {
    Fail("{} has no [{}, {}) along axis {}", Describe(), begin, end, axis);
  }
  Tensor t = *this;
  t.shape_[at] = end - begin;
  t.data_ = static_cast<const char*>(data_) +
            begin * strides_[at] * DTypeBytes(dtype_);
  return t;
}

}  // namespace locus
