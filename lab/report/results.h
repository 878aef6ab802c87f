// results.json: everything that a study found, for programs to read.
#ifndef LOCUS_LAB_REPORT_RESULTS_H_
#define LOCUS_LAB_REPORT_RESULTS_H_

#include <optional>
#include <string>
#include <vector>

#include "lab/study/pool.h"
#include "lab/study/study.h"

namespace locus::lab {

struct ResultsRequest {
  const Study& study;
  const std::vector<Failure>& failures;
  int workers = 1;
  double seconds = 0;          // spent on it so far, in all its sessions
  const Live* live = nullptr;  // of a study that is still at work
};

// From the results of the jobs that are done; "progress" says what runs now.
// Its "fingerprint" covers all but times, memory, the machine and how often the
// study was interrupted.
Json ResultsJson(const ResultsRequest& request);

// The file: a line for each run, picture and so on.
std::string ResultsText(const Json& results);

// Mean over seeds and its 95 % interval, if any ran at that length.
struct Spread {
  double mean = 0;
  double low = 0;
  double high = 0;
  int64_t seeds = 0;
  bool learned = true;  // the task, at the training length
  bool best =
      false;  // no significant difference from the best, while others differ
};
std::optional<Spread> FindSummary(const Json& results, const std::string& task,
                                  const std::string& encoding, int64_t length,
                                  const std::string& metric);

// Why an encoding did not serve a length, if it did not.
std::optional<std::string> FindRefusal(const Json& results,
                                       const std::string& task,
                                       const std::string& encoding,
                                       int64_t length);

}  // namespace locus::lab

#endif  // LOCUS_LAB_REPORT_RESULTS_H_
