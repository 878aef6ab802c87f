#include "lab/compare_job.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "locus/error.h"

namespace locus::lab {
bool DoJob(const JobContext& context) {
  MakeFolder(context.study.JobFolder(context.job));
  if (context.job.kind != JobKind::kCost) return TrainAndEvaluate(context);
  Measure(context);
  return true;
}

Json NumberJson(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

double PeakMemory() {
  // Not getrusage: its peak includes the process before exec.
  std::ifstream status("/proc/self/status");
  std::string word;
  double kilobytes = 0;
  while (status >> word) {
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024.0;
  }
  return 0;
}

double Quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  const double part = at - static_cast<double>(low);
  return values[low] * (1.0 - part) + values[high] * part;
}

}  // namespace locus::lab
