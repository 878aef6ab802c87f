// Whether the numbers of a table are finite.
#ifndef LOCUS_PYTHON_SRC_FINITE_H_
#define LOCUS_PYTHON_SRC_FINITE_H_

#include <optional>

#include "locus/tensor.h"

namespace locus::python {

// An element that is NaN or infinite, if there is one. Looks at an element of
// memory once, however often strides repeat it.
std::optional<double> NotFinite(const Tensor& x);

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_FINITE_H_
