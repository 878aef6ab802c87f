#include "core/cpus.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "locus/threads.h"

namespace locus {

int UsableCpus() {
  // An atomic instead of a lock, which a forked process might inherit locked;
  // determining the number twice is harmless.
  static std::atomic<int> known{0};
  int cpus = known.load(std::memory_order_relaxed);
  if (cpus == 0) {
    const double quota = std::ceil(CpuQuota(""));
    cpus = AffinityCpus();
    if (quota < cpus) cpus = std::max(1, static_cast<int>(quota));
    known.store(cpus, std::memory_order_relaxed);
  }
  return cpus;
}

}  // namespace locus
