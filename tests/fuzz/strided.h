// Tensors with any strides, and NaN in the gaps to reveal invalid reads.
#ifndef LOCUS_TESTS_FUZZ_STRIDED_H_
#define LOCUS_TESTS_FUZZ_STRIDED_H_

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>

#include "fuzz/random.h"
#include "locus/tensor.h"

namespace locus::testing {

// The same numbers as the contiguous `from`, with another memory layout: axes
// in any order, gaps between rows and between elements, reversed axes.
inline Tensor Strided(const Tensor& from, Random& random) {
  const auto rank = static_cast<size_t>(from.rank());
  if (random.OneIn(3) || from.NumElements() == 0) return from;
  std::vector<size_t> order(rank);  // from the innermost axis outwards
  std::iota(order.begin(), order.end(), 0);
  std::reverse(order.begin(), order.end());
  if (random.OneIn(2)) std::swap(order[1], order[2]);  // tokens outside heads
  if (random.OneIn(8)) std::swap(order[0], order[1]);  // channels outside
  std::vector<int64_t> strides(rank);
  int64_t step = random.OneIn(6) ? 2 : 1;
  for (size_t axis : order) {
    strides[axis] = step;
    step *= from.shape()[axis];
    if (random.OneIn(3)) step += random.Draw(1, 5);
  }
  int64_t first = 0;
  for (size_t axis = 0; axis < rank; ++axis) {
    if (!random.OneIn(10)) continue;
    first += (from.shape()[axis] - 1) * strides[axis];
    strides[axis] = -strides[axis];
  }
  Tensor storage =
      Tensor::From(
          {step}, std::vector<double>(static_cast<size_t>(step),
                                      std::numeric_limits<double>::quiet_NaN()))
          .To(from.dtype());
  const auto bytes = static_cast<size_t>(DTypeBytes(from.dtype()));
  auto* to = static_cast<char*>(const_cast<void*>(storage.Raw())) +
             first * static_cast<int64_t>(bytes);
  const auto* source = static_cast<const char*>(from.Raw());
  std::vector<int64_t> index(rank, 0);
  for (int64_t n = 0; n < from.NumElements(); ++n, source += bytes) {
    int64_t at = 0;
    for (size_t axis = 0; axis < rank; ++axis)
      at += index[axis] * strides[axis];
    std::memcpy(to + at * static_cast<int64_t>(bytes), source, bytes);
    for (size_t axis = rank; axis-- > 0;) {
      if (++index[axis] < from.shape()[axis]) break;
      index[axis] = 0;
    }
  }
  return Tensor::Borrow(from.dtype(), from.shape(), strides, to,
                        std::make_shared<Tensor>(storage));
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_FUZZ_STRIDED_H_
