// The native module locus._locus.
#include <nanobind/nanobind.h>

#include "bind.h"
#include "locus/error.h"
#include "locus/version.h"

NB_MODULE(_locus, m) {
  namespace nb = nanobind;
  m.doc() = "Positional encodings for transformer attention, fused on the CPU.";
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const locus::Error& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });
  m.attr("__version__") = locus::Version();
  locus::python::BindEncodings(m);
  locus::python::BindRotations(m);
  locus::python::BindList(m);
  locus::python::BindAttention(m);
  locus::python::BindRotary(m);
  locus::python::BindKvCache(m);
  locus::python::BindModels(m);
  locus::python::BindThreads(m);
}
