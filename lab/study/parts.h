// What a study on one process and one on several ranks have in common.
#ifndef LOCUS_LAB_STUDY_PARTS_H_
#define LOCUS_LAB_STUDY_PARTS_H_

#include <chrono>
#include <filesystem>

#include "lab/study/compare.h"
#include "lab/study/pool.h"
#include "lab/study/study.h"

namespace locus::lab {

// One line on standard error, before the work.
void LogPlan(const CompareOptions& options, const Study& study);

// Says once where the page is, and once when the first answer is on it.
class FirstAnswer {
 public:
  void Announce(const Json& results, const std::filesystem::path& page);

 private:
  std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
  bool named_page_ = false;
  bool announced_ = false;
};

// Writes results.json and the page of a study that is still at work. Throws
// StorageError.
void Publish(const CompareOptions& options, const Study& study,
             const Live& live, FirstAnswer& first);

// Writes the results, says what came out, returns the exit code. Throws Error.
int Conclude(const CompareOptions& options, const Study& study,
             const Outcome& outcome);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_PARTS_H_
