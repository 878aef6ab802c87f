#include "lab/study/job.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "lab/study/worker.h"
#include "lab/train/memory.h"

namespace locus::lab {

bool RunJob(const JobContext& context) {
  ResetPeak();  // the process may have run other jobs before
  OnAllRanks(context.ranks, [&] {
    if (context.ranks.first()) MakeFolder(context.study.JobFolder(context.job));
  });
  if (context.job.kind != JobKind::kCost) return TrainAndEvaluate(context);
  Measure(context);
  return true;
}

JobOutcome TryJob(const JobContext& context) {
  try {
    return {.code = RunJob(context) ? kWorkerDone : kWorkerStopped};
  } catch (const LostRanks&) {
    throw;
  } catch (const StorageError& e) {
    return {.code = kWorkerNoRoom, .error = e.what()};
  } catch (const std::bad_alloc&) {
    return {.code = kWorkerFailed,
            .error = "not enough memory for a run of this size"};
  } catch (const std::exception& e) {
    return {.code = kWorkerFailed, .error = e.what()};
  }
}

void WriteResult(const JobContext& context, const Json& answer,
                 const Json& cost) {
  WriteSealedJson(
      context.study.ResultPath(context.job),
      {{"study", context.study.record}, {"answer", answer}, {"cost", cost}});
}

Json FiniteJson(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
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
