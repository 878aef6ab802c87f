#include "dlpack.h"

#include <nanobind/ndarray.h>

#include <string>

#include "values.h"

namespace locus::python {
namespace {

constexpr const char* kPlain = "dltensor";
constexpr const char* kVersioned = "dltensor_versioned";

// DLManagedTensorVersioned up to the tensor itself; DLManagedTensor begins with
// it.
struct VersionedHead {
  uint32_t major, minor;
  void* context;
  void* deleter;
  uint64_t flags;
  nb::dlpack::dltensor tensor;
};

[[noreturn]] void Refuse(const char* name, const std::string& text) {
  throw nb::value_error((std::string(name) + " " + text).c_str());
}

// "TypeError: ..." of the exception that is set, in one line.
std::string TakeError() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const nb::object owned[] = {nb::steal(type), nb::steal(value),
                              nb::steal(trace)};
  return TypeName(owned[1]) + " " + Line(owned[1]);
}

nb::object Call(const nb::object& method, bool versioned) {
  const nb::object none = nb::steal(PyTuple_New(0));
  nb::dict keywords;
  if (versioned) keywords["max_version"] = nb::make_tuple(1, 0);
  return nb::steal(PyObject_Call(method.ptr(), none.ptr(), keywords.ptr()));
}

void CheckTensor(const char* name, const nb::dlpack::dltensor& t) {
  constexpr int32_t kMostAxes = 64;
  if (t.device.device_type != nb::device::cpu::value) {
    throw nb::type_error((std::string(name) +
                          " is not in the memory of the CPU, where Locus runs: "
                          "copy it there first")
                             .c_str());
  }
  if (t.ndim < 0 || t.ndim > kMostAxes || (t.ndim > 0 && !t.shape)) {
    Refuse(name, "is a DLPack tensor of " + std::to_string(t.ndim) + " axes" +
                     (t.shape ? "" : " and no sizes"));
  }
  int64_t reach = t.dtype.bits / 8 + 1;
  for (int32_t axis = 0; axis < t.ndim; ++axis) {
    const int64_t size = t.shape[axis];
    if (size < 0) {
      Refuse(name, "is a DLPack tensor with the size " + std::to_string(size));
    }
    const int64_t step = t.strides ? t.strides[axis] : 1;
    int64_t span = 0;
    if (__builtin_mul_overflow(size, step, &span) ||
        __builtin_mul_overflow(span, t.dtype.bits / 8 + 1, &span) ||
        __builtin_mul_overflow(reach, size > 1 ? size : 1, &reach)) {
      Refuse(name, "is a DLPack tensor larger than memory");
    }
  }
}

}  // namespace

nb::object DlpackCapsule(const char* name, nb::handle object, bool writable) {
  const nb::object method = nb::getattr(object, "__dlpack__", nb::none());
  if (method.is_none() || PyType_Check(object.ptr())) return {};
  // Read-only memory refuses the plain kind (BufferError), and those who came
  // before the versions refuse the other (TypeError).
  nb::object capsule = Call(method, writable);
  if (!capsule.is_valid() && (PyErr_ExceptionMatches(PyExc_BufferError) ||
                              PyErr_ExceptionMatches(PyExc_TypeError))) {
    PyErr_Clear();
    capsule = Call(method, !writable);
  }
  if (!capsule.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_Exception) ||
        PyErr_ExceptionMatches(PyExc_MemoryError)) {
      throw nb::python_error();
    }
    throw nb::type_error(
        (std::string(name) + "'s __dlpack__ failed: " + TakeError()).c_str());
  }
  if (PyCapsule_IsValid(capsule.ptr(), kPlain) != 0) {
    CheckTensor(name, *static_cast<nb::dlpack::dltensor*>(
                          PyCapsule_GetPointer(capsule.ptr(), kPlain)));
  } else if (PyCapsule_IsValid(capsule.ptr(), kVersioned) != 0) {
    const auto* head = static_cast<VersionedHead*>(
        PyCapsule_GetPointer(capsule.ptr(), kVersioned));
    if (head->major != 1) {
      Refuse(name, "speaks version " + std::to_string(head->major) +
                       " of DLPack; version 1 is known");
    }
    CheckTensor(name, head->tensor);
  } else {
    throw nb::type_error((std::string(name) +
                          "'s __dlpack__ must give a new DLPack capsule, got " +
                          Shown(capsule))
                             .c_str());
  }
  return capsule;
}

}  // namespace locus::python
