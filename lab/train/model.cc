#include "lab/train/model.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "locus/encodings/none.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

constexpr int64_t kMlpWidening = 4;

std::string InLayer(int64_t layer, const char* name) {
  return fmt::format("layer.{}.{}", layer, name);
}

void AddLinear(std::vector<ParameterInfo>& infos, const std::string& name,
               int64_t out, int64_t in, double gain) {
  // The variance of the output is that of the input times gain^2.
  const double deviation = gain / std::sqrt(static_cast<double>(in));
  infos.push_back({name + ".weight", {out, in}, Init::Normal(deviation), true});
  infos.push_back({name + ".bias", {out}, Init::Constant(0)});
}

void AddNorm(std::vector<ParameterInfo>& infos, const std::string& name,
             int64_t dim) {
  infos.push_back({name + ".weight", {dim}, Init::Constant(1)});
  infos.push_back({name + ".bias", {dim}, Init::Constant(0)});
}

std::vector<ParameterInfo> ParametersOf(const ModelConfig& config,
                                        const Position& position) {
  const int64_t d = config.ModelDim();
  const int64_t layers = config.position.layers;
  std::vector<ParameterInfo> infos;
  // Rows of norm 1; Hidden multiplies them by sqrt(d).
  infos.push_back({"embedding",
                   {config.vocabulary, d},
                   Init::Normal(1.0 / std::sqrt(static_cast<double>(d)))});
  // The 2 * layers residual branches together start with the variance of x.
  const double residual = 1.0 / std::sqrt(2.0 * static_cast<double>(layers));
  for (int64_t layer = 0; layer < layers; ++layer) {
    AddNorm(infos, InLayer(layer, "norm1"), d);
    AddLinear(infos, InLayer(layer, "qkv"), 3 * d, d, 1.0);
    AddLinear(infos, InLayer(layer, "out"), d, d, residual);
    AddNorm(infos, InLayer(layer, "norm2"), d);
    AddLinear(infos, InLayer(layer, "mlp1"), kMlpWidening * d, d, 1.0);
    AddLinear(infos, InLayer(layer, "mlp2"), d, kMlpWidening * d, residual);
  }
  AddNorm(infos, "norm", d);
  // Small, so that all tokens are about equally likely at first.
  AddLinear(infos, "head", config.vocabulary, d, 0.1);
  for (ParameterInfo& info : position.Parameters()) {
    infos.push_back(std::move(info));
  }
  return infos;
}

}  // namespace

Model::Model(const ModelConfig& config)
    : config_(config),
      position_(std::make_unique<Position>(config.position)),
      parameters_(std::make_unique<ParameterSet>(
          ParametersOf(config, *position_), config.seed)) {}

torch::Tensor Model::Linear(const torch::Tensor& x,
                            const std::string& name) const {
  return torch::linear(x, parameters()[name + ".weight"],
                       parameters()[name + ".bias"]);
}

torch::Tensor Model::Norm(const torch::Tensor& x,
                          const std::string& name) const {
  return torch::layer_norm(x, {x.size(-1)}, parameters()[name + ".weight"],
                           parameters()[name + ".bias"]);
}

torch::Tensor Model::Attend(const torch::Tensor& x, int64_t layer,
                            std::vector<LayerInput>* inputs) const {
  const PositionConfig& sizes = config_.position;
  // [B, L, 3 H D] -> three views [B, H, L, D]
  const std::vector<torch::Tensor> qkv =
      Linear(x, InLayer(layer, "qkv"))
          .view({x.size(0), x.size(1), 3, sizes.heads, sizes.head_dim})
          .permute({2, 0, 3, 1, 4})
          .unbind(0);
  const torch::Tensor &q = qkv[0], &k = qkv[1], &v = qkv[2];
  if (inputs != nullptr) inputs->push_back({q, k});
  const EncodingValues encoding =
      position_->in_input()
          ? EncodingValues{.form = std::make_shared<NoPosition>(), .params = {}}
          : position_->Values(parameters(), layer, x.size(1));
  const AttentionCall call = {.causal = sizes.kind == ModelKind::kDecoder,
                              .threads = config_.threads};
  const torch::Tensor out = config_.fused
                                ? FusedAttention(q, k, v, encoding, call)
                                : materialised_(q, k, v, encoding, call);
  return Linear(out.transpose(1, 2).flatten(2), InLayer(layer, "out"));
}

torch::Tensor Model::Hidden(const torch::Tensor& tokens,
                            std::vector<LayerInput>* inputs) const {
  const double gain = std::sqrt(static_cast<double>(config_.ModelDim()));
  torch::Tensor x = torch::embedding(parameters()["embedding"], tokens) * gain;
  if (position_->in_input()) {
    x = x + EmbedPositions(position_->Values(parameters(), 0, tokens.size(1)),
                           tokens.size(1));
  }
  for (int64_t layer = 0; layer < config_.position.layers; ++layer) {
    x = x + Attend(Norm(x, InLayer(layer, "norm1")), layer, inputs);
    const torch::Tensor wide = torch::gelu(
        Linear(Norm(x, InLayer(layer, "norm2")), InLayer(layer, "mlp1")));
    x = x + Linear(wide, InLayer(layer, "mlp2"));
  }
  return x;
}

torch::Tensor Model::Logits(const torch::Tensor& tokens,
                            const torch::Tensor& rows) const {
  const torch::Tensor x = Hidden(tokens, nullptr).flatten(0, 1);
  return Linear(Norm(x.index_select(0, rows), "norm"), "head");
}

std::vector<Model::LayerInput> Model::AttentionInputs(
    const torch::Tensor& tokens) const {
  std::vector<LayerInput> inputs;
  Hidden(tokens, &inputs);
  return inputs;
}

void Model::SetOptions(const std::map<std::string, std::string>& options) {
  PositionConfig changed = config_.position;
  changed.options = options;
  auto position = std::make_unique<Position>(changed);
  const auto sizes = [](const std::vector<ParameterInfo>& infos) {
    std::vector<std::vector<int64_t>> shapes;
    for (const ParameterInfo& info : infos) shapes.push_back(info.shape);
    return shapes;
  };
  if (sizes(position->Parameters()) != sizes(position_->Parameters())) {
    throw Error(
        fmt::format("the options would change the sizes of {}'s parameters",
                    changed.encoding));
  }
  config_.position = std::move(changed);
  position_ = std::move(position);
  materialised_ = {};
}

}  // namespace locus::lab
