#include "cli/answers/explain.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <numbers>
#include <utility>

namespace locus::cli {
namespace {

using models::LayerPosition;
using models::ModelConfig;
using models::ReadOptions;

// The parts of a model that have the layer: the default one, and the other one
// if it exists.
std::vector<LayerPosition> Parts(const ModelConfig& model,
                                 ReadOptions options) {
  std::vector<LayerPosition> parts = {model.Layer(options)};
  if (!options.part.empty() || !parts[0].other_part) return parts;
  const int64_t layer = std::exchange(options.layer, 0);
  options.part = parts[0].part == "encoder" ? "decoder" : "encoder";
  LayerPosition other = model.Layer(options);
  if (layer >= other.layers) return parts;
  options.layer = layer;
  parts.push_back(layer == 0 ? std::move(other) : model.Layer(options));
  if (parts[1].part == "encoder") std::swap(parts[0], parts[1]);
  return parts;
}

Json WindowJson(const LayerPosition& p) {
  if (!p.window) return nullptr;
  return {{"left", p.window->left}, {"right", p.window->right}};
}

Json SchemeJson(const models::Scheme& scheme) {
  Json tensors = Json::array();
  for (const auto& t : scheme.tensors) {
    tensors.push_back({{"name", t.name}, {"shape", t.shape}, {"use", t.use}});
  }
  return {
      {"encoding", scheme.name}, {"words", scheme.words}, {"tensors", tensors}};
}

Json RotaryJson(const LayerPosition& p) {
  if (!p.rotary) return nullptr;
  const models::RotaryFacts& r = *p.rotary;
  constexpr double kTurn = 2.0 * std::numbers::pi;
  return {
      {"layout", r.layout == PairLayout::kHalves ? "halves" : "interleaved"},
      {"rotary_dim", r.rotary_dim},
      {"first_channel", r.first_channel},
      {"base", r.base},
      {"scaling", r.scaling},
      {"factor", r.factor},
      {"original_length",
       r.original_length == 0 ? Json(nullptr) : Json(r.original_length)},
      {"changes_with_length", r.changes_with_length},
      {"first_wavelength", NumberJson(kTurn / r.theta.front())},
      {"last_wavelength", NumberJson(kTurn / r.theta.back())},
      {"frequencies", r.theta}};
}

}  // namespace

std::vector<std::string> TermsOf(const LayerPosition& p) {
  // Cached by scheme name, since every layer of a stack asks again.
  static std::map<std::string, std::vector<std::string>> known;
  std::vector<std::string> terms;
  for (const auto* scheme : {&p.input, &p.attention}) {
    const auto [at, is_new] = known.try_emplace(scheme->name);
    if (is_new) {
      const ExampleConfig config;
      const auto example = FindEncoding(scheme->name).example(config);
      at->second = TermNames(example->Lower(ShapeOf(config)).terms);
    }
    terms.insert(terms.end(), at->second.begin(), at->second.end());
  }
  return terms;
}

std::string Ranges(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() &&
           numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    if (!text.empty()) text += ", ";
    text += last == i ? fmt::format("{}", numbers[i])
                      : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string MaskWords(const LayerPosition& p) {
  std::string words = p.causal ? "causal" : "both directions";
  if (p.window && p.causal) {
    words += fmt::format(", the last {} keys", p.window->left + 1);
  } else if (p.window) {
    words += fmt::format(", {} keys back and {} ahead", p.window->left,
                         p.window->right);
  }
  if (p.chunk != 0) words += fmt::format(", within chunks of {}", p.chunk);
  if (p.softcap) words += fmt::format(", soft cap {}", *p.softcap);
  return words;
}

Json LayerJson(const LayerPosition& p) {
  return {
      {"part", p.part},
      {"layer_type", p.layer_type.empty() ? Json(nullptr) : Json(p.layer_type)},
      {"attends", p.attends},
      {"input", SchemeJson(p.input)},
      {"attention", SchemeJson(p.attention)},
      {"terms", TermsOf(p)},
      {"rotary", RotaryJson(p)},
      {"query_heads", p.q_heads},
      {"key_heads", p.kv_heads},
      {"head_dim", p.head_dim},
      {"value_dim", p.value_dim},
      {"model_dim", p.model_dim},
      {"causal", p.causal},
      {"window", WindowJson(p)},
      {"chunk", p.chunk == 0 ? Json(nullptr) : Json(p.chunk)},
      {"softcap", p.softcap ? Json(*p.softcap) : Json(nullptr)},
      {"sinks", p.sinks.empty() ? Json(nullptr) : Json(p.sinks)},
      {"scale", p.scale},
      {"factors",
       {{"cos_sin", p.rotary ? p.rotary->gain : 1.0},
        {"softmax", p.softmax_factor},
        {"query_temperature", p.temperature.beta == 0.0
                                  ? Json(nullptr)
                                  : Json{{"beta", p.temperature.beta},
                                         {"shift", p.temperature.shift},
                                         {"span", p.temperature.span}}}}},
      {"trained_length",
       p.trained_length == 0 ? Json(nullptr) : Json(p.trained_length)},
      {"warnings", p.warnings}};
}

Explained Explain(const ModelConfig& model, const std::string& file,
                  ReadOptions options) {
  const bool all = options.layer < 0;
  if (all) options.layer = 0;
  Explained explained;
  explained.file = file;
  for (const LayerPosition& part : Parts(model, options)) {
    explained.family = part.family;
    explained.model_type = part.model_type;
    options.part = part.part;
    const int64_t first = all ? 0 : options.layer;
    const int64_t last = all ? part.layers - 1 : options.layer;
    std::map<std::string, size_t> known;  // groups by their JSON
    for (int64_t layer = first; layer <= last; ++layer) {
      ReadOptions one = options;
      one.layer = layer;
      LayerPosition p = model.Layer(one);
      Json json = LayerJson(p);
      const auto [at, is_new] =
          known.try_emplace(json.dump(), explained.groups.size());
      if (is_new) {
        explained.groups.push_back({{layer}, std::move(p), std::move(json)});
      } else {
        explained.groups[at->second].layers.push_back(layer);
      }
    }
  }
  return explained;
}

Json ExplainJson(const Explained& explained) {
  Json groups = Json::array();
  for (const LayerGroup& group : explained.groups) {
    Json json = {{"layers", group.layers}};
    json.update(group.json);
    groups.push_back(json);
  }
  return {{"file", explained.file},
          {"family", explained.family},
          {"model_type", explained.model_type},
          {"groups", groups}};
}

}  // namespace locus::cli
