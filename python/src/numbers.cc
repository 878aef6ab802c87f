#include "numbers.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "arrays.h"
#include "dlpack.h"
#include "memory.h"
#include "values.h"

namespace locus::python {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] < 0 ? "n" : std::to_string(shape[i]);
  }
  return text + "]";
}

bool Fits(const std::vector<int64_t>& shape, const std::vector<int64_t>& to) {
  if (shape.size() != to.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (to[i] >= 0 && shape[i] != to[i]) return false;
  }
  return true;
}

void CheckShape(const char* name, const std::vector<int64_t>& shape,
                const Shapes& shapes) {
  std::string wanted;
  for (const std::vector<int64_t>& to : shapes) {
    if (Fits(shape, to)) return;
    wanted += (wanted.empty() ? "" : " or ") + ShapeText(to);
  }
  throw nb::value_error((std::string(name) + " must have the shape " + wanted +
                         ", got " + ShapeText(shape))
                            .c_str());
}

bool IsList(nb::handle object) {
  return PyList_Check(object.ptr()) != 0 || PyTuple_Check(object.ptr()) != 0;
}

bool IsRange(nb::handle object) {
  return Py_TYPE(object.ptr()) == &PyRange_Type;
}

// What object.tolist() gives, if that is a list: arrays of any kind, views of
// memory, columns of tables.
nb::object ListFrom(const char* name, nb::handle object) {
  if (PyType_Check(object.ptr()) != 0) return {};
  const nb::object method = nb::getattr(object, "tolist", nb::none());
  if (method.is_none()) return {};
  // A reference and a number of Python for each element.
  const nb::object bytes = nb::getattr(object, "nbytes", nb::none());
  if (PyLong_Check(bytes.ptr()) != 0) {
    RequireMemory(std::string(name) + " as a list", IntOf("nbytes", bytes), 8);
  }
  nb::object list = method();
  return PyList_Check(list.ptr()) != 0 ? list : nb::object();
}

template <typename T>
T NumberOf(const std::string& name, nb::handle value) {
  if constexpr (std::is_same_v<T, double>) {
    return RealOf(name, value);
  } else {
    return IntOf(name, value);
  }
}

// Numbers of nested lists, in row-major order.
template <typename T>
class Nested {
 public:
  Nested(const char* name, nb::handle object) : name_(name) {
    Read(object, 0);
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    if (count != static_cast<int64_t>(values.size())) Ragged();
  }

  std::vector<int64_t> shape;
  std::vector<T> values;

 private:
  [[noreturn]] void Ragged() const {
    throw nb::value_error(
        (std::string(name_) + " must be rows of one length each").c_str());
  }

  void Read(nb::handle object, size_t depth) {
    if (IsList(object)) return ReadList(object, depth);
    if (IsRange(object)) {
      const Py_ssize_t size = PyObject_Size(object.ptr());
      if (size < 0) throw nb::python_error();
      // A reference and an int of Python for each.
      RequireMemory(
          std::string(name_) + " of " + std::to_string(size) + " numbers", size,
          40);
      return ReadList(nb::steal(PySequence_List(object.ptr())), depth);
    }
    if (!PyLong_Check(object.ptr()) && !PyFloat_Check(object.ptr())) {
      if (const nb::object list = ListFrom(name_, object); list.is_valid()) {
        return ReadList(list, depth);
      }
    }
    if (depth < shape.size()) Ragged();
    leaf_ = true;
    values.push_back(NumberOf<T>(
        depth == 0 ? name_ : "an element of " + std::string(name_), object));
  }

  void ReadList(nb::handle list, size_t depth) {
    constexpr size_t kDeepest = 32;
    if (depth >= kDeepest) {
      throw nb::value_error(
          (std::string(name_) + " is nested too deeply").c_str());
    }
    const bool tuple = PyTuple_Check(list.ptr()) != 0;
    const auto size = [&] {
      return tuple ? PyTuple_Size(list.ptr()) : PyList_Size(list.ptr());
    };
    if (depth == shape.size()) {
      if (leaf_) Ragged();
      shape.push_back(size());
    } else if (shape[depth] != size()) {
      Ragged();
    }
    // Asked each time: an element may be code, and change the list.
    for (Py_ssize_t i = 0; i < size(); ++i) {
      const nb::object item = nb::borrow(tuple ? PyTuple_GetItem(list.ptr(), i)
                                               : PyList_GetItem(list.ptr(), i));
      Read(item, depth + 1);
    }
  }

  const char* name_;
  bool leaf_ = false;  // a number was met, so the depth is known
};

using Imported = nb::ndarray<nb::ro, nb::device::cpu>;

[[noreturn]] void RefuseElements(const char* name, nb::handle array) {
  const nb::object type = nb::getattr(array, "dtype", nb::none());
  throw nb::type_error((std::string(name) +
                        " must be integers, its elements are " +
                        (type.is_none() ? "of another type" : Line(type)))
                           .c_str());
}

// The elements of an array of rank 1 or 2, in row-major order.
template <typename T>
std::vector<int64_t> Elements(const char* name, const Imported& array) {
  const bool rows = array.ndim() == 2;
  const auto height = static_cast<int64_t>(rows ? array.shape(0) : 1);
  const auto width = static_cast<int64_t>(array.shape(rows ? 1 : 0));
  const int64_t down = rows ? array.stride(0) : 0;
  const int64_t step = array.stride(rows ? 1 : 0);
  const T* const data = static_cast<const T*>(array.data());
  std::vector<int64_t> result(static_cast<size_t>(height * width));
  int64_t* to = result.data();
  bool beyond = false;
  for (int64_t i = 0; i < height; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      T value;  // may begin at any byte
      std::memcpy(&value, data + i * down + j * step, sizeof value);
      *to = static_cast<int64_t>(value);
      beyond |= std::is_same_v<T, uint64_t> && *to < 0;
      ++to;
    }
  }
  if (beyond) {
    throw nb::value_error(
        (std::string(name) + " has values beyond int64").c_str());
  }
  return result;
}

struct IntList {
  std::vector<int64_t> shape;
  std::vector<int64_t> values;
};

// An array of NumPy as it is, or a copy if its integers are in the other byte
// order or between whole elements.
nb::object Native(const char* name, const nb::object& array) {
  Imported own;
  if (nb::try_cast(array, own, false) && own.is_valid()) return array;
  PyErr_Clear();
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  if (kind != "i" && kind != "u") RefuseElements(name, array);
  RequireMemory(std::string(name) + " in the native byte order",
                nb::cast<int64_t>(array.attr("size")), sizeof(int64_t));
  return array.attr("astype")(kind + "8");
}

std::vector<int64_t> ElementsOf(const char* name, nb::handle array,
                                const Imported& own) {
  const auto is = [&]<typename T>(T /*of this type*/) {
    return own.dtype() == nb::dtype<T>();
  };
  if (is(int64_t{})) return Elements<int64_t>(name, own);
  if (is(int32_t{})) return Elements<int32_t>(name, own);
  if (is(int16_t{})) return Elements<int16_t>(name, own);
  if (is(int8_t{})) return Elements<int8_t>(name, own);
  if (is(uint64_t{})) return Elements<uint64_t>(name, own);
  if (is(uint32_t{})) return Elements<uint32_t>(name, own);
  if (is(uint16_t{})) return Elements<uint16_t>(name, own);
  if (is(uint8_t{})) return Elements<uint8_t>(name, own);
  RefuseElements(name, array);
}

// source: the array itself, or its DLPack capsule.
IntList FromArray(const char* name, nb::handle array, nb::handle source,
                  const Shapes& shapes, int64_t bytes_each) {
  Imported own;
  if (!nb::try_cast(source, own, false) || !own.is_valid()) {
    PyErr_Clear();
    RefuseElements(name, array);
  }
  IntList list;
  int64_t count = 1;
  for (size_t i = 0; i < own.ndim(); ++i) {
    list.shape.push_back(static_cast<int64_t>(own.shape(i)));
    count *= list.shape.back();
  }
  CheckShape(name, list.shape, shapes);
  RequireMemory(std::string(name) + " " + ShapeText(list.shape), count,
                static_cast<int64_t>(sizeof(int64_t)) + bytes_each);
  if (count > 0) list.values = ElementsOf(name, array, own);
  return list;
}

IntList Read(const char* name, nb::handle values, const Shapes& shapes,
             int64_t bytes_each = 0) {
  if (const nb::object array = PlainNumpy(name, values); array.is_valid()) {
    return FromArray(name, array, Native(name, array), shapes, bytes_each);
  }
  if (!IsNumberList(values)) {
    if (const nb::object capsule =
            DlpackCapsule(name, values, /*writable=*/false);
        capsule.is_valid()) {
      return FromArray(name, values, capsule, shapes, bytes_each);
    }
    RefuseType(name, "integers in a list or an array", values);
  }
  Nested<int64_t> nested(name, values);
  CheckShape(name, nested.shape, shapes);
  return {std::move(nested.shape), std::move(nested.values)};
}

nb::object Owning(IntList list) {
  auto kept = std::make_unique<std::vector<int64_t>>(std::move(list.values));
  int64_t* const data = kept->data();
  const std::vector<size_t> shape(list.shape.begin(), list.shape.end());
  const nb::capsule owner(kept.release(), [](void* p) noexcept {
    delete static_cast<std::vector<int64_t>*>(p);
  });
  return nb::cast(
      nb::ndarray<nb::numpy, int64_t>(data, shape.size(), shape.data(), owner));
}

}  // namespace

bool IsNumberList(nb::handle object) {
  return IsList(object) || IsRange(object) || PyFloat_Check(object.ptr()) ||
         PyLong_Check(object.ptr()) ||
         (!nb::hasattr(object, "__dlpack__") && nb::hasattr(object, "tolist"));
}

Tensor RealList(const char* name, nb::handle list) {
  Nested<double> nested(name, list);
  return Tensor::From(std::move(nested.shape), std::move(nested.values));
}

std::vector<double> RealRow(const char* name, nb::handle values) {
  if (values.is_none()) return {};
  const Tensor row = Table(name, values);
  if (row.rank() != 1) {
    throw nb::value_error((std::string(name) +
                           " must be one row of numbers, got " + row.Describe())
                              .c_str());
  }
  if (row.NumElements() > kMostInRow) {
    throw nb::value_error((std::string(name) + " must be at most " +
                           std::to_string(kMostInRow) + " numbers, got " +
                           row.Describe())
                              .c_str());
  }
  return row.ToVector();
}

std::vector<int64_t> Integers(const char* name, nb::handle values,
                              const Shapes& shapes, int64_t bytes_each) {
  return Read(name, values, shapes, bytes_each).values;
}

std::vector<int64_t> IntegersOrNone(const char* name, nb::handle values,
                                    const Shapes& shapes) {
  if (values.is_none()) return {};
  return Read(name, values, shapes).values;
}

nb::object IntegerArray(const char* name, nb::handle values) {
  return Owning(Read(name, values, {{-1}, {-1, -1}}));
}

nb::object ToNumpy(std::vector<int64_t> values) {
  const auto size = static_cast<int64_t>(values.size());
  return Owning({{size}, std::move(values)});
}

}  // namespace locus::python
