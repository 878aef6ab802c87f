// Decoding and rotation, against the machine's bandwidth.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/case.h"
#include "bench/families.h"
#include "bench/measure.h"
#include "bench/stream.h"
#include "locus/error.h"
#include "locus/machine.h"

namespace locus::bench {
namespace {

std::string NameOf(const StreamSpec& spec) {
  const bool decode = spec.stream == Stream::kDecode;
  return fmt::format(
      "{}/{}/{}/L:{}/D:{}/H:{}/K:{}", decode ? "Decode" : "Rotate",
      decode ? std::string_view(spec.encoding) : LayoutName(spec.layout),
      DTypeName(spec.dtype), spec.length, spec.dim, spec.q_heads,
      spec.kv_heads);
}

// Kept while the number of iterations is sought, as for attention.
struct Prepared {
  explicit Prepared(const StreamSpec& spec)
      : with(spec), error(StreamError(spec)) {
    if (spec.stream == Stream::kDecode) {
      plain = std::make_unique<StreamCase>(spec.Plain());
      plain->Time();
    }
    with.Time();
  }

  StreamCase with;
  std::unique_ptr<StreamCase> plain;
  double error;
};

Prepared& Prepare(const StreamSpec& spec) {
  static std::string name;
  static std::unique_ptr<Prepared> prepared;
  const std::string wanted = NameOf(spec);
  if (name != wanted) {
    prepared.reset();
    prepared = std::make_unique<Prepared>(spec);
    name = wanted;
  }
  return *prepared;
}

// The bandwidth near now: measuring it takes a tenth of a second.
double LimitNow(const StreamSpec& spec) {
  constexpr double kFresh = 0.5;  // seconds
  static double when = -1.0;
  static MachineLimits machine;
  if (when < 0.0 || Seconds() - when > kFresh) {
    machine = MeasureMachine(spec.threads);
    when = Seconds();
  }
  return spec.Limit(machine);
}

void Run(benchmark::State& state, const StreamSpec& spec) {
  Prepared& prepared = Prepare(spec);
  std::vector<double> rates, of_limit, of_plain;
  for (auto _ : state) {
    state.PauseTiming();
    const double limit = LimitNow(spec);
    const double base = prepared.plain ? prepared.plain->Time() : 0.0;
    state.ResumeTiming();
    const double mine = prepared.with.Time();
    rates.push_back(spec.Bytes() / mine);
    of_limit.push_back(rates.back() / limit);
    of_plain.push_back(base / mine);
  }
  state.counters["bytes/s"] = Spread(rates).median;
  state.counters[spec.stream == Stream::kDecode ? "of_read_bandwidth"
                                                : "of_update_bandwidth"] =
      Spread(of_limit).median;
  if (prepared.plain) state.counters["of_plain"] = Spread(of_plain).median;
  state.counters["error"] = prepared.error;
}

void Register(const StreamSpec& spec) {
  benchmark::RegisterBenchmark(NameOf(spec).c_str(),
                               [spec](benchmark::State& state) {
                                 try {
                                   Run(state, spec);
                                 } catch (const Error& e) {
                                   state.SkipWithError(e.what());
                                 }
                               })
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

void RegisterStreams(int threads) {
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16,
                              DType::kI8};
  for (const std::string& encoding : AttentionEncodings()) {
    for (const DType dtype : kTypes) {
      for (const int64_t length : {128, 8192}) {
        Register({.stream = Stream::kDecode,
                  .encoding = encoding,
                  .dtype = dtype,
                  .length = length,
                  .threads = threads});
      }
    }
  }
  for (const PairLayout layout :
       {PairLayout::kInterleaved, PairLayout::kHalves}) {
    for (const DType dtype : kTypes) {
      if (dtype == DType::kI8) continue;
      for (const int64_t length : {128, 4096}) {
        Register({.stream = Stream::kRotate,
                  .layout = layout,
                  .dtype = dtype,
                  .length = length,
                  .threads = threads});
      }
    }
  }
}

}  // namespace locus::bench
