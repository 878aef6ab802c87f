// The native module locus_attn._locus.
#include <nanobind/nanobind.h>

#include <new>
#include <stdexcept>
#include <string>

#include "arrays.h"
#include "bind.h"
#include "locus/error.h"
#include "locus/version.h"
#include "values.h"

namespace {

constexpr const char* kNoMemory =
    "there is not enough memory for this call: give it less at a time";

// A message whose words of the input neither break it nor drown it.
std::string Sentence(const char* what) {
  constexpr size_t kLongest = 500, kStart = 300, kEnd = 150;
  std::string text = locus::python::OneLine(what);
  if (text.size() <= kLongest) return text;
  // Not in the middle of a character of UTF-8.
  const auto whole = [&](size_t at) {
    while ((text[at] & 0xC0) == 0x80) ++at;
    return at;
  };
  return text.substr(0, whole(kStart)) + " ... " +
         text.substr(whole(text.size() - kEnd));
}

}  // namespace

NB_MODULE(_locus, m) {
  namespace nb = nanobind;
  m.doc() = "Positional encodings for transformer attention, fused on the CPU.";
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const locus::Error& error) {
      PyErr_SetString(PyExc_ValueError, Sentence(error.what()).c_str());
    } catch (const std::bad_alloc&) {
      PyErr_SetString(PyExc_MemoryError, kNoMemory);
    } catch (const std::length_error&) {
      // Of a container asked for more than any memory holds.
      PyErr_SetString(PyExc_MemoryError, kNoMemory);
    }
  });
  m.attr("__version__") = locus::Version();
  m.attr("_NO_MEMORY") = kNoMemory;
  locus::python::BindRawTensor(m);
  locus::python::BindEncodings(m);
  locus::python::BindTerms(m);
  locus::python::BindCustom(m);
  locus::python::BindList(m);
  locus::python::BindAttention(m);
  locus::python::BindRotary(m);
  locus::python::BindKvCache(m);
  locus::python::BindModels(m);
}
