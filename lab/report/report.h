// results.json for people: report.html and a table in the terminal.
#ifndef LOCUS_LAB_REPORT_REPORT_H_
#define LOCUS_LAB_REPORT_REPORT_H_

#include <string>
#include <vector>

#include "lab/report/table.h"
#include "lab/study/store.h"

namespace locus::lab {

// The page: web's template with its placeholders filled; see web/README.md.
std::string ReportHtml(const Json& results);

// The text for the terminal at the end.
std::string ReportText(const Json& results);

// The tables of both; without rows if there are no data.
Table ComparisonTable(const Json& results);
Table LossTable(const Json& results);
Table AccuracyTable(const Json& results);
Table ClaimsTable(const Json& results);
Table ExtensionTable(const Json& results);
Table SpeedTable(const Json& results);
Table CostTable(const Json& results);

// Sentences computed from the data, the headline first.
std::vector<std::string> Findings(const Json& results);

// Short names of encodings, "RoPE"; the name itself if there is none.
std::string ShortName(const Json& results, const std::string& encoding);

// The task that lengths are compared on: the first one of the study.
std::string MainTask(const Json& results);
Json TaskOf(const Json& results, const std::string& task);

// "64 (1x)"
std::string LengthTitle(int64_t length, int64_t train_length);

// Loss at `length` divided by the loss at the training length, minus 1; NaN if
// either is missing.
double ChangeOfLoss(const Json& results, const std::string& encoding,
                    int64_t length);

// Four times the training length, or the longest length if that was not scored.
int64_t FourfoldLength(const Json& task);

// Median seconds per step (or peak bytes), measured alone; NaN if missing.
double CostOf(const Json& results, int64_t length, const std::string& encoding,
              const std::string& path, const std::string& what);
// The longest length with a measured cost; 0 if there is none.
int64_t CostLength(const Json& results);

// The mean over the runs of an encoding on a task, such as tokens_per_second.
double MeanOfRuns(const Json& results, const std::string& task,
                  const std::string& encoding, const std::string& what);

// Mean loss over seeds of RoPE models extended in one way; NaN if missing.
double ExtensionLoss(const Json& results, const std::string& method,
                     int64_t fine_tune_steps, int64_t length);

// Titles of "none", "linear", ... in results.json: "no extension" and so on.
std::string MethodTitle(const std::string& method);

}  // namespace locus::lab

#endif  // LOCUS_LAB_REPORT_REPORT_H_
