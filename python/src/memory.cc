#include "memory.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <limits>

#include "values.h"

namespace locus::python {
namespace {

// Bytes that can still be had, by the kernel's own estimate; where it gives
// none, all that the machine has.
int64_t Available() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t value = 0;
  while (file >> key >> value) {
    if (key == "MemAvailable:") return value * 1024;
    std::getline(file, unit);
  }
  const int64_t pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && size > 0 ? pages * size
                               : std::numeric_limits<int64_t>::max();
}

std::string Gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB", bytes * 1e-9);
  return text;
}

}  // namespace

void RequireMemory(const std::string& what, int64_t count, int64_t bytes) {
  // Below this, looking costs more than it can save.
  constexpr int64_t kSmall = int64_t{1} << 28;
  int64_t needed = 0;
  const bool overflow = __builtin_mul_overflow(count, bytes, &needed);
  if (!overflow && needed < kSmall) return;
  const int64_t available = Available();
  if (!overflow && needed <= available) return;
  Raise(PyExc_MemoryError,
        what + " needs " +
            Gigabytes(static_cast<double>(count) * static_cast<double>(bytes)) +
            " of memory, and " + Gigabytes(static_cast<double>(available)) +
            " are available");
}

}  // namespace locus::python
