// Scores are in the domain of exp2: every logit is multiplied by log2(e).
#ifndef LOCUS_SRC_KERNELS_TERMS_LOG2_DOMAIN_H_
#define LOCUS_SRC_KERNELS_TERMS_LOG2_DOMAIN_H_

#include <algorithm>
#include <cmath>

namespace locus {

constexpr double kLog2E = 1.4426950408889634;

// A bias in that domain. Finite values stay finite: they are clamped to half of
// float32's range, which leaves room for the dot product and for the difference
// of two scores.
inline float Log2Bias(double bias) {
  constexpr double kLargest = 1.7e38;
  const double x = kLog2E * bias;
  return static_cast<float>(
      std::isinf(bias) ? x : std::clamp(x, -kLargest, kLargest));
}

}  // namespace locus

#endif  // LOCUS_SRC_KERNELS_TERMS_LOG2_DOMAIN_H_
