// Arrays of Python as tensors of Locus, and back.
//
// NumPy arrays and anything that speaks DLPack are borrowed, not copied,
// whatever their strides. Results go back in the framework of the input.
#ifndef LOCUS_PYTHON_SRC_ARRAYS_H_
#define LOCUS_PYTHON_SRC_ARRAYS_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <string>
#include <vector>

#include "locus/tensor.h"

namespace locus::python {

namespace nb = nanobind;

// An argument of one call: borrows its memory while this lives.
class Borrowed {
 public:
  // Any float type. `name` is for messages. Also takes a tuple (address, shape,
  // strides, "f32" or "f64" or "bf16" or "f16"): the caller keeps the memory
  // alive and knows that it is right.
  Borrowed(const char* name, nb::handle array);
  const Tensor& tensor() const { return tensor_; }
  operator const Tensor&() const { return tensor_; }

 private:
  nb::object keep_;  // what was imported, if not the argument itself
  nb::ndarray<nb::ro> array_;
  Tensor tensor_;
};

// The same for data: q, k, v and the like are f32, bf16 or f16. float64 is
// refused, since the work happens in float32.
Borrowed BorrowData(const char* name, nb::handle array);

// Where the elements of a tensor begin, whatever their type.
inline const void* Address(const Tensor& x) {
  switch (x.dtype()) {
    case DType::kF32:
      return x.Data<float>();
    case DType::kF64:
      return x.Data<double>();
    default:
      return x.Data<uint16_t>();
  }
}

// A tensor to write to: must be writable.
class Writable {
 public:
  Writable(const char* name, nb::handle array);
  Tensor& tensor() { return tensor_; }

 private:
  nb::ndarray<> array_;
  Tensor tensor_;
};

// A table of an encoding: keeps the Python object alive as long as the tensor.
// None gives an undefined tensor; lists and numbers are converted. Throws where
// a value is not finite.
Tensor Table(const char* name, nb::handle array);

// In the framework of `like`: NumPy, PyTorch, or what its array namespace
// imports. The memory is shared.
nb::object ToArray(const Tensor& tensor, nb::handle like);
nb::object ToNumpy(const Tensor& tensor);

// Integers from None (empty), a list or an array of integers, of one of the
// shapes; -1 stands for any size.
std::vector<int64_t> Integers(const char* name, nb::handle values,
                              const std::vector<std::vector<int64_t>>& shapes);

// "numpy.ndarray" for messages.
std::string TypeName(nb::handle object);

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_ARRAYS_H_
