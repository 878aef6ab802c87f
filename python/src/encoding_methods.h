// What some encodings can do beyond the constructor that their fields give.
#ifndef LOCUS_PYTHON_SRC_ENCODING_METHODS_H_
#define LOCUS_PYTHON_SRC_ENCODING_METHODS_H_

#include <nanobind/nanobind.h>

#include "locus/encodings/alibi.h"
#include "locus/encodings/learned.h"
#include "locus/encodings/rope.h"
#include "locus/encodings/transformer_xl.h"

namespace locus::python {

namespace nb = nanobind;

void AddMethods(nb::class_<Learned, Encoding>& learned);
void AddMethods(nb::class_<TransformerXL, Encoding>& xl);
void AddMethods(nb::class_<Alibi, Encoding>& alibi);
void AddMethods(nb::class_<Rope, Encoding>& rope);

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_ENCODING_METHODS_H_
