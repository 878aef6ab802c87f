// results.json: all results of a study, for programs.
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
  double seconds = 0;          // total time so far, over all sessions
  const Live* live = nullptr;  // if the study is still running
};

// Made from the results of finished jobs; "progress" has what is running. The
// "fingerprint" covers everything except times, memory, the machine and how
// often the study was interrupted.
Json ResultsJson(const ResultsRequest& request);

// The text of the file: a line for each run, picture and so on.
std::string ResultsText(const Json& results);

// Mean over seeds and its 95 % interval, if any ran at that length.
struct Spread {
  double mean = 0;
  double low = 0;
  double high = 0;
  int64_t seeds = 0;
  bool learned = true;  // has learned the task at the training length
  bool best =
      false;  // no significant difference from the best, while others differ
};
std::optional<Spread> FindSummary(const Json& results, const std::string& task,
                                  const std::string& encoding, int64_t length,
                                  const std::string& metric);

// The reason why an encoding does not support a length, if it does not.
std::optional<std::string> FindRefusal(const Json& results,
                                       const std::string& task,
                                       const std::string& encoding,
                                       int64_t length);

}  // namespace locus::lab

#endif  // LOCUS_LAB_REPORT_RESULTS_H_
