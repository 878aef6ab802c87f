// The encoding's descriptor has what papers leave to the model, the same for
// every run: which layers and heads share a table, which scales follow the
// training length, how parameters are initialised, their learning rates and
// their bounds.
#include "lab/train/position.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "lab/train/interop.h"
#include "lab/train/offset_table.h"
#include "locus/encodings/sinusoidal.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

// Options of the encoding as given, or else derived from the model by its
// descriptor.
std::map<std::string, std::string> WithDefaults(const EncodingInfo& info,
                                                const PositionConfig& config) {
  std::map<std::string, std::string> options = config.options;
  const std::string half =
      std::to_string(std::max<int64_t>(config.train_length / 2, 2));
  for (const Field& option : info.options) {
    const std::string name(option.name);
    switch (option.tied) {
      case Tied::kNothing:
        break;
      case Tied::kHalfLength:
        options.emplace(name, half);
        break;
      case Tied::kHalfShortLength:
        if (config.train_length < 64) options.emplace(name, half);
        break;
      case Tied::kBothWays:
        options.emplace(name,
                        config.kind == ModelKind::kEncoder ? "true" : "false");
        break;
    }
  }
  return options;
}

// Glorot and Bengio (2010), for rows [.., n, m].
double Xavier(const std::vector<int64_t>& shape) {
  const int64_t sides = shape[shape.size() - 1] + shape[shape.size() - 2];
  return std::sqrt(6.0 / static_cast<double>(sides));
}

Init InitOf(const ParamTraining& training, const Param& param,
            const std::vector<int64_t>& shape) {
  switch (training.start) {
    case Start::kExample:
      return Init::Values(param.value.ToVector());
    case Start::kNormal:
      return Init::Normal(training.size);
    case Start::kUniform:
      return Init::Uniform(training.size);
    case Start::kFanIn:
      return Init::Uniform(1.0 / std::sqrt(static_cast<double>(shape.back())));
    case Start::kXavier:
      break;
  }
  return Init::Uniform(Xavier(shape));
}

// Whether an option such as "kind=power" is set; an empty one always is.
bool HasOption(const PositionConfig& config, std::string_view option) {
  for (const auto& [name, value] : ParseOptions(option)) {
    const auto it = config.options.find(name);
    if (it == config.options.end() || it->second != value) return false;
  }
  return true;
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

Position::Position(const PositionConfig& config) : config_(config) {
  if (config.file.empty()) {
    FromList(config);
  } else {
    FromFile(config);
  }
}

std::unique_ptr<Encoding> Position::MakeForm(int64_t head_dim) const {
  ExampleConfig example = Example();
  example.head_dim = head_dim;
  return info_->example(example);
}

ExampleConfig Position::Example() const {
  return {.heads = config_.heads,
          .head_dim = config_.head_dim,
          .length = config_.train_length,
          .options = info_ == nullptr ? config_.options
                                      : WithDefaults(*info_, config_)};
}

void Position::FromList(const PositionConfig& config) {
  Variant variant = FindVariant(config.encoding);
  info_ = variant.info;
  for (const auto& [name, value] : config.options) {
    variant.options[name] = value;
  }
  config_.options = variant.options;
  form_ = MakeForm(config.head_dim);
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
    form_ = MakeForm(config.heads * config.head_dim);
  }
  shared_ = in_input_ || info_->shared_by_layers;
  for (const Param& param : form_->Params()) {
    const ParamTraining& training = TrainingOf(param.name);
    std::vector<int64_t> sizes = param.value.shape();
    std::string name = param.name;
    if (!training.projection.empty()) {
      name = training.projection;
      sizes = {config.heads, config.head_dim, config.heads * config.head_dim};
    } else if (training.shared_by_heads) {
      sizes.erase(sizes.begin());
    }
    Init init = InitOf(training, param, sizes);
    trained_.push_back(
        {.info = {.name = std::move(name),
                  .shape = std::move(sizes),
                  .init = std::move(init),
                  .decays = training.decays,
                  .rate = training.rate},
         .lowest = training.lowest,
         .highest = HasOption(config_, training.highest_for)
                        ? training.highest
                        : std::numeric_limits<double>::infinity()});
  }
}

void Position::FromFile(const PositionConfig& config) {
  scripted_ = ScriptedEncoding::Open(config.file);
  scripted_->CheckHeads(config.heads);
  for (const ScriptedEncoding::Parameter& p : scripted_->parameters()) {
    const torch::Tensor start = p.start.to(torch::kDouble).contiguous();
    const double* first = start.data_ptr<double>();
    trained_.push_back(
        {.info = {.name = p.name,
                  .shape = start.sizes().vec(),
                  .init = Init::Values({first, first + start.numel()}),
                  .decays = p.decays,
                  .rate = p.rate},
         .lowest = p.lowest,
         .highest = p.highest});
  }
}

const ParamTraining& Position::TrainingOf(const std::string& name) const {
  const auto& rows = info_->training;
  const auto row = std::ranges::find(rows, name, &ParamTraining::name);
  if (row == rows.end()) {
    throw Error(fmt::format("the descriptor of {} does not say how {} trains",
                            config_.encoding, name));
  }
  return *row;
}

std::string Position::ParameterName(int64_t layer,
                                    const std::string& name) const {
  return shared_ ? fmt::format("position.{}", name)
                 : fmt::format("position.{}.{}", layer, name);
}

std::vector<ParameterInfo> Position::Parameters() const {
  std::vector<ParameterInfo> infos;
  for (int64_t layer = 0; layer < NumCopies(); ++layer) {
    for (const Trained& trained : trained_) {
      infos.push_back(trained.info);
      infos.back().name = ParameterName(layer, trained.info.name);
    }
  }
  return infos;
}

EncodingValues Position::Values(const ParameterSet& parameters, int64_t layer,
                                int64_t length) const {
  std::vector<torch::Tensor> values;
  for (const Trained& trained : trained_) {
    values.push_back(parameters[ParameterName(layer, trained.info.name)]);
  }
  if (scripted_) {
    // A decoder's queries see no later keys.
    const int64_t first = config_.kind == ModelKind::kDecoder ? 0 : 1 - length;
    const torch::Tensor table = scripted_->At(first, length - 1, values);
    return {.form = std::make_shared<OffsetTable>(scripted_->term(), first,
                                                  ToLocus(table.detach())),
            .params = {table}};
  }
  const std::vector<Param> params = form_->Params();
  for (size_t n = 0; n < values.size(); ++n) {
    if (TrainingOf(params[n].name).projection.empty()) continue;
    // r[h, o, d] = sum_e w[h, d, e] s[o, e]
    const torch::Tensor w = values[n];
    values[n] =
        torch::matmul(OffsetSinusoids(length, w.size(2)), w.transpose(1, 2));
  }
  return {.form = form_, .params = std::move(values)};
}

void Position::Project(const ParameterSet& parameters) const {
  torch::NoGradGuard no_grad;
  for (const Trained& trained : trained_) {
    for (int64_t layer = 0; layer < NumCopies(); ++layer) {
      torch::Tensor value = parameters[ParameterName(layer, trained.info.name)];
      if (std::isfinite(trained.lowest)) value.clamp_min_(trained.lowest);
      if (std::isfinite(trained.highest)) value.clamp_max_(trained.highest);
    }
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
