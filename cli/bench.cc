// locus bench: the speed and memory of attention with each encoding, compared
// with the limits of this machine and with plain attention. This file has the
// options; bench_run.cc measures.
#include "cli/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>

#include "cli/bench_progress.h"
#include "locus/error.h"
#include "locus/files.h"
#include "locus/simd.h"
#include "locus/threads.h"

namespace locus::cli {
namespace {

// The command-line arguments as text.
struct BenchArgs {
  std::vector<std::string> encodings = {};
  std::vector<std::string> operands = {};
  std::string mask = {};
  std::string dtype = {};
  std::string heads = "0";
  std::string length = "0";
  std::string dim = "0";
  std::string threads = "0";
  std::string simd = {};     // empty: the best
  std::string repeats = {};  // empty: as many as each section needs
  bool attention = false;
  bool memory = false;
  bool growth = false;
  bool decode = false;
  bool rotation = false;
  std::string chart = {};
  std::string save = {};
  bool json = false;
};

// "none" first, "all" expanded, without repeats.
std::vector<std::string> EncodingNames(const std::vector<std::string>& wished) {
  std::vector<std::string> names = {"none"};
  const auto add = [&](std::string_view name) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  };
  for (const std::string& wish : wished) {
    if (wish == "all") {
      for (const std::string& name : bench::AttentionEncodings()) add(name);
    } else {
      add(FindEncoding(wish).name);
    }
  }
  return names;
}

// "all" expanded, without repeats.
std::vector<std::string> OperandNames(const std::vector<std::string>& wished) {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  };
  for (const std::string& wish : wished) {
    if (wish == "all") {
      for (const std::string_view name : bench::OperandNames()) add(name);
    } else {
      add(bench::FindOperand(wish));
    }
  }
  return names;
}

BenchPlan PlanOf(const BenchArgs& args) {
  // Longer calls take hours, and their reference tables do not fit in memory.
  constexpr int64_t kMostLength = int64_t{1} << 20;
  BenchPlan plan;
  // One encoding per kind of term; fewer for decoding, which is always limited
  // by memory.
  const auto or_usual = [&](const std::vector<std::string>& usual) {
    return EncodingNames(args.encodings.empty() ? usual : args.encodings);
  };
  plan.encodings = or_usual({"alibi", "t5", "kerple", "rope", "shaw",
                             "transformer-xl", "tupe", "deberta"});
  plan.decoded = or_usual({"alibi", "rope"});
  plan.operands = OperandNames(args.operands);
  // Only operands, unless encodings are requested as well.
  if (!plan.operands.empty() && args.encodings.empty()) {
    plan.encodings = {"none"};
  }
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (args.dtype == DTypeName(dtype)) plan.dtype = dtype;
  }
  plan.masks = args.mask == "full"     ? Masks::kFull
               : args.mask == "causal" ? Masks::kCausal
                                       : Masks::kBoth;
  plan.heads = ReadNumber("--heads", args.heads, 0, 1024);
  plan.dim = ReadNumber("--dim", args.dim, 0, 1024);
  plan.length = ReadNumber("--length", args.length, 0, kMostLength);
  plan.threads =
      static_cast<int>(ReadNumber("--threads", args.threads, 0, 1024));
  if (plan.threads == 0) plan.threads = UsableCpus();
  if (!args.simd.empty()) ForceSimdTarget(args.simd);
  if (!args.repeats.empty()) {
    plan.repeats =
        static_cast<int>(ReadNumber("--repeats", args.repeats, 1, 1000));
  }
  const bool chosen = args.attention || args.memory || args.growth ||
                      args.decode || args.rotation;
  plan.attention = args.attention || !chosen;
  plan.decode = args.decode || !chosen;
  plan.rotation = args.rotation || !chosen;
  plan.memory = args.memory;
  plan.growth = args.growth;
  if (plan.growth && plan.length > 0 && plan.length < 4) {
    throw Error(
        fmt::format("--growth compares --length with a quarter of it, got {}",
                    plan.length));
  }
  if (!args.chart.empty()) {
    CheckChartName(args.chart);
    if (!plan.attention) {
      throw Error("--chart draws the speed of attention: add --attention");
    }
  }
  return plan;
}

int Bench(const BenchArgs& args) {
  const BenchPlan plan = PlanOf(args);
  // Checked now rather than after minutes of measuring.
  for (const std::string& path : {args.chart, args.save}) {
    if (!path.empty()) CheckOutput(path);
  }
  const auto interrupted = [] {
    fmt::print(stderr, "locus: interrupted\n");
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
    return kAnswerIsNo;
  };
  try {
    const BenchResults results = RunBench(plan, /*tell=*/!args.json);
    const Json json = ResultsJson(plan, results);
    if (!args.save.empty()) SaveJson(json, args.save);
    if (!args.chart.empty()) DrawSpeeds(plan, results.attention, args.chart);
    if (args.json) EmitJson(json);
    return kFine;
  } catch (const Interrupted&) {
    return interrupted();
  } catch (const Error&) {
    // A child that was told to stop also ends with an error.
    if (Progress::WasInterrupted()) return interrupted();
    throw;
  }
}

}  // namespace

void AddBench(CLI::App& app, int& code) {
  auto* command = app.add_subcommand(
      "bench", "Measure attention with each encoding against this machine.");
  command->footer(
      "Examples:\n  locus bench --encodings alibi,rope --length 1024\n"
      "  locus bench --chart speed.png --save speed.json\n"
      "  locus bench --memory --growth --encodings shaw\n"
      "  locus bench --attention --operands all --repeats 7\n\n"
      "Without a choice: --attention --decode --rotation. Plain attention "
      "(none) is always\nmeasured, too, interleaved with each encoding or "
      "operand.\n"
      "JSON: {version, threads, simd, machine, attention, memory, growth, "
      "decode, rotation};\na section that was not asked for is null.");
  const auto args = std::make_shared<BenchArgs>();
  command->add_flag("--attention", args->attention,
                    "time forward and backward passes");
  command->add_flag("--decode", args->decode, "time a token over a cache");
  command->add_flag("--rotation", args->rotation,
                    "time rotation alone, in place");
  command->add_flag("--memory", args->memory,
                    "peak memory of a call beyond inputs and outputs");
  command->add_flag("--growth", args->growth,
                    "time and memory at a quarter of the length and at all of "
                    "it");
  command
      ->add_option("--encodings", args->encodings,
                   "names, comma-separated, or all")
      ->delimiter(',');
  command
      ->add_option("--operands", args->operands,
                   "what a call may bring, comma-separated, or all: sinks, "
                   "masks, biases, dropout; beside plain attention")
      ->delimiter(',');
  command
      ->add_option("--mask", args->mask,
                   "full, causal or both; memory and growth: full")
      ->check(CLI::IsMember({"full", "causal", "both"}));
  command
      ->add_option("--dtype", args->dtype,
                   "f32, bf16 or f16; decode and rotation: each")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command->add_option(
      "--length", args->length,
      fmt::format("queries and keys; 0: {}, memory and growth {}, decode {}, "
                  "rotation {}",
                  kSpeedLength, kLongLength, kDecodeLength, kRotateLength));
  command->add_option("--dim", args->dim,
                      "channels of a head; 0: 64, decode and rotation 128");
  command->add_option(
      "--heads", args->heads,
      "number of heads; 0: 16, decode and rotation 32 and 8 of keys");
  command->add_option("--threads", args->threads, "threads; 0: all")
      ->capture_default_str();
  command->add_option(
      "--simd", args->simd,
      fmt::format("SIMD target; the best by default, this machine has {}",
                  fmt::join(SimdTargets(), ", ")));
  command->add_option("--repeats", args->repeats,
                      fmt::format("runs of each case; default {}, growth {}",
                                  kSpeedRepeats, kGrowthRepeats));
  command->add_option("--chart", args->chart,
                      "draw the speeds of attention: FILE.png or .svg");
  command->add_option("--save", args->save, "write the JSON to a file, too");
  command->add_flag("--json", args->json, "print one JSON object instead");
  command->callback([args, &code] { code = Bench(*args); });
}

}  // namespace locus::cli
