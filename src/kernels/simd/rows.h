// Rows of tensors of any element type, read and written as floats.
#ifndef LOCUS_SRC_KERNELS_SIMD_ROWS_H_
#define LOCUS_SRC_KERNELS_SIMD_ROWS_H_

#include <cstdint>

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

 private:
  const void* data_;
  DType dtype_;
  int64_t stride_[4];
  int64_t dim_;
};

// Writes `count` floats as elements of another type, rounded to nearest even.
void StoreFloats(const float* src, int64_t count, DType dtype, void* dst);

// Writes floats to row (b, h, i) of a contiguous tensor of any element type.
void StoreRow(Tensor& t, int64_t row, const float* src, int64_t dim);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_SIMD_ROWS_H_
