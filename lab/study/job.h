// What a worker does: trains, extends or measures, saves as it goes, and
// writes the job's result.
#ifndef LOCUS_LAB_STUDY_JOB_H_
#define LOCUS_LAB_STUDY_JOB_H_

#include <functional>
#include <string>

#include "lab/ranks/ranks.h"
#include "lab/study/study.h"

namespace locus::lab {

struct JobContext {
  const Study& study;
  const Job& job;
  const Ranks& ranks = SingleProcess();  // that share the job
  double save_every = 1.0;               // seconds
  std::function<void(const std::string& line)> report = {};
};

// The result is in two parts: "answer", the same bits whenever and however
// often the job was interrupted, and "cost", times and memory.
//
// With several ranks, only the first reads and writes files and reports
// progress; all of them stop, or throw, after the same step.
//
// Returns false if it stopped early on request. Throws Error.
bool RunJob(const JobContext& context);

// Both parts, and a copy of study.json that it can be recovered from.
void WriteResult(const JobContext& context, const Json& answer,
                 const Json& cost);

// The two kinds of job.
bool TrainAndEvaluate(const JobContext& context);
void Measure(const JobContext& context);

// How a job went: an exit code of compare_worker.h, and what was wrong.
struct JobOutcome {
  int code = 0;
  std::string error = {};
};
// As RunJob, with every exception but LostRanks made one sentence.
JobOutcome TryJob(const JobContext& context);

// Operations (as plan.h counts them) that the ranks do in a second, from a few
// steps of the first job.
double MeasureRate(const Study& study, const Ranks& ranks);

// NaN and infinities have no place in JSON.
Json FiniteJson(double value);
// Of a list that is not empty.
double Quantile(std::vector<double> values, double share);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_JOB_H_
