// locus explain FILE: a model's positions, layer by layer.
#include "cli/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <numbers>
#include <utility>

#include "locus/checkpoint.h"
#include "locus/error.h"

namespace locus::cli {
namespace {

using models::LayerPosition;
using models::ModelConfig;
using models::ReadOptions;

struct Args {
  std::vector<std::string> files = {};
  std::string layer = {};
  std::string part = {};
  bool lenient = false;
  bool json = false;
  bool families = false;
};

// The parts of a model that have the layer: the one that is read by default,
// and the other if there is one.
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

int Run(const Args& args) {
  if (args.families) {
    Json families = Json::array();
    std::string text;
    for (const auto& family : models::Families()) {
      families.push_back({{"name", family.name},
                          {"model_types", family.model_types},
                          {"scheme", family.scheme},
                          {"traps", family.traps}});
      text += fmt::format("{}: {}\n  model_type {}\n", family.name,
                          family.scheme, fmt::join(family.model_types, ", "));
    }
    if (args.json) {
      EmitJson({{"families", families}});
    } else {
      Emit(text);
    }
    return kFine;
  }
  if (args.files.empty()) throw Error("explain needs a file; see --help");
  if (args.files.size() > 2) {
    throw Error(fmt::format("explain takes a file, or two to compare, got {}",
                            args.files.size()));
  }
  ReadOptions options;
  options.lenient = args.lenient;
  options.part = args.part;
  // Configs of more layers are refused anyway.
  options.layer =
      args.layer.empty() ? -1 : ReadNumber("--layer", args.layer, 0, 4095);
  const Explained first = Explain(args.files[0], options);
  if (args.files.size() == 1) {
    if (args.json) {
      EmitJson(ExplainJson(first));
    } else {
      Emit(ExplainText(first, TerminalWidth()));
    }
    return kFine;
  }
  const Explained second = Explain(args.files[1], options);
  const auto lines = Differences(first, second);
  if (args.json) {
    EmitJson({{"a", ExplainJson(first)},
              {"b", ExplainJson(second)},
              {"differences", lines}});
  } else if (lines.empty()) {
    Emit("no difference in positions\n");
  } else {
    Emit(fmt::format("{}\n", fmt::join(lines, "\n")));
  }
  return lines.empty() ? kFine : kAnswerIsNo;
}

}  // namespace

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

Explained Explain(const std::string& path, ReadOptions options) {
  const ModelConfig model = ModelConfig::Open(path);
  const bool all = options.layer < 0;
  if (all) options.layer = 0;
  Explained explained;
  explained.file = path;
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

void AddExplain(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "explain", "Say what a model's config means for positions.");
  command->footer(
      "Examples:\n  locus explain config.json --layer 3\n"
      "  locus explain model.gguf\n  locus explain old.json new.json\n\n"
      "FILE is a config.json, a folder that holds one, or a GGUF file. Two "
      "files: what\ndiffers, and exit code 1 if something does.\n\n"
      "JSON: {file, family, model_type, groups: [{layers, part, layer_type, "
      "attends, input, attention,\nterms, rotary, query_heads, key_heads, "
      "head_dim, "
      "value_dim, "
      "model_dim, causal, window, chunk,\nsoftcap, sinks, scale, factors, "
      "trained_length, warnings}]}; of two files {a, b, differences}.");
  auto args = std::make_shared<Args>();
  command->add_option("file", args->files, "one file, or two to compare")
      ->expected(-1);
  command->add_option("--layer", args->layer, "this layer alone");
  command->add_option("--part", args->part,
                      "encoder or decoder alone, or a config of a model of "
                      "several: vision_config");
  command->add_flag("--lenient", args->lenient,
                    "warn of unused keys and contradictions, do not refuse");
  command->add_flag("--families", args->families,
                    "list the families that are known");
  command->add_flag("--json", args->json, "print a JSON object");
  command->callback([&code, args] { code = Run(*args); });
}

}  // namespace locus::cli
