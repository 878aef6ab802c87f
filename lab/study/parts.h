// Shared code of studies on a single process and on several ranks.
#ifndef LOCUS_LAB_STUDY_PARTS_H_
#define LOCUS_LAB_STUDY_PARTS_H_

#include <chrono>
#include <filesystem>

#include "lab/study/compare.h"
#include "lab/study/pool.h"
#include "lab/study/study.h"

namespace locus::lab {

// Prints one line on standard error before the work.
void LogPlan(const CompareOptions& options, const Study& study);

// Announces once where the page is, and once when the first answer is on it.
class FirstAnswer {
 public:
  void Announce(const Json& results, const std::filesystem::path& page);

 private:
  std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
  bool named_page_ = false;
  bool announced_ = false;
};

// Writes results.json and the page of a running study. Throws StorageError.
void Publish(const CompareOptions& options, const Study& study,
             const Live& live, FirstAnswer& first);

// Writes the results, prints them, and returns the exit code. Throws Error.
int Conclude(const CompareOptions& options, const Study& study,
             const Outcome& outcome);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_PARTS_H_
