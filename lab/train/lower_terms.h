// An encoding's terms as tensors of libtorch, with gradients to its parameters.
#ifndef LOCUS_LAB_TRAIN_LOWER_TERMS_H_
#define LOCUS_LAB_TRAIN_LOWER_TERMS_H_

#include <torch/types.h>

#include <array>
#include <cstdint>

#include "lab/train/attention.h"
#include "locus/terms.h"

namespace locus::lab {

// The arrays of terms. A bias has one of them (its table), two (the ramps past
// and future) or four (distance, row_gain, base and slope of a profile).
enum class TermArray : uint8_t {
  kScale,
  kTheta,
  kQRows,
  kKRows,
  kQTable,
  kKTable,
  kBias,
  kBias1,
  kBias2,
  kBias3,
  kVTable,
};
inline constexpr size_t kTermArrays = 11;

// Tensors by TermArray; those of absent terms are undefined.
class TermTensors {
 public:
  torch::Tensor& operator[](TermArray array) {
    return tensors_[static_cast<size_t>(array)];
  }
  const torch::Tensor& operator[](TermArray array) const {
    return tensors_[static_cast<size_t>(array)];
  }
  auto begin() { return tensors_.begin(); }
  auto end() { return tensors_.end(); }

 private:
  std::array<torch::Tensor, kTermArrays> tensors_;
};

// The terms of the encoding for calls of a shape, in the given type.
// Differentiable in the parameters, through Encoding::PullBack.
TermTensors LowerTerms(const EncodingValues& encoding, const Shape& shape,
                       torch::ScalarType type);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_LOWER_TERMS_H_
