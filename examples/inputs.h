// What the examples share: made-up inputs, and how far two results differ.
#ifndef LOCUS_EXAMPLES_INPUTS_H_
#define LOCUS_EXAMPLES_INPUTS_H_

#include <locus/locus.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

// Normal numbers in the place of what a layer's projections would give:
// [1, heads, length, head_dim].
inline locus::Tensor RandomTensor(int64_t heads, int64_t length,
                                  int64_t head_dim, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(heads * length * head_dim));
  for (float& value : x) value = normal(engine);
  return locus::Tensor::From({1, heads, length, head_dim}, std::move(x));
}

// Of tensors of one shape.
inline double LargestDifference(const locus::Tensor& a,
                                const locus::Tensor& b) {
  const std::vector<double> x = a.ToVector(), y = b.ToVector();
  double largest = 0.0;
  for (size_t n = 0; n < x.size(); ++n) {
    largest = std::max(largest, std::abs(x[n] - y[n]));
  }
  return largest;
}

#endif  // LOCUS_EXAMPLES_INPUTS_H_
