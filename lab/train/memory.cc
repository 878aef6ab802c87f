#include "lab/train/memory.h"

#include <fmt/format.h>
#include <malloc.h>

#include <fstream>
#include <string>

#include "locus/error.h"

namespace locus::lab {
namespace {

// The value of a line of /proc/self/status, in bytes.
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

}  // namespace

int64_t ResidentBytes() { return StatusBytes("VmRSS"); }
int64_t PeakBytes() { return StatusBytes("VmHWM"); }

void ResetPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace locus::lab
