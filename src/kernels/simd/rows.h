// Rows of tensors of any element type, read and written as floats.
#ifndef LOCUS_SRC_KERNELS_SIMD_ROWS_H_
#define LOCUS_SRC_KERNELS_SIMD_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/threads.h"
#include "locus/tensor.h"

namespace locus::kernels {

// Rows of a [B, H, L, D] tensor of any element type, read as float.
class Rows {
 public:
  explicit Rows(const Tensor& t);
  // Writes row (b, h, i) to dst[0 .. dim).
  void Load(int64_t b, int64_t h, int64_t i, float* dst) const;
  // The row itself if it is float with unit stride, else nullptr.
  const float* Direct(int64_t b, int64_t h, int64_t i) const {
    if (dtype_ != DType::kF32 || stride_[3] != 1) return nullptr;
    return Head<float>(b, h) + i * stride_[2];
  }
  // Adjacent rows lie this many floats apart (where Direct is not nullptr).
  int64_t row_stride() const { return stride_[2]; }
  int64_t dim() const { return dim_; }
  DType dtype() const { return dtype_; }
  // The elements of a row are adjacent.
  bool unit_stride() const { return stride_[3] == 1 || dim_ == 1; }
  // The first element of row (b, h, 0), of type T.
  template <typename T>
  const T* Head(int64_t b, int64_t h) const {
    return static_cast<const T*>(data_) + b * stride_[0] + h * stride_[1];
  }
  // The first element of row (b, h, i), whatever its type.
  const void* Row(int64_t b, int64_t h, int64_t i) const {
    const int64_t at = b * stride_[0] + h * stride_[1] + i * stride_[2];
    return static_cast<const char*>(data_) + at * DTypeBytes(dtype_);
  }

 private:
  const void* data_;
  DType dtype_;
  int64_t stride_[4];
  int64_t dim_;
};

// Element `at` of a tensor that the caller owns, whatever its type.
inline void* ElementAt(Tensor& t, int64_t at) {
  return static_cast<char*>(const_cast<void*>(t.Raw())) +
         at * DTypeBytes(t.dtype());
}

// Row (b, h, i) of such a tensor.
inline void* RowOf(Tensor& t, int64_t b, int64_t h, int64_t i) {
  const std::vector<int64_t>& s = t.strides();
  return ElementAt(t, b * s[0] + h * s[1] + i * s[2]);
}

// Writes `count` floats as elements of another type, rounded to nearest even.
void StoreFloats(const float* src, int64_t count, DType dtype, void* dst);

// Writes floats [dim] to a row of a contiguous tensor of any element type.
inline void StoreRow(Tensor& t, int64_t row, const float* src, int64_t dim) {
  StoreFloats(src, dim, t.dtype(), ElementAt(t, row * dim));
}

// Threads for so many elements: with fewer than this a thread is not worth
// waking. Results do not depend on it.
inline int ThreadsForElements(int64_t elements, int requested) {
  constexpr int64_t kWorthAThread = int64_t{1} << 17;
  return static_cast<int>(
      std::clamp<int64_t>(elements / kWorthAThread, 1, NumThreads(requested)));
}

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_SIMD_ROWS_H_
