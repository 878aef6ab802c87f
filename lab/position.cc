// What the papers leave to the model, decided here, the same for every run:
//
//  * Layers share what the paper shares: T5's and TUPE's tables, and whatever
//    is added to the input. Everything else is one a layer. Shaw's tables serve
//    all heads of a layer, as in the paper.
//  * Scales that papers tie to their training length keep in proportion to
//    ours: T5's and DeBERTa's max_distance and xPos' scale_base are half of it,
//    so that training sees every bucket. Options override.
//  * Biases that are trained number by number move ten times as fast as
//  weights:
//    an Adam step is about the learning rate whatever the gradient, and a bias
//    must travel several units, the size of a score, where a weight of size
//    1/sqrt(d) need not. T5's own optimiser scales its steps likewise.
//  * Transformer-XL trains the projection of sinusoids that makes its rows, so
//    it has a row for any offset.
#include "lab/position.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include <cmath>
#include <numeric>
#include <utility>

#include "lab/interop.h"
#include "locus/encodings/sinusoidal.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

std::map<std::string, std::string> WithDefaults(const PositionConfig& config) {
  std::map<std::string, std::string> options = config.options;
  const std::string half =
      std::to_string(std::max<int64_t>(config.train_length / 2, 2));
  if (config.encoding == "t5") {
    options.emplace("bidirectional",
                    config.kind == ModelKind::kEncoder ? "true" : "false");
    options.emplace("max_distance", half);
    // Exact buckets must end before max_distance.
    if (config.train_length < 64) options.emplace("buckets", half);
  }
  if (config.encoding == "deberta") {
    options.emplace("max_distance", half);
    options.emplace("buckets", half);
  }
  if (config.encoding == "xpos") options.emplace("scale_base", half);
  return options;
}

std::unique_ptr<Encoding> MakeForm(const PositionConfig& config,
                                   int64_t head_dim) {
  return FindEncoding(config.encoding)
      .example({.heads = config.heads,
                .head_dim = head_dim,
                .length = config.train_length,
                .options = WithDefaults(config)});
}

// The sizes of a parameter in the model, where the list's example differs.
std::vector<int64_t> ShapeOf(const std::string& encoding, const Param& param) {
  std::vector<int64_t> shape = param.value.shape();
  if (encoding == "shaw" && shape.size() == 3) shape.erase(shape.begin());
  return shape;
}

// Glorot and Bengio (2010), for rows [.., n, m]; Shaw's choice.
double Xavier(const std::vector<int64_t>& shape) {
  const int64_t sides = shape[shape.size() - 1] + shape[shape.size() - 2];
  return std::sqrt(6.0 / static_cast<double>(sides));
}

// Biases themselves, or the coefficients of one.
bool IsBias(const std::string& encoding, const Param& param) {
  return encoding == "t5" || encoding == "swin" || encoding == "kerple" ||
         param.name == "bias" || param.name == "cls";
}
constexpr double kBiasRate = 10.0;

// Learned rows start half as large as a token's row, as in GPT-2, and biases
// smaller than a score; tables of vectors start as Shaw's do, FIRE's network as
// any linear layer of libtorch, and closed forms (KERPLE's kernels, FIRE's c
// and L) with the constants of the list, which are those of the papers.
Init InitOf(const std::string& encoding, const Param& param,
            const std::vector<int64_t>& shape) {
  if (encoding == "learned") return Init::Normal(0.5);
  if (encoding == "kerple") return Init::Values(param.value.ToVector());
  if (IsBias(encoding, param)) return Init::Normal(0.1);
  if (encoding == "transformer-xl") return Init::Normal(0.02);  // u and v
  if (encoding == "fire" && (param.name == "w1" || param.name == "b1")) {
    return Init::Uniform(1.0);
  }
  if (encoding == "fire" && param.name == "w2") {
    return Init::Uniform(1.0 / std::sqrt(static_cast<double>(shape.back())));
  }
  if (shape.size() < 2) return Init::Values(param.value.ToVector());
  return Init::Uniform(Xavier(shape));
}

// Sinusoids of the offsets -length + 1 .. length - 1: [2 length - 1, dim].
torch::Tensor OffsetSinusoids(int64_t length, int64_t dim) {
  std::vector<int64_t> offsets(static_cast<size_t>(2 * length - 1));
  std::iota(offsets.begin(), offsets.end(), 1 - length);
  const Tensor rows =
      Sinusoidal(dim, {.layout = SinusoidLayout::kHalves}).Embed(offsets);
  return ToTorch(rows).to(torch::kFloat);
}

}  // namespace

Position::Position(const PositionConfig& config)
    : config_(config), form_(MakeForm(config, config.head_dim)) {
  const Shape shape =
      Shape::SelfAttention(config.heads, config.head_dim, /*length=*/1);
  const auto& input = form_->Lower(shape).terms.input_add;
  in_input_ = input.has_value();
  if (in_input_) {
    if (input->widen > 0) {
      throw Error(fmt::format(
          "{} widens the input; the lab's models take mode=add only",
          config.encoding));
    }
    form_ = MakeForm(config, config.heads * config.head_dim);
  }
  shared_ = in_input_ || config.encoding == "t5" || config.encoding == "tupe";
}

std::string Position::ParameterName(int64_t layer,
                                    const std::string& name) const {
  return shared_ ? fmt::format("position.{}", name)
                 : fmt::format("position.{}.{}", layer, name);
}

std::vector<ParameterInfo> Position::Parameters() const {
  std::vector<ParameterInfo> infos;
  for (int64_t layer = 0; layer < (shared_ ? 1 : config_.layers); ++layer) {
    for (const Param& param : form_->Params()) {
      std::vector<int64_t> shape = ShapeOf(config_.encoding, param);
      Init init = InitOf(config_.encoding, param, shape);
      std::string name = param.name;
      if (projects_sinusoids() && name == "r") {
        name = "w_r";
        shape = {config_.heads, config_.head_dim,
                 config_.heads * config_.head_dim};
        init = Init::Uniform(Xavier(shape));
      }
      infos.push_back(
          {.name = ParameterName(layer, name),
           .shape = std::move(shape),
           .init = std::move(init),
           .rate = IsBias(config_.encoding, param) ? kBiasRate : 1.0});
    }
  }
  return infos;
}

EncodingValues Position::Values(const ParameterSet& parameters, int64_t layer,
                                int64_t length) const {
  EncodingValues values = {.form = form_, .params = {}};
  for (const Param& param : form_->Params()) {
    if (projects_sinusoids() && param.name == "r") {
      // r[h, o, d] = sum_e w_r[h, d, e] s[o, e]
      const torch::Tensor& w_r = parameters[ParameterName(layer, "w_r")];
      values.params.push_back(torch::matmul(
          OffsetSinusoids(length, w_r.size(2)), w_r.transpose(1, 2)));
    } else {
      values.params.push_back(parameters[ParameterName(layer, param.name)]);
    }
  }
  return values;
}

void Position::Project(const ParameterSet& parameters) const {
  if (config_.encoding != "kerple") return;
  // r1, r2 > 0, and r2 <= 2 for the power kernel. The paper keeps them above
  // 0.01.
  const bool power =
      config_.options.contains("kind") && config_.options.at("kind") == "power";
  torch::NoGradGuard no_grad;
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    torch::Tensor r1 = parameters[ParameterName(layer, "r1")];
    torch::Tensor r2 = parameters[ParameterName(layer, "r2")];
    r1.clamp_min_(0.01);
    r2.clamp_min_(0.01);
    if (power) r2.clamp_max_(2.0);
  }
}

std::optional<std::string> Position::Refusal(const ParameterSet& parameters,
                                             int64_t length) const {
  torch::NoGradGuard no_grad;
  const int64_t dim =
      in_input_ ? config_.heads * config_.head_dim : config_.head_dim;
  const Shape shape = Shape::SelfAttention(config_.heads, dim, length,
                                           config_.kind == ModelKind::kDecoder);
  try {
    const Lowered lowered = Values(parameters, 0, length).Build()->Lower(shape);
    if (!in_input_) Validate(lowered.terms, shape);
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

}  // namespace locus::lab
