// Plain values of Python: numbers, flags, strings; refused in one sentence that
// names the argument and what was given.
#ifndef LOCUS_PYTHON_SRC_VALUES_H_
#define LOCUS_PYTHON_SRC_VALUES_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <utility>

namespace locus::python {

namespace nb = nanobind;

// Raises an exception that nanobind has no class for, such as OverflowError.
[[noreturn]] void Raise(PyObject* type, const std::string& text);
// TypeError: "{name} must be {wanted}, got {value}".
[[noreturn]] void RefuseType(const std::string& name, const char* wanted,
                             nb::handle value);

// "numpy.ndarray".
std::string TypeName(nb::handle object);
// Text without line breaks and other control characters.
std::string OneLine(std::string text);
// str(object) in one short line.
std::string Line(nb::handle object);
// A value in one short line: "1.5", "str 'abc'", "numpy.ndarray".
std::string Shown(nb::handle value);

// True, False or NumPy's.
bool FlagOf(const char* name, nb::handle value);
// Whatever has __index__, but True and False, which are never a count.
int64_t IntOf(const std::string& name, nb::handle value);
// Whatever has __float__ or __index__, but True and False.
double RealOf(const std::string& name, nb::handle value);
std::string TextOf(const std::string& name, nb::handle value);
// Two integers in a tuple or list.
std::pair<int64_t, int64_t> IntPairOf(const char* name, nb::handle value);
// None: 0, as many as the machine has.
int ThreadsOf(nb::handle threads);

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_VALUES_H_
