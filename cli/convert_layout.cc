// locus convert-layout IN OUT: converts q and k weights to the other pair
// layout.
#include <fmt/format.h>

#include <filesystem>

#include "cli/app.h"
#include "cli/interrupts.h"
#include "locus/checkpoint.h"
#include "locus/error.h"

namespace locus::cli {
namespace {

struct Args {
  std::string in = {};
  std::string out = {};
  std::string to = {};
  std::string from = {};
  std::string config = {};
  bool json = false;
};

PairLayout Layout(const std::string& name) {
  return name == "halves" ? PairLayout::kHalves : PairLayout::kInterleaved;
}

models::ModelConfig ReadConfig(const Args& args) {
  std::filesystem::path path = args.config;
  if (path.empty()) {
    path = std::filesystem::path(args.in).parent_path() / "config.json";
  }
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw Error(fmt::format(
        "there is no '{}': --config must name the model's config.json",
        path.string()));
  }
  return models::ModelConfig::Open(path.string());
}

int Run(const Args& args) {
  const models::ModelConfig config = ReadConfig(args);
  const CleanInterrupts interrupts;
  std::optional<PairLayout> from;
  if (!args.from.empty()) from = Layout(args.from);
  const models::ConvertReport report = models::ConvertLayoutFile(
      args.in, args.out, config, Layout(args.to), from);
  if (args.json) {
    EmitJson({{"out", args.out},
              {"layout", args.to},
              {"layers", report.layers},
              {"tensors", report.tensors},
              {"files", report.files}});
  } else {
    Emit(fmt::format("{}: {} tensors of {} layer{} in {} file{} are now {}\n",
                     args.out, report.tensors, report.layers,
                     report.layers == 1 ? "" : "s", report.files,
                     report.files == 1 ? "" : "s",
                     args.to == "halves" ? "in halves" : "interleaved"));
  }
  return kFine;
}

}  // namespace

void AddConvertLayout(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "convert-layout",
      "Rewrite the q and k weights of a safetensors model for the other pair "
      "layout.");
  command->footer(
      "Examples:\n  locus convert-layout model.safetensors pairs.safetensors "
      "--to interleaved\n"
      "  locus convert-layout model.safetensors.index.json folder --to "
      "interleaved\n\n"
      "q and k may be separate or fused with v; their biases and norms change "
      "with them.\nThe config says the heads and the present layout. "
      "Everything else stays byte for\nbyte; OUT appears when it is whole, of "
      "an index as a new folder of all its files.\nThe config itself does not "
      "say a layout: remember --from for the new files.\n\n"
      "JSON: {out, layout, layers, tensors, files}");
  auto args = std::make_shared<Args>();
  command
      ->add_option("in", args->in,
                   "a safetensors file, or the .index.json of several")
      ->required();
  command->add_option("out", args->out, "where to write: a file, or a folder")
      ->required();
  command->add_option("--to", args->to, "halves or interleaved")
      ->required()
      ->check(CLI::IsMember({"halves", "interleaved"}));
  command
      ->add_option("--from", args->from,
                   "the present layout, if not that of the model's own code")
      ->check(CLI::IsMember({"halves", "interleaved"}));
  command->add_option("--config", args->config,
                      "config.json; by default the one beside IN");
  command->add_flag("--json", args->json, "print a JSON object");
  command->callback([&code, args] { code = Run(*args); });
}

}  // namespace locus::cli
