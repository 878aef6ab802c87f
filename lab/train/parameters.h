// The trainable parameters of a model: named tensors in one flat buffer.
//
// Summing gradients over ranks, or saving, is then a single pass over one
// array.
#ifndef LOCUS_LAB_TRAIN_PARAMETERS_H_
#define LOCUS_LAB_TRAIN_PARAMETERS_H_

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace locus::lab {

// The initial values of a parameter.
struct Init {
  enum class Kind : uint8_t { kConstant, kNormal, kUniform, kValues };
  Kind kind = Kind::kConstant;
  double size = 0;  // the constant, the deviation, or the bound on both sides
  std::vector<double> values = {};

  static Init Constant(double value) { return {Kind::kConstant, value, {}}; }
  static Init Normal(double deviation) {
    return {Kind::kNormal, deviation, {}};
  }
  static Init Uniform(double bound) { return {Kind::kUniform, bound, {}}; }
  static Init Values(std::vector<double> values) {
    return {Kind::kValues, 0, std::move(values)};
  }
};

struct ParameterInfo {
  std::string name = {};
  std::vector<int64_t> shape = {};
  Init init = {};
  bool decays = false;  // subject to weight decay
  double rate = 1.0;    // multiplies the learning rate
};

class ParameterSet {
 public:
  // Random values depend only on the seed and the parameter's name, so models
  // with a common name share its initial values.
  ParameterSet(std::vector<ParameterInfo> infos, uint64_t seed);

  const torch::Tensor& operator[](const std::string& name) const {
    return tensors_.at(name);
  }
  const std::vector<ParameterInfo>& infos() const { return infos_; }
  // All parameters, in the order of infos(): float32 [size]. Writing to it
  // changes them.
  const torch::Tensor& flat() const { return flat_; }
  // Their gradients, in the same order; backward passes add to it.
  const torch::Tensor& flat_grad() const { return flat_grad_; }

 private:
  std::vector<ParameterInfo> infos_;
  torch::Tensor flat_, flat_grad_;
  std::map<std::string, torch::Tensor> tensors_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_PARAMETERS_H_
