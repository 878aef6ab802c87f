#include "lab/train/lower_terms.h"

#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>
#include <vector>

#include "lab/train/interop.h"

namespace locus::lab {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

torch::Tensor Row(const std::vector<double>& values) {
  return torch::tensor(values, torch::kDouble);
}

torch::Tensor Array(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  const Tensor whole = tensor.To(DType::kF64);
  return ToTorch(whole).clone();
}

void AddBias(const Bias& bias, TermTensors& out) {
  if (const auto* table = std::get_if<BiasTable>(&bias)) {
    out[TermArray::kBias] = Array(table->values);
  } else if (const auto* ramp = std::get_if<BiasRamp>(&bias)) {
    out[TermArray::kBias] = Row(ramp->past);
    out[TermArray::kBias1] = Row(ramp->future);
  } else {
    const auto& profile = std::get<BiasProfile>(bias);
    out[TermArray::kBias] = Row(profile.distance);
    out[TermArray::kBias1] = Row(profile.row_gain);
    out[TermArray::kBias2] = Array(profile.base);
    out[TermArray::kBias3] = Array(profile.slope);
  }
}

TermTensors ArraysOf(const Terms& terms, torch::ScalarType type) {
  TermTensors out;
  out[TermArray::kScale] = Array(terms.scale.rows);
  if (terms.rotate) out[TermArray::kTheta] = Row(terms.rotate->theta);
  if (terms.extra_dot) {
    out[TermArray::kQRows] = Array(terms.extra_dot->q_rows);
    out[TermArray::kKRows] = Array(terms.extra_dot->k_rows);
  }
  if (terms.q_table) out[TermArray::kQTable] = Array(terms.q_table->rows);
  if (terms.k_table) out[TermArray::kKTable] = Array(terms.k_table->rows);
  if (terms.bias) AddBias(*terms.bias, out);
  if (terms.v_table) out[TermArray::kVTable] = Array(terms.v_table->rows);
  for (torch::Tensor& tensor : out) {
    if (tensor.defined()) tensor = tensor.to(type);
  }
  return out;
}

Tensor ArrayGrad(const torch::Tensor& grad) {
  return ToLocus(grad.to(torch::kDouble).contiguous());
}

std::vector<double> RowGrad(const torch::Tensor& grad) {
  const torch::Tensor row = grad.to(torch::kDouble).contiguous();
  const double* first = row.data_ptr<double>();
  return {first, first + row.numel()};
}

// Converts the gradients of arrays to those of terms. An unused array has none,
// and its term keeps zeros.
TermGrads GradsOf(const Terms& terms, const TermTensors& d) {
  TermGrads grads = ZeroGrads(terms);
  const auto array = [&](TermArray which, Tensor& grad) {
    if (d[which].defined()) grad = ArrayGrad(d[which]);
  };
  const auto row = [&](TermArray which, std::vector<double>& grad) {
    if (d[which].defined()) grad = RowGrad(d[which]);
  };
  array(TermArray::kScale, grads.scale);
  if (grads.rotate) row(TermArray::kTheta, grads.rotate->theta);
  if (grads.extra_dot) {
    array(TermArray::kQRows, grads.extra_dot->q_rows);
    array(TermArray::kKRows, grads.extra_dot->k_rows);
  }
  array(TermArray::kQTable, grads.q_table);
  array(TermArray::kKTable, grads.k_table);
  array(TermArray::kVTable, grads.v_table);
  if (!grads.bias) return grads;
  if (auto* table = std::get_if<BiasTableGrads>(&*grads.bias)) {
    array(TermArray::kBias, table->values);
  } else if (auto* ramp = std::get_if<BiasRampGrads>(&*grads.bias)) {
    row(TermArray::kBias, ramp->past);
    row(TermArray::kBias1, ramp->future);
  } else {
    auto& profile = std::get<BiasProfileGrads>(*grads.bias);
    row(TermArray::kBias, profile.distance);
    row(TermArray::kBias1, profile.row_gain);
    array(TermArray::kBias2, profile.base);
    array(TermArray::kBias3, profile.slope);
  }
  return grads;
}

// The arguments of a call of Lower, and its result.
struct Lowering : torch::CustomClassHolder {
  std::shared_ptr<const Encoding> encoding;
  Shape shape;
  Terms terms;
  torch::ScalarType type = torch::kFloat;
};

// Outputs are the defined ones of TermTensors, in their order.
class Lower : public torch::autograd::Function<Lower> {
 public:
  static variable_list forward(AutogradContext* context,
                               const c10::intrusive_ptr<Lowering>& lowering,
                               at::TensorList params) {
    context->saved_data["lowering"] = c10::IValue::make_capsule(lowering);
    context->saved_data["type"] = static_cast<int64_t>(params[0].scalar_type());
    variable_list outputs;
    for (torch::Tensor& tensor : ArraysOf(lowering->terms, lowering->type)) {
      if (tensor.defined()) outputs.push_back(tensor);
    }
    return outputs;
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& d_outs) {
    const auto lowering = c10::static_intrusive_pointer_cast<Lowering>(
        context->saved_data["lowering"].toCapsule());
    const auto type =
        static_cast<torch::ScalarType>(context->saved_data["type"].toInt());
    TermTensors d;
    size_t next = 0;
    auto at = d.begin();
    for (torch::Tensor& tensor : ArraysOf(lowering->terms, torch::kFloat)) {
      if (tensor.defined()) *at = d_outs[next++];
      ++at;
    }
    variable_list result = {{}};
    for (const Param& param : lowering->encoding->PullBack(
             lowering->shape, GradsOf(lowering->terms, d))) {
      result.push_back(Array(param.value).to(type));
    }
    return result;
  }
};

}  // namespace

TermTensors LowerTerms(const EncodingValues& encoding, const Shape& shape,
                       torch::ScalarType type) {
  auto lowering = c10::make_intrusive<Lowering>();
  lowering->encoding = encoding.Build();
  lowering->shape = shape;
  lowering->terms = lowering->encoding->Lower(shape).terms;
  lowering->type = type;
  TermTensors arrays = ArraysOf(lowering->terms, type);
  if (encoding.params.empty()) return arrays;
  const variable_list outputs =
      Lower::apply(lowering, at::TensorList(encoding.params));
  size_t next = 0;
  for (torch::Tensor& tensor : arrays) {
    if (tensor.defined()) tensor = outputs[next++];
  }
  return arrays;
}

}  // namespace locus::lab
