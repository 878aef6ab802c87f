#include "lab/train/attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <utility>
#include <vector>

#include "lab/train/interop.h"
#include "locus/attention.h"

namespace locus::lab {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What the backward pass needs besides tensors.
struct Saved : torch::CustomClassHolder {
  std::shared_ptr<const Encoding> encoding;
  AttentionCall call;
};

void SaveContext(AutogradContext* context,
                 std::shared_ptr<const Encoding> encoding,
                 const AttentionCall& call) {
  auto saved = c10::make_intrusive<Saved>();
  saved->encoding = std::move(encoding);
  saved->call = call;
  context->saved_data["call"] = c10::IValue::make_capsule(std::move(saved));
}

c10::intrusive_ptr<Saved> LoadContext(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Saved>(
      context->saved_data["call"].toCapsule());
}

AttentionOptions Options(const AttentionCall& call) {
  return {.causal = call.causal, .threads = call.threads, .return_lse = true};
}

// libtorch passes arguments other than tensors through, and expects a gradient
// for each, defined or not: they come first, tensors after them.
class Attend : public torch::autograd::Function<Attend> {
 public:
  // tensors: q, k, v, then the parameters.
  static torch::Tensor forward(AutogradContext* context,
                               const std::shared_ptr<const Encoding>& encoding,
                               const AttentionCall& call,
                               at::TensorList tensors) {
    const AttentionResult result =
        Attention(ToLocus(tensors[0]), ToLocus(tensors[1]), ToLocus(tensors[2]),
                  *encoding, Options(call));
    torch::Tensor out = ToTorch(result.out);
    context->save_for_backward(
        {tensors[0], tensors[1], tensors[2], out, ToTorch(result.lse)});
    SaveContext(context, encoding, call);
    return out;
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& d_outs) {
    const variable_list kept = context->get_saved_variables();
    const auto saved = LoadContext(context);
    const AttentionResult forward = {.out = ToLocus(kept[3]),
                                     .lse = ToLocus(kept[4])};
    const EncodingGrads grads = AttentionBackward(
        ToLocus(d_outs[0]), ToLocus(kept[0]), ToLocus(kept[1]),
        ToLocus(kept[2]), forward, *saved->encoding, Options(saved->call));
    variable_list result = {{}, {}};
    result.push_back(ToTorch(grads.d_q));
    result.push_back(ToTorch(grads.d_k));
    result.push_back(ToTorch(grads.d_v));
    for (torch::Tensor& d_param : ToTorch(grads.params)) {
      result.push_back(std::move(d_param));
    }
    return result;
  }
};

std::vector<int64_t> FirstPositions(int64_t length) {
  std::vector<int64_t> positions(static_cast<size_t>(length));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

class Embed : public torch::autograd::Function<Embed> {
 public:
  static torch::Tensor forward(AutogradContext* context,
                               const std::shared_ptr<const Encoding>& encoding,
                               int64_t length, at::TensorList /*params*/) {
    SaveContext(context, encoding, {});
    context->saved_data["length"] = length;
    const Tensor rows = encoding->Embed(FirstPositions(length));
    return ToTorch(rows.To(DType::kF32)).clone();
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& d_outs) {
    const int64_t length = context->saved_data["length"].toInt();
    const auto saved = LoadContext(context);
    const Shape shape =
        Shape::SelfAttention(/*heads=*/1, d_outs[0].size(1), length);
    const InputAdd input = *saved->encoding->Lower(shape).terms.input_add;
    torch::Tensor d_table = torch::zeros(input.table.shape(), torch::kDouble);
    d_table.narrow(0, -input.first_position, length).copy_(d_outs[0]);
    TermGrads grads;
    grads.input_add = ToLocus(d_table);
    variable_list result = {{}, {}};
    for (torch::Tensor& d_param :
         ToTorch(saved->encoding->PullBack(shape, grads))) {
      result.push_back(std::move(d_param));
    }
    return result;
  }
};

}  // namespace

std::shared_ptr<const Encoding> EncodingValues::Build() const {
  if (params.empty()) return form;
  return form->WithParams(ToLocus(at::TensorList(params)));
}

torch::Tensor FusedAttention(const torch::Tensor& q, const torch::Tensor& k,
                             const torch::Tensor& v,
                             const EncodingValues& encoding,
                             const AttentionCall& call) {
  std::vector<torch::Tensor> tensors = {q, k, v};
  tensors.insert(tensors.end(), encoding.params.begin(), encoding.params.end());
  return Attend::apply(encoding.Build(), call, at::TensorList(tensors));
}

torch::Tensor EmbedPositions(const EncodingValues& encoding, int64_t length) {
  return Embed::apply(encoding.Build(), length,
                      at::TensorList(encoding.params));
}

}  // namespace locus::lab
