// Arrays of Python as tensors of Locus, and back.
//
// NumPy arrays and anything that speaks DLPack are borrowed, not copied,
// whatever their strides. Results go back in the framework of the input.
#ifndef LOCUS_PYTHON_SRC_ARRAYS_H_
#define LOCUS_PYTHON_SRC_ARRAYS_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

#include "locus/attention.h"
#include "locus/tensor.h"

namespace locus::python {

namespace nb = nanobind;

// A tensor by its address: how locus.torch passes PyTorch's, which it keeps
// alive. Python code has no way to make one but the private _raw_tensor.
struct RawTensor {
  Tensor tensor;
};
// The same for a mask of pairs.
struct RawMask {
  PairMask mask;
};

// An argument of one call: borrows its memory while this lives.
class Borrowed {
 public:
  // Any float type. `name` is for messages.
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

// A mask of pairs: booleans [B or 1, Hq or 1, Lq or 1, Lk], or of fewer axes,
// the missing ones 1.
class BorrowedMask {
 public:
  BorrowedMask(const char* name, nb::handle array);
  const PairMask& mask() const { return mask_; }

 private:
  nb::object keep_;
  nb::ndarray<nb::ro> array_;
  PairMask mask_;
};

// A tensor to write to: must be writable.
class Writable {
 public:
  Writable(const char* name, nb::handle array);
  Tensor& tensor() { return tensor_; }

 private:
  nb::object keep_;
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

// Whether an object is a numpy.ndarray.
bool IsNumpy(nb::handle array);
// A numpy.ndarray itself of an instance of a subclass; invalid if it is none.
// Refuses masked arrays, whose mask would be lost.
nb::object PlainNumpy(const char* name, nb::handle array);

void BindRawTensor(nb::module_& m);

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_ARRAYS_H_
