// Linear time is required: exceeding it counts as a finding, like a crash.
#ifndef LOCUS_TESTS_MODELS_FUZZ_BUDGET_H_
#define LOCUS_TESTS_MODELS_FUZZ_BUDGET_H_

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace locus::models {

inline double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs `read`, and again if it took long, since other load on the machine may
// be the reason. With sanitizers a reader takes less than 1 us per byte; a
// quadratic comparison of 64 KiB of keys takes seconds.
template <typename Read>
void WithinBudget(size_t bytes, const Read& read) {
  const double budget = 0.2 + 4e-6 * static_cast<double>(bytes);
  double least = 1e9;
  for (int tries = 0; tries < 3; ++tries) {
    const double begin = CpuSeconds();
    read();
    least = std::min(least, CpuSeconds() - begin);
    if (least <= budget) return;
  }
  std::fprintf(stderr, "%zu bytes took %.2f s of CPU time, more than %.2f\n",
               bytes, least, budget);
  std::abort();
}

}  // namespace locus::models

#endif  // LOCUS_TESTS_MODELS_FUZZ_BUDGET_H_
