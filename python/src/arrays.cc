#include "arrays.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dlpack.h"
#include "finite.h"
#include "numbers.h"
#include "values.h"

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

// A class of a module that stays loaded; the interpreter ends first.
PyObject* NumpyType(const char* name) {
  return nb::object(nb::module_::import_("numpy").attr(name)).release().ptr();
}

// NumPy knows bfloat16 only through ml_dtypes, whose arrays are opaque to
// DLPack and to buffers.
bool IsNumpyBf16(nb::handle array) {
  const nb::object name = array.attr("dtype").attr("name");
  return nb::isinstance<nb::str>(name) && Text(name) == "bfloat16";
}

bool IsTorch(nb::handle array) {
  // Not imported: then nothing is a torch.Tensor.
  PyObject* const modules = PyImport_GetModuleDict();
  PyObject* const torch = PyDict_GetItemString(modules, "torch");
  if (torch == nullptr) return false;
  const nb::object type = nb::getattr(nb::handle(torch), "Tensor", nb::none());
  return PyType_Check(type.ptr()) != 0 &&
         PyObject_TypeCheck(array.ptr(),
                            reinterpret_cast<PyTypeObject*>(type.ptr())) != 0;
}

// What DLPack would drop without a word: the graph of a tensor, and its
// gradient with it; that a view stands for its negative; or refuses in words of
// its own: another device.
void CheckTorch(const char* name, nb::handle array) {
  const std::string it = name;
  if (nb::cast<bool>(array.attr("requires_grad"))) {
    TypeError(it +
              " is a torch.Tensor that requires grad: locus.torch gives "
              "gradients; without them, pass " +
              it + ".detach()");
  }
  if (nb::cast<bool>(array.attr("is_neg")())) {
    TypeError(it + " is a view that stands for its negative: pass " + it +
              ".resolve_neg()");
  }
  const nb::object device = array.attr("device");
  if (Text(device.attr("type")) != "cpu") {
    TypeError(it + " is on the device " + Text(device) +
              ": Locus runs on the CPU, so pass " + it + ".cpu()");
  }
}

[[noreturn]] void RefuseElements(const char* name,
                                 const std::string& elements) {
  TypeError(std::string(name) +
            " must be an array of float32, bfloat16, float16 or float64, "
            "its elements are " +
            elements);
}

std::string ElementsOf(nb::handle array) {
  const nb::object dtype = nb::getattr(array, "dtype", nb::none());
  return dtype.is_none() ? "of another type" : Line(dtype);
}

// Why a NumPy array could not be imported.
[[noreturn]] void RefuseNumpy(const char* name, const nb::object& array) {
  const nb::object dtype = array.attr("dtype");
  // Objects, records, and numbers whose bytes are in the other order.
  if (Text(dtype.attr("kind")) != "f" ||
      !nb::cast<bool>(dtype.attr("isnative"))) {
    RefuseElements(name, Line(dtype));
  }
  throw nb::value_error((std::string(name) +
                         " has strides that are not whole elements: pass " +
                         name + ".copy()")
                            .c_str());
}

template <typename Array>
bool Import(nb::handle array, Array& result) {
  const bool known = nb::try_cast<Array>(array, result, false) &&
                     result.is_valid() &&
                     result.device_type() == nb::device::cpu::value;
  PyErr_Clear();
  return known;
}

template <typename Array>
Tensor AsTensor(const char* name, const Array& array, nb::handle source,
                std::optional<DType> as) {
  const std::optional<DType> dtype = as ? as : DTypeOf(array.dtype());
  if (!dtype) RefuseElements(name, ElementsOf(source));
  std::vector<int64_t> shape(array.ndim()), strides(array.ndim());
  for (size_t i = 0; i < array.ndim(); ++i) {
    shape[i] = static_cast<int64_t>(array.shape(i));
    strides[i] = array.stride(i);
  }
  const auto address = reinterpret_cast<uintptr_t>(array.data());
  if (address % static_cast<uintptr_t>(DTypeBytes(*dtype)) != 0) {
    throw nb::value_error((std::string(name) +
                           " does not begin at a whole element of memory: pass "
                           "a copy")
                              .c_str());
  }
  // An empty array may have no address; absent tensors have none.
  return Tensor::Borrow(*dtype, std::move(shape), std::move(strides),
                        array.data());
}

// Imports `array` into `to`; what must live as long goes to `keep`.
template <typename Array>
Tensor ImportAny(const char* name, nb::handle array, bool writable,
                 nb::object& keep, Array& to) {
  if (const nb::object numpy = PlainNumpy(name, array); numpy.is_valid()) {
    keep = numpy;
    if (Import(keep, to)) return AsTensor(name, to, numpy, std::nullopt);
    if (writable && !nb::cast<bool>(numpy.attr("flags").attr("writeable"))) {
      throw nb::value_error(
          (std::string(name) + " is read-only and cannot be changed in place")
              .c_str());
    }
    if (!IsNumpyBf16(numpy)) RefuseNumpy(name, numpy);
    keep = numpy.attr("view")("uint16");
    if (!Import(keep, to)) RefuseNumpy(name, numpy);
    return AsTensor(name, to, numpy, DType::kBF16);
  }
  if (IsTorch(array)) CheckTorch(name, array);
  const nb::object capsule = DlpackCapsule(name, array, writable);
  if (!capsule.is_valid()) {
    TypeError(std::string(name) +
              " must be a NumPy array or another array on the CPU that speaks "
              "DLPack, got " +
              Shown(array));
  }
  if (!Import(capsule, to)) {
    if (!writable) RefuseElements(name, ElementsOf(array));
    throw nb::value_error(
        (std::string(name) + " is read-only and cannot be changed in place")
            .c_str());
  }
  return AsTensor(name, to, array, std::nullopt);
}

// Whether two elements may share memory: an axis steps by less than what the
// axes inside it reach.
bool Overlaps(const Tensor& x) {
  std::vector<std::pair<int64_t, int64_t>> axes;  // step, count
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x.size(axis) == 0) return false;
    if (x.size(axis) == 1) continue;
    axes.emplace_back(std::abs(x.strides()[static_cast<size_t>(axis)]),
                      x.size(axis));
  }
  std::sort(axes.begin(), axes.end());
  int64_t reach = 1;
  for (const auto& [step, count] : axes) {
    if (step < reach) return true;
    reach += (count - 1) * step;
  }
  return false;
}

const RawTensor* RawOf(nb::handle array) {
  const RawTensor* raw = nullptr;
  return nb::try_cast<const RawTensor*>(array, raw, false) ? raw : nullptr;
}

}  // namespace

bool IsNumpy(nb::handle array) {
  static PyObject* const type = NumpyType("ndarray");
  return PyObject_TypeCheck(array.ptr(),
                            reinterpret_cast<PyTypeObject*>(type)) != 0;
}

nb::object PlainNumpy(const char* name, nb::handle array) {
  if (!IsNumpy(array)) return {};
  static PyObject* const type = NumpyType("ndarray");
  if (reinterpret_cast<PyObject*>(Py_TYPE(array.ptr())) == type) {
    return nb::borrow(array);
  }
  const nb::object masked =
      nb::module_::import_("numpy").attr("ma").attr("MaskedArray");
  if (PyObject_TypeCheck(array.ptr(),
                         reinterpret_cast<PyTypeObject*>(masked.ptr())) != 0) {
    TypeError(std::string(name) +
              " is a masked array, whose mask would be lost: pass " + name +
              ".filled(...)");
  }
  // The method of ndarray itself, whatever the subclass makes of it.
  return nb::handle(type).attr("view")(array, nb::handle(type));
}

Borrowed::Borrowed(const char* name, nb::handle array) {
  if (const RawTensor* raw = RawOf(array)) {
    tensor_ = raw->tensor;
    return;
  }
  tensor_ = ImportAny(name, array, /*writable=*/false, keep_, array_);
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

BorrowedMask::BorrowedMask(const char* name, nb::handle array) {
  const RawMask* raw = nullptr;
  if (nb::try_cast<const RawMask*>(array, raw, false)) {
    mask_ = raw->mask;
    return;
  }
  keep_ = PlainNumpy(name, array);
  if (!keep_.is_valid()) {
    if (IsTorch(array)) CheckTorch(name, array);
    keep_ = DlpackCapsule(name, array, /*writable=*/false);
    if (!keep_.is_valid()) {
      TypeError(std::string(name) +
                " must be a NumPy array or another array on the CPU that "
                "speaks DLPack, got " +
                Shown(array));
    }
  }
  constexpr auto kBool = static_cast<uint8_t>(nb::dlpack::dtype_code::Bool);
  if (!Import(keep_, array_) || array_.dtype().code != kBool ||
      array_.dtype().bits != 8) {
    TypeError(std::string(name) +
              " must be an array of booleans, true where a query sees a key, "
              "its elements are " +
              ElementsOf(array));
  }
  if (array_.ndim() < 2 || array_.ndim() > 4) {
    throw nb::value_error((std::string(name) +
                           " must be [Lq, Lk] with up to two axes before, of "
                           "heads and of sequences, got " +
                           std::to_string(array_.ndim()) + " axes")
                              .c_str());
  }
  mask_.data = static_cast<const uint8_t*>(array_.data());
  mask_.shape.fill(1);
  const size_t missing = 4 - array_.ndim();
  for (size_t axis = 0; axis < array_.ndim(); ++axis) {
    mask_.shape[missing + axis] = static_cast<int64_t>(array_.shape(axis));
    mask_.strides[missing + axis] = array_.stride(axis);
  }
}

Writable::Writable(const char* name, nb::handle array) {
  tensor_ = ImportAny(name, array, /*writable=*/true, keep_, array_);
  if (Overlaps(tensor_)) {
    throw nb::value_error((std::string(name) +
                           " has elements that overlap in memory and cannot be "
                           "changed in place")
                              .c_str());
  }
}

Tensor Table(const char* name, nb::handle array) {
  if (array.is_none()) return {};
  Tensor tensor;
  std::shared_ptr<const void> owner;
  if (IsNumpy(array) || RawOf(array) != nullptr || !IsNumberList(array)) {
    auto kept = std::make_unique<Borrowed>(name, array);
    tensor = kept->tensor();
    // Tensors may end on any thread.
    owner = std::shared_ptr<const void>(kept.release(), [](Borrowed* borrowed) {
      if (!nb::is_alive()) return;
      const nb::gil_scoped_acquire gil;
      delete borrowed;
    });
    tensor = Tensor::Borrow(tensor.dtype(), tensor.shape(), tensor.strides(),
                            tensor.Raw(), std::move(owner));
  } else {
    tensor = RealList(name, array);
  }
  // Every call that is given such a table would return NaN and say nothing.
  if (const std::optional<double> value = NotFinite(tensor)) {
    throw nb::value_error(
        (std::string(name) + " " + tensor.Describe() +
         " holds a value that is not finite: " + Text(nb::float_(*value)))
            .c_str());
  }
  return tensor;
}

namespace {

template <typename Framework>
nb::object Export(const Tensor& tensor, nb::dlpack::dtype dtype) {
  auto kept = std::make_unique<Tensor>(tensor);
  void* const data = const_cast<void*>(tensor.Raw());
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

// The memory of a PyTorch tensor. Not copied, and not checked.
RawTensor MakeRaw(uintptr_t address, std::vector<int64_t> shape,
                  std::vector<int64_t> strides, const std::string& type) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    if (type != DTypeName(dtype)) continue;
    return {Tensor::Borrow(dtype, std::move(shape), std::move(strides),
                           reinterpret_cast<const void*>(address))};
  }
  TypeError("no element type is called " + type);
}

// The memory of a PyTorch tensor of four axes of booleans.
RawMask MakeRawMask(uintptr_t address, const std::vector<int64_t>& shape,
                    const std::vector<int64_t>& strides) {
  RawMask raw;
  raw.mask.data = reinterpret_cast<const uint8_t*>(address);
  std::copy_n(shape.begin(), 4, raw.mask.shape.begin());
  std::copy_n(strides.begin(), 4, raw.mask.strides.begin());
  return raw;
}

}  // namespace

nb::object ToNumpy(const Tensor& tensor) { return NumpyOf(tensor); }

nb::object ToArray(const Tensor& tensor, nb::handle like) {
  if (IsNumpy(like)) return NumpyOf(tensor);
  const nb::dlpack::dtype dtype = DlpackType(tensor.dtype());
  if (RawOf(like) != nullptr || IsTorch(like)) {
    return Export<nb::pytorch>(tensor, dtype);
  }
  nb::object result = Export<nb::array_api>(tensor, dtype);
  if (!nb::hasattr(like, "__array_namespace__")) return result;
  return like.attr("__array_namespace__")().attr("from_dlpack")(result);
}

void BindRawTensor(nb::module_& m) {
  nb::class_<RawTensor>(m, "_RawTensor");
  m.def("_raw_tensor", &MakeRaw);
  m.def("_keep_memory", &SetKeptMemory);
  nb::class_<RawMask>(m, "_RawMask");
  m.def("_raw_mask", &MakeRawMask);
}

}  // namespace locus::python
