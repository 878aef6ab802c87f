// Lists of numbers, and integers from lists or arrays.
#ifndef LOCUS_PYTHON_SRC_NUMBERS_H_
#define LOCUS_PYTHON_SRC_NUMBERS_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "locus/tensor.h"

namespace locus::python {

namespace nb = nanobind;

// Whether an object is converted number by number: a list, a tuple, a number,
// or what has no DLPack and turns itself into a list.
bool IsNumberList(nb::handle object);

// A list of numbers, nested to any rank, or one number: float64.
Tensor RealList(const char* name, nb::handle list);
// The same in one row, from arrays too; None is empty. For numbers of heads or
// channels: refuses more than kMostInRow before it reads any.
inline constexpr int64_t kMostInRow = int64_t{1} << 20;
std::vector<double> RealRow(const char* name, nb::handle values);

using Shapes = std::vector<std::vector<int64_t>>;

// Integers from a list or an array of integers of one of the shapes, of rank 1
// or 2; -1 stands for any size. Raises MemoryError before it reads an array if
// these and bytes_each, what will be made of each, are more than there is.
std::vector<int64_t> Integers(const char* name, nb::handle values,
                              const Shapes& shapes, int64_t bytes_each = 0);
// The same, where None gives none.
std::vector<int64_t> IntegersOrNone(const char* name, nb::handle values,
                                    const Shapes& shapes);
// The same as an array of NumPy, of rank 1 or 2.
nb::object IntegerArray(const char* name, nb::handle values);
// int64, shared with the result.
nb::object ToNumpy(std::vector<int64_t> values);

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_NUMBERS_H_
