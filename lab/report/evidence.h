// The evidence in a study's scores: means with confidence intervals, rankings
// with significance, and claims of papers compared with the results.
#ifndef LOCUS_LAB_REPORT_EVIDENCE_H_
#define LOCUS_LAB_REPORT_EVIDENCE_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/report/statistics.h"
#include "lab/study/config.h"
#include "lab/study/store.h"
#include "lab/train/run.h"

namespace locus::lab {

// Scores by subject ("text/rope", "extend/yarn/50"), length and seed.
class Evidence {
 public:
  // Moves the blocks out of a job's evaluations.
  void Add(const std::string& subject, uint64_t seed, Json& evaluations);

  // Returns nothing if no seed has a number. `metric` is "loss" or "accuracy".
  std::optional<Interval> Mean(const std::string& subject, int64_t length,
                               const std::string& metric) const;
  // The score of one subject minus that of another, over the seeds that both
  // have.
  struct Place {
    std::string subject = {};
    int64_t length = 0;
  };
  std::optional<Interval> Difference(const Place& a, const Place& b,
                                     const std::string& metric) const;
  size_t NumSeeds(const Place& place, const std::string& metric) const;
  bool Refuses(const Place& place) const;

 private:
  struct Scored {
    std::map<uint64_t, std::vector<BlockScore>> seeds = {};
    bool refused = false;
  };
  const Scored* Find(const Place& place) const;
  static std::map<uint64_t, std::vector<BlockSum>> SumsOf(
      const Scored& scored, const std::string& metric);

  std::map<std::string, std::map<int64_t, Scored>> scores_ = {};
};

// "text/rope"
std::string SubjectOf(const std::string& task, const std::string& encoding);
// "extend/yarn/50"
std::string ExtensionSubject(const std::string& method, int64_t steps);

// The share of correct answers at the training length from which a model counts
// as having learned a task with exact answers. Text always counts as learned.
inline constexpr double kLearnedShare = 0.9;
bool Learned(const Evidence& evidence, const TaskSettings& task,
             const std::string& encoding);

// "loss" for text, "accuracy" for others: the metric of rankings.
std::string RankedBy(const TaskSettings& task);

// The parts "summary", "ranking" and "claims" of results.json (docs/lab.md).
Json SummaryJson(const Settings& settings, const Evidence& evidence);
Json RankingJson(const Settings& settings, const Evidence& evidence);
Json ClaimsJson(const Settings& settings, const Evidence& evidence);

}  // namespace locus::lab

#endif  // LOCUS_LAB_REPORT_EVIDENCE_H_
