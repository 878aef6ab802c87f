// The trainable numbers of a model: named tensors in one flat buffer.
//
// Summing gradients over ranks, or saving, is then one pass over one array.
#ifndef LOCUS_LAB_TRAIN_PARAMETERS_H_
#define LOCUS_LAB_TRAIN_PARAMETERS_H_

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace locus::lab {

// How a parameter starts.
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
  bool decays = false;  // by weight decay
  double rate = 1.0;    // times the learning rate
};

class ParameterSet {
 public:
  // Random values depend on the seed and the parameter's name alone, so models
  // that share a name share its start.
  ParameterSet(std::vector<ParameterInfo> infos, uint64_t seed);

  const torch::Tensor& operator[](const std::string& name) const {
    return tensors_.at(name);
  }
  const std::vector<ParameterInfo>& infos() const { return infos_; }
  // Every number, in the order of infos(): float32 [size]. Writing to it
  // changes the parameters.
  const torch::Tensor& flat() const { return flat_; }
  // Their gradients, likewise; backward passes add to it.
  const torch::Tensor& flat_grad() const { return flat_grad_; }

 private:
  std::vector<ParameterInfo> infos_;
  torch::Tensor flat_, flat_grad_;
  std::map<std::string, torch::Tensor> tensors_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_PARAMETERS_H_
