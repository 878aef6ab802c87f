// short_calls: does a helper run in parallel with its caller, or alternate with
// it?
//
// Makes short parallel calls one after another, like a program that runs a
// small model: first on one thread, then on two of the library's own. Prints
// one line of JSON: the median times, how often helper and caller were on
// different CPUs when a task of the helper began, and how often on the same
// one. Run many times by short_calls.py.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <thread>
#include <vector>

#include "core/threads.h"
#include "locus/threads.h"

#if defined(__linux__)
#include <sched.h>
#else
int sched_getcpu() { return -1; }
#endif

namespace locus::testing {
namespace {

// Roughly like attention on 8 heads of 512 tokens with D = 64.
constexpr int64_t kTasks = 16;
constexpr double kTaskSeconds = 280e-6;
constexpr int kCalls = 60;

double Seconds() {
  using std::chrono::steady_clock;
  return std::chrono::duration<double>(steady_clock::now().time_since_epoch())
      .count();
}

// Work without shared data: a chain of multiply-adds.
void Compute(int64_t steps) {
  float x = 1.0f;
  for (int64_t n = 0; n < steps; ++n) x = x * 0.999f + 1.0f;
  static std::atomic<float> kept;
  kept.store(x, std::memory_order_relaxed);
}

// How many steps take kTaskSeconds; other load can only increase the time.
int64_t StepsOfATask() {
  constexpr int64_t kSteps = 20000;
  double least = std::numeric_limits<double>::infinity();
  for (int n = 0; n < 40; ++n) {
    const double start = Seconds();
    Compute(kSteps);
    least = std::min(least, Seconds() - start);
  }
  return static_cast<int64_t>(kTaskSeconds / least * kSteps);
}

struct Counts {
  double milliseconds = 0.0;  // median of a call
  int apart = 0;              // tasks of the helper, by where the caller was
  int together = 0;
};

Counts Measure(int threads, int64_t steps) {
  const auto caller = std::this_thread::get_id();
  std::vector<double> times;
  std::atomic<int> apart{0}, together{0};
  for (int call = 0; call < kCalls; ++call) {
    std::atomic<int> caller_cpu{sched_getcpu()};
    const double start = Seconds();
    ParallelFor(kTasks, threads, [&](int64_t) noexcept {
      const int cpu = sched_getcpu();
      if (std::this_thread::get_id() == caller) {
        caller_cpu = cpu;
      } else {
        ++(cpu == caller_cpu ? together : apart);
      }
      Compute(steps);
    });
    times.push_back(Seconds() - start);
  }
  std::ranges::sort(times);
  return {.milliseconds = 1e3 * times[times.size() / 2],
          .apart = apart,
          .together = together};
}

int Main() {
  SetParallelBackend(OwnThreads);
  const int64_t steps = StepsOfATask();
  const Counts one = Measure(/*threads=*/1, steps);
  const Counts two = Measure(/*threads=*/2, steps);
  fmt::print(
      "{{\"cpus\": {}, \"one_ms\": {:.3f}, \"two_ms\": {:.3f}, "
      "\"apart\": {}, \"together\": {}}}\n",
      UsableCpus(), one.milliseconds, two.milliseconds, two.apart,
      two.together);
  return 0;
}

}  // namespace
}  // namespace locus::testing

int main() { return locus::testing::Main(); }
