#include "lab/train/interop.h"

#include <memory>

namespace locus::lab {

Tensor ToLocus(const torch::Tensor& tensor) {
  TORCH_INTERNAL_ASSERT(tensor.scalar_type() == torch::kFloat ||
                        tensor.scalar_type() == torch::kDouble);
  const DType dtype =
      tensor.scalar_type() == torch::kFloat ? DType::kF32 : DType::kF64;
  return Tensor::Borrow(dtype, tensor.sizes().vec(), tensor.strides().vec(),
                        tensor.data_ptr(),
                        std::make_shared<torch::Tensor>(tensor.detach()));
}

std::vector<Tensor> ToLocus(at::TensorList tensors) {
  std::vector<Tensor> views;
  for (const torch::Tensor& tensor : tensors) views.push_back(ToLocus(tensor));
  return views;
}

torch::Tensor ToTorch(const Tensor& tensor) {
  const bool single = tensor.dtype() == DType::kF32;
  TORCH_INTERNAL_ASSERT(single || tensor.dtype() == DType::kF64);
  TORCH_INTERNAL_ASSERT(tensor.IsContiguous());
  const void* data = single ? static_cast<const void*>(tensor.Data<float>())
                            : tensor.Data<double>();
  return torch::from_blob(
      const_cast<void*>(data), tensor.shape(), [tensor](void*) {},
      torch::TensorOptions().dtype(single ? torch::kFloat : torch::kDouble));
}

std::vector<torch::Tensor> ToTorch(const std::vector<Param>& params) {
  std::vector<torch::Tensor> values;
  for (const Param& param : params) {
    values.push_back(ToTorch(param.value.To(DType::kF32)).clone());
  }
  return values;
}

}  // namespace locus::lab
