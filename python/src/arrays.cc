#include "arrays.h"

#include <nanobind/stl/string.h>

#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

namespace locus::python {
namespace {

constexpr auto kFloat = static_cast<uint8_t>(nb::dlpack::dtype_code::Float);
constexpr auto kBfloat = static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat);

[[noreturn]] void TypeError(const std::string& text) {
  throw nb::type_error(text.c_str());
}

// str(object).
std::string Text(const nb::object& object) {
  return nb::cast<std::string>(nb::str(object));
}

std::optional<DType> DTypeOf(const nb::dlpack::dtype& dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  if (dtype.code == kBfloat && dtype.bits == 16) return DType::kBF16;
  if (dtype.code != kFloat) return std::nullopt;
  if (dtype.bits == 16) return DType::kF16;
  if (dtype.bits == 32) return DType::kF32;
  if (dtype.bits == 64) return DType::kF64;
  return std::nullopt;
}

nb::dlpack::dtype DlpackType(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * DTypeBytes(dtype));
  return {dtype == DType::kBF16 ? kBfloat : kFloat, bits, 1};
}

// NumPy knows bfloat16 only through ml_dtypes, whose arrays are opaque to
// DLPack and to buffers.
bool IsNumpyBf16(nb::handle array) {
  const nb::object dtype = nb::getattr(array, "dtype", nb::none());
  if (dtype.is_none() || !nb::hasattr(array, "view")) return false;
  const nb::object name = nb::getattr(dtype, "name", nb::none());
  return nb::isinstance<nb::str>(name) &&
         nb::cast<std::string>(name) == "bfloat16";
}

bool IsNumpy(nb::handle array) {
  // Kept for good: the interpreter ends first.
  static PyObject* const type =
      nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
  return PyObject_IsInstance(array.ptr(), type) == 1;
}

bool IsTorch(nb::handle array) {
  // Not imported: then nothing is a torch.Tensor.
  PyObject* const modules = PyImport_GetModuleDict();
  PyObject* const torch = PyDict_GetItemString(modules, "torch");
  if (torch == nullptr) return false;
  const nb::object type = nb::getattr(nb::handle(torch), "Tensor", nb::none());
  return !type.is_none() && PyObject_IsInstance(array.ptr(), type.ptr()) == 1;
}

// DLPack drops the graph of a tensor, and its gradient with it.
void RefuseGrad(const char* name, nb::handle array) {
  if (!IsTorch(array) || !nb::cast<bool>(array.attr("requires_grad"))) return;
  TypeError(std::string(name) +
            " is a torch.Tensor that requires grad: locus.torch gives "
            "gradients; without them, pass " +
            name + ".detach()");
}

[[noreturn]] void RefuseElements(const char* name, nb::handle array) {
  TypeError(std::string(name) +
            " must be an array of float32, bfloat16, float16 or float64, "
            "its elements are " +
            Text(nb::getattr(array, "dtype", nb::none())));
}

// Why an object could not be imported.
[[noreturn]] void Refuse(const char* name, nb::handle array) {
  if (IsTorch(array)) {
    const nb::object device = array.attr("device");
    if (nb::cast<std::string>(device.attr("type")) != "cpu") {
      TypeError(std::string(name) + " is on the device " + Text(device) +
                ": Locus runs on the CPU, so pass " + name + ".cpu()");
    }
  }
  // Objects, and numbers whose bytes are in the other order.
  if (IsNumpy(array)) RefuseElements(name, array);
  TypeError(std::string(name) +
            " must be a NumPy array or another array on the CPU that speaks "
            "DLPack, got " +
            TypeName(array));
}

template <typename Array>
Tensor AsTensor(const char* name, const Array& array, nb::handle source,
                std::optional<DType> as, std::shared_ptr<const void> owner) {
  const std::optional<DType> dtype = as ? as : DTypeOf(array.dtype());
  if (!dtype) RefuseElements(name, source);
  std::vector<int64_t> shape(array.ndim()), strides(array.ndim());
  for (size_t i = 0; i < array.ndim(); ++i) {
    shape[i] = static_cast<int64_t>(array.shape(i));
    strides[i] = array.stride(i);
  }
  // An empty array may have no address; absent tensors have none.
  static const double nothing = 0.0;
  const void* const data = array.data() == nullptr ? &nothing : array.data();
  return Tensor::Borrow(*dtype, std::move(shape), std::move(strides), data,
                        std::move(owner));
}

Tensor FromTuple(nb::handle array) {
  const auto tuple = nb::borrow<nb::tuple>(array);
  const auto sizes = [](nb::handle values) {
    std::vector<int64_t> result;
    for (const nb::handle value : values) {
      result.push_back(nb::cast<int64_t>(value));
    }
    return result;
  };
  const auto type = nb::cast<std::string>(tuple[3]);
  static const double nothing = 0.0;
  const auto address = nb::cast<uintptr_t>(tuple[0]);
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    if (type != DTypeName(dtype)) continue;
    return Tensor::Borrow(
        dtype, sizes(tuple[1]), sizes(tuple[2]),
        address == 0 ? &nothing : reinterpret_cast<const void*>(address));
  }
  TypeError("no element type is called " + type);
}

bool IsTuple(nb::handle array) {
  return PyTuple_CheckExact(array.ptr()) && PyTuple_GET_SIZE(array.ptr()) == 4;
}

template <typename Array>
bool Import(nb::handle array, Array& result) {
  return nb::try_cast<Array>(array, result, false) && result.is_valid() &&
         result.device_type() == nb::device::cpu::value;
}

}  // namespace

std::string TypeName(nb::handle object) {
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  const auto module = nb::cast<std::string>(type.attr("__module__"));
  const auto name = nb::cast<std::string>(type.attr("__qualname__"));
  return module == "builtins" ? name : module + "." + name;
}

Borrowed::Borrowed(const char* name, nb::handle array) {
  if (IsTuple(array)) {
    tensor_ = FromTuple(array);
    return;
  }
  if (!IsNumpy(array)) RefuseGrad(name, array);
  nb::handle source = array;
  std::optional<DType> as;
  if (!Import(array, array_)) {
    PyErr_Clear();
    if (!IsNumpyBf16(array)) Refuse(name, array);
    keep_ = array.attr("view")("uint16");
    source = keep_;
    as = DType::kBF16;
    if (!Import(source, array_)) Refuse(name, array);
  }
  tensor_ = AsTensor(name, array_, array, as, nullptr);
}

Borrowed BorrowData(const char* name, nb::handle array) {
  Borrowed borrowed(name, array);
  if (borrowed.tensor().dtype() == DType::kF64) {
    TypeError(std::string(name) +
              " is float64, and attention computes in float32: convert it "
              "first, to float32, bfloat16 or float16");
  }
  return borrowed;
}

Writable::Writable(const char* name, nb::handle array) {
  if (!Import(array, array_)) {
    PyErr_Clear();
    // Says what is wrong with it, if it is not that it may only be read.
    const Borrowed readable(name, array);
    throw nb::value_error(
        (std::string(name) + " is read-only and cannot be changed in place")
            .c_str());
  }
  tensor_ = AsTensor(name, array_, array, std::nullopt, nullptr);
}

namespace {

// Whether no exponent is the largest, which NaN and infinity have. Compared as
// words: compilers put that into vectors.
template <typename Word, typename T>
bool AllBelow(Word exponent, const T* values, int64_t count, int64_t step) {
  Word found = 0;
  const auto look = [&](T value) {
    found |=
        static_cast<Word>((std::bit_cast<Word>(value) & exponent) == exponent);
  };
  if (step == 1) {
    for (int64_t n = 0; n < count; ++n) look(values[n]);
  } else {
    for (int64_t n = 0; n < count; ++n) look(values[n * step]);
  }
  return found == 0;
}

// Of a tensor with any strides, from element `at` and axis `axis` on.
bool AllFinite(const Tensor& x, int axis = 0, int64_t at = 0) {
  if (axis + 1 < x.rank()) {
    for (int64_t n = 0; n < x.size(axis); ++n) {
      const int64_t step = x.strides()[static_cast<size_t>(axis)];
      if (!AllFinite(x, axis + 1, at + n * step)) return false;
    }
    return true;
  }
  const int64_t count = x.rank() == 0 ? 1 : x.size(axis);
  const int64_t step = x.rank() == 0 ? 1 : x.strides().back();
  switch (x.dtype()) {
    case DType::kF64:
      return AllBelow(uint64_t{0x7FF} << 52, x.Data<double>() + at, count,
                      step);
    case DType::kF32:
      return AllBelow(uint32_t{0xFF} << 23, x.Data<float>() + at, count, step);
    case DType::kBF16:
      return AllBelow(uint16_t{0x7F80}, x.Data<uint16_t>() + at, count, step);
    case DType::kF16:
      return AllBelow(uint16_t{0x7C00}, x.Data<uint16_t>() + at, count, step);
  }
  return true;
}

// Every call that is given such a table would return NaN and say nothing.
void CheckFinite(const char* name, const Tensor& tensor) {
  if (AllFinite(tensor)) return;
  for (double value : tensor.ToVector()) {
    if (std::isfinite(value)) continue;
    const std::string text =
        std::string(name) + " " + tensor.Describe() +
        " holds a value that is not finite: " + Text(nb::float_(value));
    throw nb::value_error(text.c_str());
  }
}

}  // namespace

Tensor Table(const char* name, nb::handle array) {
  if (array.is_none()) return {};
  nb::object source = nb::borrow(array);
  if (nb::isinstance<nb::list>(array) || nb::isinstance<nb::tuple>(array) ||
      PyFloat_Check(array.ptr()) || PyLong_Check(array.ptr())) {
    source = nb::module_::import_("numpy").attr("asarray")(
        array, nb::arg("dtype") = "float64");
  }
  auto kept = std::make_unique<Borrowed>(name, source);
  const Tensor tensor = kept->tensor();
  CheckFinite(name, tensor);
  // Tensors may end on any thread.
  const std::shared_ptr<const void> owner(kept.release(), [](Borrowed* array) {
    if (!nb::is_alive()) return;
    const nb::gil_scoped_acquire gil;
    delete array;
  });
  return Tensor::Borrow(tensor.dtype(), tensor.shape(), tensor.strides(),
                        Address(tensor), owner);
}

namespace {

template <typename Framework>
nb::object Export(const Tensor& tensor, nb::dlpack::dtype dtype) {
  auto kept = std::make_unique<Tensor>(tensor);
  void* const data = const_cast<void*>(Address(tensor));
  std::vector<size_t> shape(tensor.shape().begin(), tensor.shape().end());
  const nb::capsule owner(
      kept.release(), [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  return nb::cast(nb::ndarray<Framework>(data, shape.size(), shape.data(),
                                         owner, tensor.strides().data(), dtype),
                  nb::rv_policy::automatic);
}

nb::object NumpyOf(const Tensor& tensor) {
  if (tensor.dtype() != DType::kBF16) {
    return Export<nb::numpy>(tensor, DlpackType(tensor.dtype()));
  }
  const nb::object words = Export<nb::numpy>(tensor, nb::dtype<uint16_t>());
  return words.attr("view")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
}

}  // namespace

nb::object ToNumpy(const Tensor& tensor) { return NumpyOf(tensor); }

nb::object ToArray(const Tensor& tensor, nb::handle like) {
  if (IsNumpy(like)) return NumpyOf(tensor);
  const nb::dlpack::dtype dtype = DlpackType(tensor.dtype());
  if (IsTuple(like) || IsTorch(like)) {
    return Export<nb::pytorch>(tensor, dtype);
  }
  nb::object result = Export<nb::array_api>(tensor, dtype);
  if (!nb::hasattr(like, "__array_namespace__")) return result;
  return like.attr("__array_namespace__")().attr("from_dlpack")(result);
}

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

}  // namespace

namespace {

void CheckShape(const char* name, const std::vector<int64_t>& shape,
                const std::vector<std::vector<int64_t>>& shapes) {
  bool fits = false;
  std::string wanted;
  for (const std::vector<int64_t>& to : shapes) {
    fits = fits || Fits(shape, to);
    wanted += (wanted.empty() ? "" : " or ") + ShapeText(to);
  }
  if (fits) return;
  throw nb::value_error((std::string(name) + " must have the shape " + wanted +
                         ", got " + ShapeText(shape))
                            .c_str());
}

// The elements of an int64 array, in row-major order.
template <typename Array>
std::vector<int64_t> Elements(const Array& array) {
  std::vector<int64_t> result;
  if (array.ndim() == 1) {
    for (size_t i = 0; i < array.shape(0); ++i) {
      result.push_back(array.data()[static_cast<int64_t>(i) * array.stride(0)]);
    }
    return result;
  }
  for (size_t i = 0; i < array.shape(0); ++i) {
    for (size_t j = 0; j < array.shape(1); ++j) {
      result.push_back(array.data()[static_cast<int64_t>(i) * array.stride(0) +
                                    static_cast<int64_t>(j) * array.stride(1)]);
    }
  }
  return result;
}

}  // namespace

std::vector<int64_t> Integers(const char* name, nb::handle values,
                              const std::vector<std::vector<int64_t>>& shapes) {
  if (values.is_none()) return {};
  nb::ndarray<const int64_t, nb::device::cpu> own;
  if (!nb::isinstance<nb::list>(values) && !nb::isinstance<nb::tuple>(values)) {
    if (nb::try_cast(values, own, false) && own.is_valid() &&
        (own.ndim() == 1 || own.ndim() == 2)) {
      std::vector<int64_t> sizes;
      for (size_t i = 0; i < own.ndim(); ++i) {
        sizes.push_back(static_cast<int64_t>(own.shape(i)));
      }
      CheckShape(name, sizes, shapes);
      return Elements(own);
    }
    PyErr_Clear();
  }
  const nb::object numpy = nb::module_::import_("numpy");
  const nb::object array = numpy.attr("asarray")(values);
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  const auto size = nb::cast<int64_t>(array.attr("size"));
  if (size > 0 && kind != "i" && kind != "u") {
    TypeError(std::string(name) + " must be integers, its elements are " +
              Text(array.attr("dtype")));
  }
  std::vector<int64_t> shape;
  for (const nb::handle n : nb::borrow<nb::tuple>(array.attr("shape"))) {
    shape.push_back(nb::cast<int64_t>(n));
  }
  CheckShape(name, shape, shapes);
  if (size > 0 && kind == "u" &&
      nb::cast<uint64_t>(numpy.attr("max")(array)) > uint64_t{INT64_MAX}) {
    throw nb::value_error(
        (std::string(name) + " has values beyond int64").c_str());
  }
  const nb::object flat = array.attr("astype")("int64").attr("ravel")();
  const auto view =
      nb::cast<nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig>>(flat);
  return std::vector<int64_t>(view.data(), view.data() + view.shape(0));
}

}  // namespace locus::python
