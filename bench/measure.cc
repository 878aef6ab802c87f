#include "bench/measure.h"

#include <algorithm>
#include <chrono>

#include "locus/machine.h"

namespace locus::bench {

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Spread::Spread(std::vector<double> runs) {
  std::ranges::sort(runs);
  const size_t half = runs.size() / 2;
  median =
      runs.size() % 2 == 1 ? runs[half] : 0.5 * (runs[half - 1] + runs[half]);
  low = runs.front();
  high = runs.back();
}

SpeedRow MeasureSpeed(Case& plain, Case& with, Direction direction, int repeats,
                      const Between& between) {
  const int threads = with.spec().threads;
  const double operations = with.spec().Operations(direction);
  // The first calls meet fresh memory.
  plain.Time(direction);
  between();
  with.Time(direction);
  std::vector<double> times, gflops, of_peak, of_plain;
  for (int run = 0; run < repeats; ++run) {
    between();
    const double peak = MeasureFmaGflops(threads);
    // Who goes first changes, in case the first of a pair has it easier.
    double base = 0.0, mine = 0.0;
    if (run % 2 == 0) base = plain.Time(direction);
    mine = with.Time(direction);
    if (run % 2 == 1) base = plain.Time(direction);
    times.push_back(mine * 1e3);
    gflops.push_back(operations / mine / 1e9);
    of_peak.push_back(gflops.back() / peak);
    of_plain.push_back(base / mine);
  }
  return {.spec = with.spec(),
          .direction = direction,
          .repeats = repeats,
          .milliseconds = Spread(times),
          .gflops = Spread(gflops),
          .of_peak = Spread(of_peak),
          .of_plain = Spread(of_plain)};
}

}  // namespace locus::bench
