// Views of libtorch tensors as Locus tensors, and vice versa.
#ifndef LOCUS_LAB_TRAIN_INTEROP_H_
#define LOCUS_LAB_TRAIN_INTEROP_H_

#include <torch/types.h>

#include <vector>

#include "locus/encoding.h"
#include "locus/tensor.h"

namespace locus::lab {

// A view that keeps `tensor` alive: float32 or float64, any strides.
Tensor ToLocus(const torch::Tensor& tensor);
std::vector<Tensor> ToLocus(at::TensorList tensors);

// A view that keeps `tensor` alive: float32 or float64, contiguous.
torch::Tensor ToTorch(const Tensor& tensor);

// The values of parameters, or their gradients, as float32 copies.
std::vector<torch::Tensor> ToTorch(const std::vector<Param>& params);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_INTEROP_H_
