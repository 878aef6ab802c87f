#include "ring/views.h"

#include <cstring>
#include <memory>

namespace locus::ring {
namespace {

// Calls f(a, b) for the rows of tensors of one shape, as pointers to their
// first bytes. The last axis counts as the row.
template <typename F>
void ForEachRow(const Tensor& from, Tensor& to, const F& f) {
  if (from.NumElements() == 0) return;
  const std::byte* source = BytesOf(from);
  std::byte* target = MutableBytesOf(to);
  const int64_t width = DTypeBytes(from.dtype());
  for (int64_t b = 0; b < from.size(0); ++b) {
    for (int64_t h = 0; h < from.size(1); ++h) {
      for (int64_t i = 0; i < from.size(2); ++i) {
        const auto offset = [&](const Tensor& t) {
          return width *
                 (b * t.strides()[0] + h * t.strides()[1] + i * t.strides()[2]);
        };
        f(source + offset(from), target + offset(to));
      }
    }
  }
}

}  // namespace

const std::byte* BytesOf(const Tensor& x) {
  switch (x.dtype()) {
    case DType::kF32:
      return reinterpret_cast<const std::byte*>(x.Data<float>());
    case DType::kF64:
      return reinterpret_cast<const std::byte*>(x.Data<double>());
    case DType::kBF16:
    case DType::kF16:
      break;
  }
  return reinterpret_cast<const std::byte*>(x.Data<uint16_t>());
}

std::byte* MutableBytesOf(Tensor& x) {
  return const_cast<std::byte*>(BytesOf(x));
}

Tensor TokensOf(const Tensor& x, const Chunk& chunk) {
  std::vector<int64_t> shape = x.shape(), strides = x.strides();
  const std::byte* data =
      BytesOf(x) + DTypeBytes(x.dtype()) * chunk.first * strides[2];
  shape[2] = chunk.count;
  strides[2] *= chunk.stride;
  return Tensor::Borrow(x.dtype(), std::move(shape), std::move(strides), data,
                        std::make_shared<Tensor>(x));
}

void CopyTokens(const Tensor& from, Tensor to) {
  const bool rows = from.rank() == 4;  // else single elements
  const int64_t dim = rows ? from.size(3) : 1;
  const int64_t width = DTypeBytes(from.dtype());
  const int64_t step = rows ? width * from.strides()[3] : width;
  const int64_t to_step = rows ? width * to.strides()[3] : width;
  const auto bytes = static_cast<size_t>(width);
  ForEachRow(from, to, [&](const std::byte* a, std::byte* b) {
    if (step == width && to_step == width) {
      std::memcpy(b, a, bytes * static_cast<size_t>(dim));
      return;
    }
    for (int64_t d = 0; d < dim; ++d) {
      std::memcpy(b + d * to_step, a + d * step, bytes);
    }
  });
}

Tensor Convert(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype && x.IsContiguous()) return x;
  Tensor out = Tensor::Empty(dtype, x.shape());
  if (x.dtype() == dtype) {
    CopyTokens(x, out);
    return out;
  }
  const int64_t width = DTypeBytes(dtype);
  const int64_t head = x.size(2) * x.size(3);
  std::byte* to = MutableBytesOf(out);
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (int64_t h = 0; h < x.size(1); ++h, to += head * width) {
      const int64_t at = b * x.strides()[0] + h * x.strides()[1];
      const Tensor one = Tensor::Borrow(
          x.dtype(), {x.size(2), x.size(3)}, {x.strides()[2], x.strides()[3]},
          BytesOf(x) + DTypeBytes(x.dtype()) * at);
      std::memcpy(to, BytesOf(one.To(dtype)),
                  static_cast<size_t>(head * width));
    }
  }
  return out;
}

void AddTo(const Tensor& from, Tensor to) {
  const int64_t dim = from.size(3);
  ForEachRow(from, to, [dim](const std::byte* a, std::byte* b) {
    const auto* x = reinterpret_cast<const float*>(a);
    auto* y = reinterpret_cast<float*>(b);
    for (int64_t d = 0; d < dim; ++d) y[d] += x[d];
  });
}

}  // namespace locus::ring
