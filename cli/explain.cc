// locus explain FILE: a model's positions, layer by layer.
#include "cli/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "locus/error.h"

namespace locus::cli {
namespace {

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
  // Configs with more layers are rejected anyway.
  options.layer =
      args.layer.empty() ? -1 : ReadNumber("--layer", args.layer, 0, 4095);
  const Explained first =
      Explain(ModelConfig::Open(args.files[0]), args.files[0], options);
  if (args.files.size() == 1) {
    if (args.json) {
      EmitJson(ExplainJson(first));
    } else {
      Emit(ExplainText(first, TerminalWidth()));
    }
    return kFine;
  }
  const Explained second =
      Explain(ModelConfig::Open(args.files[1]), args.files[1], options);
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
