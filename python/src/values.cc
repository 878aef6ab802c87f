#include "values.h"

#include <algorithm>
#include <climits>

namespace locus::python {
namespace {

// UTF-8 of a str without control characters; `otherwise` where there is none.
std::string Utf8(PyObject* text, const char* otherwise) {
  Py_ssize_t size = 0;
  const char* data = text != nullptr && PyUnicode_Check(text)
                         ? PyUnicode_AsUTF8AndSize(text, &size)
                         : nullptr;
  if (data == nullptr) {
    PyErr_Clear();
    return otherwise;
  }
  return OneLine({data, static_cast<size_t>(size)});
}

// At most some 60 characters of a str; nothing of what is none.
std::string Short(const nb::object& text) {
  constexpr Py_ssize_t kLongest = 60;
  if (!text.is_valid() || PyUnicode_GetLength(text.ptr()) <= kLongest) {
    return Utf8(text.ptr(), "");
  }
  const nb::object start =
      nb::steal(PyUnicode_Substring(text.ptr(), 0, kLongest));
  return Utf8(start.ptr(), "") + "...";
}

// repr(value), or nothing if that fails.
std::string Repr(PyObject* value) {
  return Short(nb::steal(PyObject_Repr(value)));
}

std::string Attribute(PyTypeObject* type, const char* name) {
  const nb::object value = nb::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
  return Utf8(value.ptr(), "");
}

// The integer of an object with __index__; an invalid object if it has none.
nb::object Index(nb::handle value) {
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) return {};
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    // Arrays have the method, and refuse unless they are one integer.
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
  }
  return index;
}

bool IsNumpyBool(nb::handle value) {
  const std::string name = TypeName(value);
  return name == "numpy.bool" || name == "numpy.bool_";
}

}  // namespace

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

void Raise(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw nb::python_error();
}

void RefuseType(const std::string& name, const char* wanted, nb::handle value) {
  throw nb::type_error(
      (name + " must be " + wanted + ", got " + Shown(value)).c_str());
}

std::string TypeName(nb::handle object) {
  PyTypeObject* const type = Py_TYPE(object.ptr());
  const std::string module = Attribute(type, "__module__");
  const std::string name = Attribute(type, "__qualname__");
  return module.empty() || module == "builtins" ? name : module + "." + name;
}

std::string Line(nb::handle object) {
  std::string text = Short(nb::steal(PyObject_Str(object.ptr())));
  PyErr_Clear();
  return text;
}

std::string Shown(nb::handle value) {
  PyObject* const p = value.ptr();
  if (value.is_none()) return "None";
  std::string text;
  if (PyBool_Check(p) || PyLong_CheckExact(p) || PyFloat_CheckExact(p)) {
    text = Repr(p);
  } else if (PyUnicode_CheckExact(p)) {
    const nb::object start = nb::steal(PyUnicode_Substring(p, 0, 60));
    if (start.is_valid()) text = "str " + Repr(start.ptr());
  }
  PyErr_Clear();
  return text.empty() ? TypeName(value) : text;
}

bool FlagOf(const char* name, nb::handle value) {
  if (value.ptr() == Py_True) return true;
  if (value.ptr() == Py_False) return false;
  if (!IsNumpyBool(value)) RefuseType(name, "True or False", value);
  return PyObject_IsTrue(value.ptr()) == 1;
}

int64_t IntOf(const std::string& name, nb::handle value) {
  const nb::object index = Index(value);
  if (!index.is_valid()) RefuseType(name, "an integer", value);
  int overflow = 0;
  const int64_t result = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0) {
    Raise(PyExc_OverflowError,
          name + " must fit in 64 bits, got " + Shown(index));
  }
  return result;
}

double RealOf(const std::string& name, nb::handle value) {
  PyObject* const p = value.ptr();
  if (PyFloat_Check(p)) return PyFloat_AsDouble(p);
  // NumPy's complex numbers drop a part of themselves as floats.
  const bool number = !PyBool_Check(p) && PyNumber_Check(p) != 0 &&
                      !PyComplex_Check(p) && !IsNumpyBool(value) &&
                      !TypeName(value).starts_with("numpy.c");
  if (!number) RefuseType(name, "a number", value);
  const double result = PyFloat_AsDouble(p);
  if (result == -1.0 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
      PyErr_Clear();
      Raise(PyExc_OverflowError,
            name + " must fit in a float, got " + Shown(value));
    }
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      RefuseType(name, "a number", value);
    }
    throw nb::python_error();
  }
  return result;
}

std::string TextOf(const std::string& name, nb::handle value) {
  if (!PyUnicode_Check(value.ptr())) RefuseType(name, "a string", value);
  Py_ssize_t size = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (data == nullptr) {
    PyErr_Clear();
    throw nb::value_error(
        (name + " is not valid Unicode: " + Shown(value)).c_str());
  }
  return {data, static_cast<size_t>(size)};
}

std::pair<int64_t, int64_t> IntPairOf(const char* name, nb::handle value) {
  PyObject* const p = value.ptr();
  const bool tuple = PyTuple_Check(p) != 0;
  if (!(tuple && PyTuple_Size(p) == 2) &&
      !(PyList_Check(p) != 0 && PyList_Size(p) == 2)) {
    RefuseType(name, "a pair of integers", value);
  }
  const auto item = [&](Py_ssize_t i) {
    return nb::borrow(tuple ? PyTuple_GetItem(p, i) : PyList_GetItem(p, i));
  };
  const nb::object first = item(0), second = item(1);
  return {IntOf(std::string(name) + "[0]", first),
          IntOf(std::string(name) + "[1]", second)};
}

int ThreadsOf(nb::handle threads) {
  if (!threads.is_valid() || threads.is_none()) return 0;
  const int64_t count = IntOf("threads", threads);
  if (count < 1) {
    throw nb::value_error(
        ("threads must be at least 1, or None for all of the machine's, got " +
         std::to_string(count))
            .c_str());
  }
  return static_cast<int>(std::min<int64_t>(count, INT_MAX));
}

}  // namespace locus::python
