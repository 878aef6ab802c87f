// Processes, pages and CPUs on POSIX systems. Linux-only functions do nothing
// elsewhere.
#include <pthread.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#endif

#include <algorithm>
#include <memory>
#include <thread>

#include "core/cpus.h"
#include "core/os.h"

namespace locus {
namespace os {

int AtFork(void (*before)(), void (*parent)(), void (*child)()) {
  return pthread_atfork(before, parent, child);
}

int ProcessId() { return getpid(); }

#if defined(__linux__)

void AdviseLargePages(void* data, size_t bytes) {
  madvise(data, bytes, MADV_HUGEPAGE);
}

int CurrentCpu() { return sched_getcpu(); }

// Restoring the original mask afterwards does not move the thread back.
void MoveOff(int cpu) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<size_t>(cpu), &others);
  if (CPU_COUNT(&others) == 0) return;
  if (sched_setaffinity(0, sizeof(others), &others) != 0) return;
  sched_setaffinity(0, sizeof(allowed), &allowed);
}

#else

void AdviseLargePages(void*, size_t) {}
int CurrentCpu() { return -1; }
void MoveOff(int) {}

#endif

}  // namespace os

int AffinityCpus() {
#if defined(__linux__)
  // The kernel rejects masks with fewer bits than it has CPUs.
  for (size_t cpus = 1024; cpus <= size_t{1} << 20; cpus *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(cpus), [](cpu_set_t* s) { CPU_FREE(s); });
    if (!set) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (sched_getaffinity(0, bytes, set.get()) == 0) {
      return std::max(1, CPU_COUNT_S(bytes, set.get()));
    }
  }
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace locus
