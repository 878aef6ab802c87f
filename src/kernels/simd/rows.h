// Access to rows of tensors of any element type as floats.
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
  // Quantized rows: row (b, h, i) is multiplied by scales [B, H, L, 1]. If
  // `scales` is not defined, as above.
  Rows(const Tensor& t, const Tensor& scales);
  // Rows in blocks of a tensor [blocks, H, block_size, D]: row i of sequence b
  // is row i % block_size of block table[b * per_sequence + i / block_size].
  Rows(const Tensor& blocks, const int64_t* table, int64_t per_sequence);
  // Writes row (b, h, i) to dst[0 .. dim).
  void Load(int64_t b, int64_t h, int64_t i, float* dst) const {
    LoadPart(b, h, i, 0, dim_, dst);
  }
  // Writes elements [first, first + count) of the row.
  void LoadPart(int64_t b, int64_t h, int64_t i, int64_t first, int64_t count,
                float* dst) const;
  // The row itself if it is float with unit stride, else nullptr.
  const float* Direct(int64_t b, int64_t h, int64_t i) const {
    if (dtype_ != DType::kF32 || stride_[3] != 1 || in_blocks()) return nullptr;
    return At<float>(b, h, i);
  }
  // Floats between adjacent rows (where Direct is not nullptr).
  int64_t row_stride() const { return stride_[2]; }
  int64_t dim() const { return dim_; }
  DType dtype() const { return dtype_; }
  // The elements of a row are adjacent.
  bool unit_stride() const { return stride_[3] == 1 || dim_ == 1; }
  // The scales of rows (b, h, 0), (b, h, 1), ...; nullptr if there are none.
  const float* Scales(int64_t b, int64_t h) const {
    return scales_ == nullptr
               ? nullptr
               : scales_ + b * scale_stride_[0] + h * scale_stride_[1];
  }
  // If so, rows of a sequence are row_stride() apart only within a block.
  bool in_blocks() const { return table_ != nullptr; }
  int64_t block_size() const { return block_size_; }
  // The first element of row (b, h, i), of type T.
  template <typename T>
  const T* At(int64_t b, int64_t h, int64_t i) const {
    return static_cast<const T*>(data_) + Offset(b, h, i);
  }
  // The same for any type.
  const void* Row(int64_t b, int64_t h, int64_t i) const {
    return static_cast<const char*>(data_) +
           Offset(b, h, i) * DTypeBytes(dtype_);
  }

 private:
  int64_t Offset(int64_t b, int64_t h, int64_t i) const {
    if (in_blocks()) {
      b = table_[b * per_sequence_ + i / block_size_];
      i %= block_size_;
    }
    return b * stride_[0] + h * stride_[1] + i * stride_[2];
  }

  const void* data_;
  DType dtype_;
  int64_t stride_[4];
  int64_t dim_;
  const float* scales_ = nullptr;
  int64_t scale_stride_[2] = {};
  const int64_t* table_ = nullptr;  // of blocks
  int64_t per_sequence_ = 0;
  int64_t block_size_ = 0;
};

// The address of element `at` of a tensor that the caller owns, of any type.
inline void* ElementAt(Tensor& t, int64_t at) {
  return static_cast<char*>(const_cast<void*>(t.Raw())) +
         at * DTypeBytes(t.dtype());
}

// The address of row (b, h, i) of such a tensor.
inline void* RowOf(Tensor& t, int64_t b, int64_t h, int64_t i) {
  const std::vector<int64_t>& s = t.strides();
  return ElementAt(t, b * s[0] + h * s[1] + i * s[2]);
}

// Writes `count` floats as elements of another type, rounded to nearest even.
void StoreFloats(const float* src, int64_t count, DType dtype, void* dst);

// Quantizes `count` floats to integers from -127 to 127 and returns their scale
// s: q = x / s, rounded to nearest even, with s = max |x| / 127, so that |x - q
// s| is at most max |x| / 254. s is at least 2^-126, since smaller scales would
// lose precision; the error bound is then 2^-127. If any element is NaN or
// infinite, the scale is NaN.
float Quantize(const float* src, int64_t count, int8_t* dst);

// Writes floats [dim] to row (b, h, i) of a tensor of any element type, whose
// rows are contiguous.
inline void StoreRow(Tensor& t, int64_t b, int64_t h, int64_t i,
                     const float* src, int64_t dim) {
  StoreFloats(src, dim, t.dtype(), RowOf(t, b, h, i));
}

// The number of threads for this many elements: waking a thread does not pay
// off for less than kWorthAThread each. Results do not depend on it.
inline int ThreadsForElements(int64_t elements, int requested) {
  constexpr int64_t kWorthAThread = int64_t{1} << 17;
  return static_cast<int>(
      std::clamp<int64_t>(elements / kWorthAThread, 1, NumThreads(requested)));
}

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_SIMD_ROWS_H_
