#include "lab/cost.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>

#include "locus/error.h"

namespace locus::lab {
namespace {

// A line of /proc/self/status, in bytes: "VmRSS" is what the process holds,
// "VmHWM" the most that it held since the last reset.
int64_t StatusBytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(field + ":")) {
      return std::stoll(line.substr(field.size() + 1)) * 1024;
    }
  }
  throw Error(fmt::format("/proc/self/status has no line {}", field));
}

// Gives freed memory back to the system and restarts VmHWM from what is held.
void ResetPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace

std::vector<StepCost> MeasureSteps(std::span<const RunSpec> specs,
                                   const Corpus* corpus, int rounds) {
  if (rounds < 1) {
    throw Error(fmt::format("rounds must be positive, got {}", rounds));
  }
  std::vector<std::unique_ptr<Run>> runs;
  std::vector<std::vector<double>> seconds(specs.size());
  std::vector<StepCost> costs(specs.size());
  for (const RunSpec& spec : specs) {
    runs.push_back(std::make_unique<Run>(spec, corpus));
    runs.back()->Step();
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < runs.size(); ++i) {
      ResetPeak();
      const int64_t before = StatusBytes("VmRSS");
      const auto start = std::chrono::steady_clock::now();
      runs[i]->Step();
      const std::chrono::duration<double> took =
          std::chrono::steady_clock::now() - start;
      seconds[i].push_back(took.count());
      costs[i].peak_memory_bytes =
          std::max(costs[i].peak_memory_bytes, StatusBytes("VmHWM") - before);
    }
  }
  for (size_t i = 0; i < costs.size(); ++i) {
    std::ranges::sort(seconds[i]);
    costs[i].seconds = seconds[i][seconds[i].size() / 2];
    costs[i].low = seconds[i].front();
    costs[i].high = seconds[i].back();
  }
  return costs;
}

}  // namespace locus::lab
