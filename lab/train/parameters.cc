#include "lab/train/parameters.h"

#include <utility>

#include "lab/tasks/random.h"

namespace locus::lab {
namespace {

double Draw(const Init& init, size_t i, Random& random) {
  switch (init.kind) {
    case Init::Kind::kConstant:
      return init.size;
    case Init::Kind::kNormal:
      return init.size * random.Normal();
    case Init::Kind::kUniform:
      return init.size * (2.0 * random.Uniform() - 1.0);
    case Init::Kind::kValues:
      return init.values[i];
  }
  return 0;
}

}  // namespace

ParameterSet::ParameterSet(std::vector<ParameterInfo> infos, uint64_t seed)
    : infos_(std::move(infos)) {
  int64_t size = 0;
  for (const ParameterInfo& info : infos_)
    size += c10::multiply_integers(info.shape);
  flat_ = torch::zeros({size});
  flat_grad_ = torch::zeros({size});
  float* at = flat_.data_ptr<float>();
  int64_t start = 0;
  for (const ParameterInfo& info : infos_) {
    const int64_t count = c10::multiply_integers(info.shape);
    Random random(info.name, {seed});
    for (int64_t i = 0; i < count; ++i) {
      at[start + i] =
          static_cast<float>(Draw(info.init, static_cast<size_t>(i), random));
    }
    torch::Tensor view = flat_.narrow(0, start, count).view(info.shape);
    view = view.detach().requires_grad_(true);
    view.mutable_grad() = flat_grad_.narrow(0, start, count).view(info.shape);
    tensors_.emplace(info.name, view);
    start += count;
  }
}

}  // namespace locus::lab
