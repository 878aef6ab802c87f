// locus bench: how fast attention is with each encoding, against this machine's
// own limits and against plain attention, measured in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <thread>

#include "cli/app.h"
#include "locus/locus.h"

namespace locus::cli {
namespace {

struct BenchArgs {
  std::vector<std::string> encodings = {"alibi", "t5",     "kerple",
                                        "rope",  "shaw",   "transformer-xl",
                                        "tupe",  "deberta"};
  int64_t length = 2048;
  int64_t dim = 64;
  int64_t heads = 16;
  int threads = 0;
  int repeats = 5;
  bool json = false;
};

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Median, least and greatest of a few runs.
struct Spread {
  explicit Spread(std::vector<double> runs) {
    std::ranges::sort(runs);
    median = runs[runs.size() / 2];
    low = runs.front();
    high = runs.back();
  }
  double median = 0.0, low = 0.0, high = 0.0;
};

Tensor RandomInput(std::vector<int64_t> shape, uint64_t seed) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t state = seed;
  for (float& value : values) {
    // The sum of four uniform bytes' worth: near enough to a normal variable.
    float sum = -2.0F;
    for (int n = 0; n < 4; ++n) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      sum += static_cast<float>(state >> 40) * 0x1p-24F;
    }
    value = 1.7F * sum;
  }
  return Tensor::From(std::move(shape), std::move(values));
}

// One encoding on one call, ready to run.
struct Case {
  Case(const std::string& name, const BenchArgs& args, int64_t length,
       bool is_causal)
      : causal(is_causal) {
    ExampleConfig config{
        .heads = args.heads, .head_dim = args.dim, .length = length};
    // The sizes of real models: Shaw's clip of 128, DeBERTa's 256 buckets.
    if (name == "shaw") config.options["clip"] = "128";
    if (name == "deberta") {
      config.options = {{"buckets", "256"}, {"max_distance", "512"}};
    }
    const std::vector<int64_t> shape = {1, args.heads, length, args.dim};
    q = RandomInput(shape, 1);
    k = RandomInput(shape, 2);
    v = RandomInput(shape, 3);
    d_out = RandomInput(shape, 4);
    options.causal = causal;
    options.threads = args.threads;
    options.return_lse = true;
    if (name == "mrope") {
      for (int64_t i = 0; i < length; ++i) {
        positions.push_back(PackPosition(i, i, i));
      }
      options.q_positions = options.k_positions = positions;
    }
    const CallSizes sizes = CheckCall(q, k, v, options);
    terms = FindEncoding(name)
                .example(config)
                ->Lower(CallMask(sizes, options).ShapeOf(sizes, options))
                .terms;
    forward = Attention(q, k, v, terms, options);
  }

  double ForwardSeconds() const {
    const double start = Seconds();
    Attention(q, k, v, terms, options);
    return Seconds() - start;
  }
  double BackwardSeconds() const {
    const double start = Seconds();
    AttentionBackward(d_out, q, k, v, forward, terms, options);
    return Seconds() - start;
  }
  // Largest difference from the float64 reference, over the largest value.
  double Error() const {
    const std::vector<double> exact =
        reference::Attention(q, k, v, terms, options).out.ToVector();
    const std::vector<double> fused = forward.out.ToVector();
    double worst = 0.0, largest = 1e-30;
    for (size_t n = 0; n < exact.size(); ++n) {
      worst = std::max(worst, std::abs(exact[n] - fused[n]));
      largest = std::max(largest, std::abs(exact[n]));
    }
    return worst / largest;
  }

  bool causal;
  Tensor q, k, v, d_out;
  std::vector<int64_t> positions;
  AttentionOptions options;
  Terms terms;
  AttentionResult forward;
};

struct Result {
  std::string name = {};
  bool causal = false;
  bool backward = false;
  double milliseconds = 0.0;
  Spread of_peak{{0.0}};
  Spread of_plain{{0.0}};
  double error = 0.0;
};

// Plain attention and an encoding, turn about, with the machine's FMA rate
// before each pair.
Result Measure(const std::string& name, const BenchArgs& args, bool causal,
               bool backward) {
  const Case plain("none", args, args.length, causal);
  const Case with(name, args, args.length, causal);
  const double n = static_cast<double>(args.length);
  const double operations = (backward ? 10.0 : 4.0) * n * n *
                            static_cast<double>(args.dim * args.heads) /
                            (causal ? 2.0 : 1.0);
  const auto time = [backward](const Case& c) {
    return backward ? c.BackwardSeconds() : c.ForwardSeconds();
  };
  std::vector<double> of_peak, of_plain, times;
  for (int run = 0; run < args.repeats; ++run) {
    const double peak = MeasureFmaGflops(args.threads);
    const double base = time(plain);
    const double mine = time(with);
    of_peak.push_back(operations / mine / 1e9 / peak);
    of_plain.push_back(base / mine);
    times.push_back(mine);
  }
  Result result;
  result.name = name;
  result.causal = causal;
  result.backward = backward;
  result.milliseconds = Spread(times).median * 1e3;
  result.of_peak = Spread(of_peak);
  result.of_plain = Spread(of_plain);
  // The reference is quadratic in time: judge a shorter call.
  result.error =
      Case(name, args, std::min<int64_t>(args.length, 200), causal).Error();
  return result;
}

Json ResultJson(const Result& r) {
  const auto spread = [](const Spread& s) {
    return Json{{"median", s.median}, {"low", s.low}, {"high", s.high}};
  };
  return {{"encoding", r.name},
          {"direction", r.backward ? "backward" : "forward"},
          {"causal", r.causal},
          {"milliseconds", r.milliseconds},
          {"of_fma_peak", spread(r.of_peak)},
          {"of_plain", spread(r.of_plain)},
          {"error", r.error}};
}

int Bench(const BenchArgs& args) {
  for (const std::string& name : args.encodings) FindEncoding(name);
  const int threads =
      args.threads > 0
          ? args.threads
          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const MachineLimits limits = MeasureMachine(args.threads);
  if (!args.json) {
    Emit(fmt::format(
        "{} thread(s), {}: {:.0f} GFLOP/s multiply-add; {:.1f} GB/s read, "
        "{:.1f} "
        "copy, {:.1f} in place\nattention on [1, {}, {}, {}] f32; medians of "
        "{} (least .. most); error against float64 at length {}\n\n{:<16} "
        "{:<9} {:<7} {:>9}  {:<21} {:<21} {:>8}\n",
        threads, SimdTarget(), limits.fma_gflops, limits.read_gb_per_s,
        limits.copy_gb_per_s, limits.update_gb_per_s, args.heads, args.length,
        args.dim, args.repeats, std::min<int64_t>(args.length, 200), "encoding",
        "direction", "mask", "ms", "of FMA peak", "of plain", "error"));
  }
  Json rows = Json::array();
  std::vector<std::string> names = {"none"};
  names.insert(names.end(), args.encodings.begin(), args.encodings.end());
  for (const bool backward : {false, true}) {
    for (const bool causal : {false, true}) {
      for (const std::string& name : names) {
        const Result r = Measure(name, args, causal, backward);
        rows.push_back(ResultJson(r));
        if (args.json) continue;
        Emit(fmt::format(
            "{:<16} {:<9} {:<7} {:>9.1f}  {:.3f} ({:.3f} .. {:.3f})  {:.3f} "
            "({:.3f} .. {:.3f})  {:>8.1e}\n",
            r.name, backward ? "backward" : "forward",
            causal ? "causal" : "full", r.milliseconds, r.of_peak.median,
            r.of_peak.low, r.of_peak.high, r.of_plain.median, r.of_plain.low,
            r.of_plain.high, r.error));
      }
    }
  }
  if (args.json) {
    EmitJson({{"version", Version()},
              {"threads", threads},
              {"simd", SimdTarget()},
              {"machine",
               {{"fma_gflops", limits.fma_gflops},
                {"read_gb_per_s", limits.read_gb_per_s},
                {"copy_gb_per_s", limits.copy_gb_per_s},
                {"update_gb_per_s", limits.update_gb_per_s}}},
              {"heads", args.heads},
              {"length", args.length},
              {"dim", args.dim},
              {"repeats", args.repeats},
              {"results", rows}});
  }
  return kFine;
}

}  // namespace

void AddBench(CLI::App& app, int& code) {
  auto* command = app.add_subcommand(
      "bench", "Measure attention with each encoding against this machine");
  command->footer(
      "Example:\n  locus bench --encodings alibi,rope --length 1024");
  const auto args = std::make_shared<BenchArgs>();
  command->add_option("--encodings", args->encodings, "Names, comma-separated")
      ->delimiter(',');
  command->add_option("--length", args->length, "Queries and keys")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--dim", args->dim, "Channels of a head")
      ->check(CLI::Range(1, 1024));
  command->add_option("--heads", args->heads, "Heads")
      ->check(CLI::Range(1, 1024));
  command->add_option("--threads", args->threads, "Threads; 0: all")
      ->check(CLI::Range(0, 1024));
  command->add_option("--repeats", args->repeats, "Runs of each case")
      ->check(CLI::Range(1, 1000));
  command->add_flag("--json", args->json, "Print one JSON object");
  command->callback([args, &code] { code = Bench(*args); });
}

}  // namespace locus::cli
