#include "ring/blocks/views.h"

#include <cstring>
#include <memory>

namespace locus::ring {
namespace {

// The size and the stride of the last of four axes; of three axes, of one
// element.
int64_t RowSize(const Tensor& x) { return x.rank() == 4 ? x.size(3) : 1; }
int64_t RowStride(const Tensor& x) {
  return x.rank() == 4 ? x.strides()[3] : 1;
}

// Calls f(a, b) for the rows of two tensors of the same shape, as pointers to
// their first bytes. With four axes, the last is the row.
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

Tensor Slice(const Tensor& x, size_t axis, const Chunk& chunk) {
  std::vector<int64_t> shape = x.shape(), strides = x.strides();
  const std::byte* data =
      BytesOf(x) + DTypeBytes(x.dtype()) * chunk.first * strides[axis];
  shape[axis] = chunk.count;
  strides[axis] *= chunk.stride;
  return Tensor::Borrow(x.dtype(), std::move(shape), std::move(strides), data,
                        std::make_shared<Tensor>(x));
}

Tensor PairsOf(const Tensor& x, const Chunk& queries, const Chunk& keys) {
  if (!x.defined()) return {};
  return Slice(x.size(2) == 1 ? x : Slice(x, 2, queries), 3, keys);
}

PairMask PairsOf(const PairMask& mask, const Chunk& queries,
                 const Chunk& keys) {
  PairMask part = mask;
  const auto cut = [&part](size_t axis, const Chunk& chunk) {
    part.data += chunk.first * part.strides[axis];
    part.shape[axis] = chunk.count;
    part.strides[axis] *= chunk.stride;
  };
  if (!mask.defined()) return part;
  if (mask.shape[2] != 1) cut(2, queries);
  cut(3, keys);
  return part;
}

void CopyTokens(const Tensor& from, Tensor to) {
  const int64_t dim = RowSize(from);
  const int64_t width = DTypeBytes(from.dtype());
  const int64_t step = width * RowStride(from);
  const int64_t to_step = width * RowStride(to);
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
  const int64_t head = x.size(2) * RowSize(x);
  std::byte* to = MutableBytesOf(out);
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (int64_t h = 0; h < x.size(1); ++h, to += head * width) {
      const int64_t at = b * x.strides()[0] + h * x.strides()[1];
      const Tensor one = Tensor::Borrow(
          x.dtype(), {x.size(2), RowSize(x)}, {x.strides()[2], RowStride(x)},
          BytesOf(x) + DTypeBytes(x.dtype()) * at);
      std::memcpy(to, BytesOf(one.To(dtype)),
                  static_cast<size_t>(head * width));
    }
  }
  return out;
}

void AddTo(const Tensor& from, Tensor to) {
  const int64_t dim = RowSize(from);
  const int64_t step = RowStride(from), to_step = RowStride(to);
  ForEachRow(from, to, [=](const std::byte* a, std::byte* b) {
    const auto* x = reinterpret_cast<const float*>(a);
    auto* y = reinterpret_cast<float*>(b);
    if (step == 1 && to_step == 1) {
      for (int64_t d = 0; d < dim; ++d) y[d] += x[d];
      return;
    }
    for (int64_t d = 0; d < dim; ++d) y[d * to_step] += x[d * step];
  });
}

}  // namespace locus::ring
