// The parts of the module, one a file.
#ifndef LOCUS_PYTHON_SRC_BIND_H_
#define LOCUS_PYTHON_SRC_BIND_H_

#include <nanobind/nanobind.h>

namespace locus::python {

void BindEncodings(nanobind::module_& m);  // the classes
void BindTerms(nanobind::module_& m);      // Terms, OffsetBias
void BindCustom(nanobind::module_& m);     // Custom
void BindList(nanobind::module_& m);       // encodings, check, explain
void BindAttention(nanobind::module_& m);
void BindRotary(nanobind::module_& m);
void BindKvCache(nanobind::module_& m);
void BindModels(nanobind::module_& m);  // from_config

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_BIND_H_
