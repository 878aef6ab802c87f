// locus_bench: every benchmark by name, through Google Benchmark.
//
// Takes the library's flags and --threads=N. Without a filter it runs the usual
// call of every encoding, not the hundreds of others. This machine's limits
// stand in the context of the output, beside the CPU.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "bench/families.h"
#include "locus/error.h"
#include "locus/machine.h"
#include "locus/simd.h"
#include "locus/threads.h"
#include "locus/version.h"

namespace locus::bench {
namespace {

constexpr const char* kUsual =
    "--benchmark_filter=^Attn.*/f32/.*/L:2048/D:64/H:8$|"
    "^(Decode/(none|alibi|rope)/.*L:8192|Rotate/.*L:4096)/";

int Threads(std::string_view text) {
  int threads = 0;
  const auto [stop, error] =
      std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc() || stop != text.data() + text.size() ||
      threads < 1 || threads > 1024) {
    throw Error(fmt::format("--threads must lie in 1 .. 1024, got '{}'", text));
  }
  return threads;
}

int Main(int argc, char** argv) {
  constexpr std::string_view kThreads = "--threads=";
  int threads = UsableCpus();
  std::vector<char*> rest;
  bool filtered = false, listing = false;
  for (int n = 0; n < argc; ++n) {
    const std::string_view arg = argv[n];
    if (arg.starts_with(kThreads)) {
      threads = Threads(arg.substr(kThreads.size()));
      continue;
    }
    filtered = filtered || arg.starts_with("--benchmark_filter");
    listing = listing || arg.starts_with("--benchmark_list_tests");
    rest.push_back(argv[n]);
  }
  std::string usual = kUsual;
  if (!filtered && !listing) rest.push_back(usual.data());
  int count = static_cast<int>(rest.size());
  rest.push_back(nullptr);
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 2;
  threads = std::max(threads, 1);
  if (!listing) {
    const MachineLimits limits = MeasureMachine(threads);
    const auto add = [](const char* key, const std::string& value) {
      benchmark::AddCustomContext(key, value);
    };
    add("locus_version", Version());
    add("locus_simd", SimdTarget());
    add("locus_threads", fmt::format("{}", threads));
    add("fma_gflops", fmt::format("{:.1f}", limits.fma_gflops));
    add("read_gb_per_s", fmt::format("{:.2f}", limits.read_gb_per_s));
    add("copy_gb_per_s", fmt::format("{:.2f}", limits.copy_gb_per_s));
    add("update_gb_per_s", fmt::format("{:.2f}", limits.update_gb_per_s));
  }
  RegisterAttention(threads);
  RegisterStreams(threads);
  // Nothing by that name is a failure, or a test that filters would pass on it.
  const size_t run = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return run > 0 ? 0 : 1;
}

}  // namespace
}  // namespace locus::bench

int main(int argc, char** argv) {
  try {
    return locus::bench::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "locus_bench: {}\n", e.what());
    return 2;
  }
}
