#include "lab/train/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "lab/train/memory.h"
#include "locus/error.h"

namespace locus::lab {
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
      const int64_t before = ResidentBytes();
      const auto start = std::chrono::steady_clock::now();
      runs[i]->Step();
      const std::chrono::duration<double> took =
          std::chrono::steady_clock::now() - start;
      seconds[i].push_back(took.count());
      costs[i].peak_memory_bytes =
          std::max(costs[i].peak_memory_bytes, PeakBytes() - before);
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
