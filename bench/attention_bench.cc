// Attention with every encoding of the list, forward and backward.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/case.h"
#include "bench/families.h"
#include "bench/measure.h"
#include "locus/error.h"
#include "locus/machine.h"

namespace locus::bench {
namespace {

struct Sizes {
  int64_t length, dim, heads;
};
// A short call, the usual one, and those of large models.
constexpr Sizes kSizes[] = {{128, 64, 8},    {2048, 64, 8},  {2048, 64, 16},
                            {2048, 128, 16}, {8192, 64, 16}, {8192, 128, 16}};

std::string NameOf(const CallSpec& spec, Direction direction) {
  return fmt::format("{}/{}/{}/{}/L:{}/D:{}/H:{}",
                     direction == Direction::kForward ? "AttnFwd" : "AttnBwd",
                     spec.encoding, DTypeName(spec.dtype),
                     spec.causal ? "causal" : "full", spec.length, spec.dim,
                     spec.heads);
}

// What a benchmark needs, kept while its number of iterations is sought: the
// library calls the function anew for each guess.
struct Prepared {
  Prepared(const CallSpec& spec, Direction direction)
      : with(spec), plain(PlainOf(spec)), error(ShortError(spec, direction)) {
    with.Time(direction);
    plain.Time(direction);
  }
  static CallSpec PlainOf(CallSpec spec) {
    spec.encoding = "none";
    return spec;
  }

  Case with;
  Case plain;
  double error;
};

Prepared& Prepare(const CallSpec& spec, Direction direction) {
  static std::string name;
  static std::unique_ptr<Prepared> prepared;
  const std::string wanted = NameOf(spec, direction);
  if (name != wanted) {
    prepared.reset();
    prepared = std::make_unique<Prepared>(spec, direction);
    name = wanted;
  }
  return *prepared;
}

// The rate of multiply-adds near now: measuring it takes milliseconds, so that
// short calls share one figure.
double PeakGflops(int threads) {
  constexpr double kFresh = 0.05;  // seconds
  static double when = -1.0, peak = 0.0;
  if (when < 0.0 || Seconds() - when > kFresh) {
    peak = MeasureFmaGflops(threads);
    when = Seconds();
  }
  return peak;
}

// Plain attention is timed beside every iteration, off the library's clock.
void Run(benchmark::State& state, const CallSpec& spec, Direction direction) {
  Prepared& prepared = Prepare(spec, direction);
  const double operations = spec.Operations(direction);
  std::vector<double> gflops, of_peak, of_plain;
  for (auto _ : state) {
    state.PauseTiming();
    const double peak = PeakGflops(spec.threads);
    const double base = prepared.plain.Time(direction);
    state.ResumeTiming();
    const double mine = prepared.with.Time(direction);
    gflops.push_back(operations / mine / 1e9);
    of_peak.push_back(gflops.back() / peak);
    of_plain.push_back(base / mine);
  }
  state.counters["GFLOP/s"] = Spread(gflops).median;
  state.counters["of_fma_peak"] = Spread(of_peak).median;
  state.counters["of_plain"] = Spread(of_plain).median;
  state.counters["error"] = prepared.error;
}

}  // namespace

void RegisterAttention(int threads) {
  for (const Direction direction :
       {Direction::kForward, Direction::kBackward}) {
    for (const std::string& encoding : AttentionEncodings()) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        for (const bool causal : {false, true}) {
          for (const Sizes& sizes : kSizes) {
            const CallSpec spec{.encoding = encoding,
                                .dtype = dtype,
                                .causal = causal,
                                .heads = sizes.heads,
                                .length = sizes.length,
                                .dim = sizes.dim,
                                .threads = threads};
            benchmark::RegisterBenchmark(
                NameOf(spec, direction).c_str(),
                [spec, direction](benchmark::State& state) {
                  try {
                    Run(state, spec, direction);
                  } catch (const Error& e) {
                    state.SkipWithError(e.what());
                  }
                })
                ->Unit(benchmark::kMillisecond);
          }
        }
      }
    }
  }
}

}  // namespace locus::bench
