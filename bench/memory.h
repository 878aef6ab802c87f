// How much memory a call needs, and how time and memory grow with the length.
//
// Each figure comes from a process of its own: what earlier calls left in the
// allocator or in the library's store of scratch memory would hide what a call
// needs.
#ifndef LOCUS_BENCH_MEMORY_H_
#define LOCUS_BENCH_MEMORY_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "bench/case.h"

namespace locus::bench {

// Runs `task` in a forked child and returns its numbers. Errors of the child
// are thrown here. The caller must have a single thread, so this comes before
// anything that runs on the library's pool; a caller with more is refused.
std::vector<double> RunInChild(
    const std::function<std::vector<double>()>& task);

struct MemoryRow {
  CallSpec spec = {};
  Direction direction = Direction::kForward;
  double extra_bytes = 0.0;   // peak of the call beyond inputs and outputs
  double output_bytes = 0.0;  // of the tensors that it returned
  double LimitBytes() const {
    // 64 MB for tiles and threads, and packed or rotated copies of inputs.
    return 64e6 + 4.0 * static_cast<double>(spec.QBytes());
  }
  bool Within() const { return extra_bytes <= LimitBytes(); }
};
MemoryRow MeasureMemory(const CallSpec& spec, Direction direction);

// The call at a quarter of its length and at its length.
struct GrowthRow {
  CallSpec spec = {};
  Direction direction = Direction::kForward;
  int repeats = 0;
  std::array<int64_t, 2> lengths = {};
  std::array<double, 2> milliseconds = {};  // medians
  std::array<double, 2> extra_bytes = {};
  double TimeRatio() const { return milliseconds[1] / milliseconds[0]; }
  double MemoryRatio() const { return extra_bytes[1] / extra_bytes[0]; }
};
GrowthRow MeasureGrowth(const CallSpec& spec, Direction direction, int repeats);

}  // namespace locus::bench

#endif  // LOCUS_BENCH_MEMORY_H_
