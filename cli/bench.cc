// locus bench: how fast attention is with each encoding, and how much memory it
// needs, against this machine's own limits and against plain attention.
#include "cli/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "cli/bench_progress.h"
#include "locus/error.h"

namespace locus::cli {
namespace {

using bench::CallSpec;
using bench::Case;
using bench::Direction;

constexpr Direction kDirections[] = {Direction::kForward, Direction::kBackward};

// As they come from the command line.
struct BenchArgs {
  std::vector<std::string> encodings = {"alibi", "t5",     "kerple",
                                        "rope",  "shaw",   "transformer-xl",
                                        "tupe",  "deberta"};
  std::string mask = {};
  std::string dtype = "f32";
  std::string heads = "16";
  std::string length = "0";
  std::string dim = "64";
  std::string threads = "0";
  std::string repeats = "0";
  bool attention = false;
  bool memory = false;
  bool growth = false;
  std::string chart = {};
  std::string save = {};
  bool json = false;
};

// "none" first, "all" spelled out, each once.
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

BenchPlan PlanOf(const BenchArgs& args) {
  // Longer calls take hours, and their reference tables do not fit a machine.
  constexpr int64_t kMostLength = int64_t{1} << 20;
  BenchPlan plan;
  plan.encodings = EncodingNames(args.encodings);
  plan.dtype = args.dtype == "bf16"  ? DType::kBF16
               : args.dtype == "f16" ? DType::kF16
                                     : DType::kF32;
  plan.masks = args.mask == "full"     ? Masks::kFull
               : args.mask == "causal" ? Masks::kCausal
                                       : Masks::kBoth;
  plan.heads = ReadNumber("--heads", args.heads, 1, 1024);
  plan.dim = ReadNumber("--dim", args.dim, 1, 1024);
  plan.length = ReadNumber("--length", args.length, 0, kMostLength);
  plan.threads =
      static_cast<int>(ReadNumber("--threads", args.threads, 0, 1024));
  if (plan.threads == 0) {
    plan.threads =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  plan.repeats =
      static_cast<int>(ReadNumber("--repeats", args.repeats, 0, 1000));
  const bool chosen = args.attention || args.memory || args.growth;
  plan.attention = args.attention || !chosen;
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

// The masks of a section; memory and growth take one unless told otherwise.
std::vector<bool> CausalOrNot(Masks masks, bool both) {
  switch (masks) {
    case Masks::kFull:
      return {false};
    case Masks::kCausal:
      return {true};
    case Masks::kBoth:
      break;
  }
  return both ? std::vector<bool>{false, true} : std::vector<bool>{false};
}

std::string What(const CallSpec& spec, Direction direction) {
  return fmt::format("{} {} {}", spec.encoding, bench::DirectionName(direction),
                     spec.causal ? "causal" : "full");
}

// Measures what is planned, telling each row as it comes if `tell`.
class Runner {
 public:
  Runner(const BenchPlan& plan, bool tell)
      : plan_(plan), tell_(tell), progress_(Steps(plan)) {}

  BenchResults Run() {
    // Children first: they must be born before threads are.
    progress_.Show("this machine");
    MeasureLimits();
    Print(HeaderText(plan_, results_.machine));
    if (plan_.memory) Memory();
    if (plan_.growth) Growth();
    if (plan_.attention) Attention();
    progress_.Clear();
    return std::move(results_);
  }

 private:
  static int Steps(const BenchPlan& plan) {
    const size_t rows = 2 * plan.encodings.size();
    const size_t masks = CausalOrNot(plan.masks, true).size();
    return static_cast<int>(1 + (plan.memory ? rows : 0) +
                            (plan.growth ? rows : 0) +
                            (plan.attention ? rows * masks : 0));
  }

  void Print(const std::string& text) {
    if (!tell_) return;
    progress_.Clear();
    Emit(text);
  }

  void MeasureLimits() {
    const std::vector<double> found = bench::RunInChild([this] {
      const MachineLimits m = MeasureMachine(plan_.threads);
      return std::vector<double>{m.fma_gflops, m.read_gb_per_s, m.copy_gb_per_s,
                                 m.update_gb_per_s};
    });
    results_.machine = {.fma_gflops = found[0],
                        .read_gb_per_s = found[1],
                        .copy_gb_per_s = found[2],
                        .update_gb_per_s = found[3]};
  }

  // Calls measure(spec, direction) for every row of a section in children.
  template <typename Measure>
  void EachLong(const char* what, const Measure& measure) {
    for (const Direction direction : kDirections) {
      for (const bool causal : CausalOrNot(plan_.masks, /*both=*/false)) {
        for (const std::string& name : plan_.encodings) {
          const CallSpec spec = plan_.Spec(name, causal, kLongLength);
          progress_.Show(fmt::format("{} of {}", what, What(spec, direction)));
          measure(spec, direction);
        }
      }
    }
  }

  void Memory() {
    Print(MemoryTitle(plan_));
    EachLong("memory", [this](const CallSpec& spec, Direction direction) {
      results_.memory.push_back(bench::MeasureMemory(spec, direction));
      Print(RowText(results_.memory.back()));
    });
    Print(Meaning(results_.memory));
  }

  void Growth() {
    Print(GrowthTitle(plan_));
    const int repeats = plan_.Repeats(kGrowthRepeats);
    EachLong("growth", [&](const CallSpec& spec, Direction direction) {
      results_.growth.push_back(bench::MeasureGrowth(spec, direction, repeats));
      Print(RowText(results_.growth.back()));
    });
    Print(Meaning(results_.growth));
  }

  void Attention() {
    Print(SpeedTitle(plan_));
    for (const Direction direction : kDirections) {
      for (const bool causal : CausalOrNot(plan_.masks, /*both=*/true)) {
        Case plain(plan_.Spec("none", causal, kSpeedLength));
        for (const std::string& name : plan_.encodings) {
          const CallSpec spec = plan_.Spec(name, causal, kSpeedLength);
          progress_.Show(What(spec, direction));
          bench::SpeedRow row;
          if (name == "none") {
            row = Speed(plain, plain, direction);
          } else {
            Case with(spec);
            row = Speed(plain, with, direction);
          }
          row.error = bench::ShortError(spec, direction);
          results_.attention.push_back(row);
          Print(RowText(row));
        }
      }
    }
    Print(Meaning(results_.attention));
  }

  bench::SpeedRow Speed(Case& plain, Case& with, Direction direction) const {
    return bench::MeasureSpeed(plain, with, direction,
                               plan_.Repeats(kSpeedRepeats),
                               [] { Progress::Check(); });
  }

  const BenchPlan& plan_;
  bool tell_;
  Progress progress_;
  BenchResults results_;
};

// Writes beside `path` and renames, so that a reader never sees half of it.
void Save(const Json& json, const std::string& path) {
  const std::string beside = path + ".part";
  std::ofstream file(beside);
  file << json.dump(2) << "\n" << std::flush;
  if (!file || std::rename(beside.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(beside.c_str());
    throw Error(fmt::format("cannot write {}: {}", path, why));
  }
}

int Bench(const BenchArgs& args) {
  const BenchPlan plan = PlanOf(args);
  const auto interrupted = [] {
    fmt::print(stderr, "locus: interrupted\n");
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
    return kAnswerIsNo;
  };
  try {
    const BenchResults results = Runner(plan, /*tell=*/!args.json).Run();
    const Json json = ResultsJson(plan, results);
    if (!args.save.empty()) Save(json, args.save);
    if (!args.chart.empty()) DrawSpeeds(plan, results.attention, args.chart);
    if (args.json) EmitJson(json);
    return kFine;
  } catch (const Interrupted&) {
    return interrupted();
  } catch (const Error&) {
    // A child that was told to stop ends in an error, too.
    if (Progress::WasInterrupted()) return interrupted();
    throw;
  }
}

}  // namespace

CallSpec BenchPlan::Spec(const std::string& encoding, bool causal,
                         int64_t usual_length) const {
  return {.encoding = encoding,
          .dtype = dtype,
          .causal = causal,
          .heads = heads,
          .length = length > 0 ? length : usual_length,
          .dim = dim,
          .threads = threads};
}

void AddBench(CLI::App& app, int& code) {
  auto* command = app.add_subcommand(
      "bench", "Measure attention with each encoding against this machine.");
  command->footer(
      "Examples:\n  locus bench --encodings alibi,rope --length 1024\n"
      "  locus bench --chart speed.png --save speed.json\n"
      "  locus bench --memory --growth --encodings shaw\n\n"
      "Plain attention (none) is always measured, too, turn about with each "
      "encoding.\nJSON: {version, threads, simd, machine, attention, memory, "
      "growth}; a section that\nwas not asked for is null.");
  const auto args = std::make_shared<BenchArgs>();
  command->add_flag("--attention", args->attention,
                    "time forward and backward passes; the default");
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
      ->add_option("--mask", args->mask,
                   "full, causal or both; memory and growth: full")
      ->check(CLI::IsMember({"full", "causal", "both"}));
  command->add_option("--dtype", args->dtype, "f32, bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  command->add_option(
      "--length", args->length,
      fmt::format("queries and keys; 0: {}, memory and growth {}", kSpeedLength,
                  kLongLength));
  command->add_option("--dim", args->dim, "channels of a head")
      ->capture_default_str();
  command->add_option("--heads", args->heads, "number of heads")
      ->capture_default_str();
  command->add_option("--threads", args->threads, "threads; 0: all")
      ->capture_default_str();
  command->add_option("--repeats", args->repeats,
                      fmt::format("runs of each case; 0: {}, growth {}",
                                  kSpeedRepeats, kGrowthRepeats));
  command->add_option("--chart", args->chart,
                      "draw the speeds of attention: FILE.png or .svg");
  command->add_option("--save", args->save, "write the JSON to a file, too");
  command->add_flag("--json", args->json, "print one JSON object instead");
  command->callback([args, &code] { code = Bench(*args); });
}

}  // namespace locus::cli
