// A small strided array, in which tables, queries, keys and values enter and
// leave the library.
//
// Copies share their storage: copying is cheap, and copies alias each other.
// A Tensor never resizes. Storage is owned by the library or borrowed from the
// caller (NumPy, PyTorch).
#ifndef LOCUS_TENSOR_H_
#define LOCUS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "locus/api.h"

namespace LOCUS_API locus {

// Element types. bf16, f16 and i8 are storage formats; arithmetic is done in
// f32 or f64. Only KvCache uses i8, with one scale per row: no other function
// takes it.
enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI8 };

std::string_view DTypeName(DType dtype);
constexpr int64_t DTypeBytes(DType dtype) {
  return dtype == DType::kF64   ? 8
         : dtype == DType::kF32 ? 4
         : dtype == DType::kI8  ? 1
                                : 2;
}

class Tensor {
 public:
  // No storage, rank 0: `defined()` is false. Marks an absent table.
  Tensor() = default;

  // Owned, contiguous, zero-filled.
  static Tensor Zeros(DType dtype, std::vector<int64_t> shape);
  // Owned, contiguous, uninitialised: for callers that write every element.
  static Tensor Empty(DType dtype, std::vector<int64_t> shape);
  // Owned, contiguous; `values.size()` must be the product of `shape`.
  static Tensor From(std::vector<int64_t> shape, std::vector<float> values);
  static Tensor From(std::vector<int64_t> shape, std::vector<double> values);
  // Borrowed: `data` must outlive every copy unless `owner` keeps it alive.
  // Strides are in elements; empty strides mean contiguous.
  static Tensor Borrow(DType dtype, std::vector<int64_t> shape,
                       std::vector<int64_t> strides, const void* data,
                       std::shared_ptr<const void> owner = nullptr);

  bool defined() const { return data_ != nullptr; }
  DType dtype() const { return dtype_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  // Negative axes count from the end.
  int64_t size(int axis) const {
    return shape_[static_cast<size_t>(axis < 0 ? axis + rank() : axis)];
  }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& strides() const { return strides_; }
  int64_t NumElements() const;
  bool IsContiguous() const;
  // "f32 [2, 8, 512, 64]", for messages.
  std::string Describe() const;

  // One element, converted to double. Indices are not checked.
  template <typename... Index>
  double At(Index... index) const {
    int64_t offset = 0;
    size_t axis = 0;
    ((offset += static_cast<int64_t>(index) * strides_[axis++]), ...);
    return Load(offset);
  }

  // The raw elements; T must be the element type (checked). uint16_t for bf16
  // and f16, int8_t for i8.
  template <typename T>
  const T* Data() const {
    CheckType<T>();
    return static_cast<const T*>(data_);
  }
  // The same without a type check.
  const void* Raw() const { return data_; }
  // Writes through every copy that shares the storage. Only for tensors the
  // caller owns.
  template <typename T>
  T* MutableData() {
    CheckType<T>();
    return static_cast<T*>(const_cast<void*>(data_));
  }

  // A contiguous tensor of the given type; shares the storage of `*this` if
  // that already is one. Conversion to i8 saturates, and NaN becomes 0.
  Tensor To(DType dtype) const;
  // A view with two axes swapped. Negative axes count from the end.
  Tensor Transposed(int a, int b) const;
  // A view of indices [begin, end) of an axis, such as a range of tokens.
  Tensor Sliced(int axis, int64_t begin, int64_t end) const;
  // Every element as double, in row-major order.
  std::vector<double> ToVector() const;

 private:
  double Load(int64_t offset) const;
  // The index of an axis that may count from the end; throws if there is none.
  size_t AxisIndex(int axis) const;
  template <typename T>
  void CheckType() const {
    constexpr bool is_float = std::is_floating_point_v<T>;
    const bool wide = dtype_ == DType::kF32 || dtype_ == DType::kF64;
    if (int64_t{sizeof(T)} != DTypeBytes(dtype_) || is_float != wide) {
      FailType();
    }
  }
  [[noreturn]] void FailType() const;

  DType dtype_ = DType::kF32;
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;
  const void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
};

// Limits the memory of released tensors and scratch that the library keeps for
// later calls, since faulting in new pages costs more than the work of a short
// call. The default, and the most, is 128 MiB; what exceeds a lower limit is
// freed at once. Meant for a process whose other memory an allocator of its own
// recycles, as PyTorch's.
void SetKeptMemory(int64_t bytes);

}  // namespace locus

#endif  // LOCUS_TENSOR_H_
