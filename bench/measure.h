// Fair comparisons: an encoding, plain attention and the machine's own limit
// are timed interleaved, and reported as medians with their spread.
#ifndef LOCUS_BENCH_MEASURE_H_
#define LOCUS_BENCH_MEASURE_H_

#include <functional>
#include <vector>

#include "bench/case.h"

namespace locus::bench {

// A clock that only goes forward.
double Seconds();

// Median, least and greatest of a few runs.
struct Spread {
  Spread() = default;
  explicit Spread(std::vector<double> runs);

  double median = 0.0;
  double low = 0.0;
  double high = 0.0;
};

// Called between runs; may throw to stop.
using Between = std::function<void()>;

struct SpeedRow {
  CallSpec spec = {};
  Direction direction = Direction::kForward;
  int repeats = 0;
  Spread milliseconds = {};
  Spread gflops = {};
  Spread of_peak = {};   // of the multiply-add rate, measured before each pair
  Spread of_plain = {};  // time of plain attention over time of this
  double error = 0.0;    // at ShortLength(spec.length)
};

// `plain` and `with` are calls of one shape; they may be the same. `error` is
// left alone.
SpeedRow MeasureSpeed(Case& plain, Case& with, Direction direction, int repeats,
                      const Between& between);

}  // namespace locus::bench

#endif  // LOCUS_BENCH_MEASURE_H_
