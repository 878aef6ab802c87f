// The work of a worker: trains, extends or measures, saves regularly, and
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
  const Ranks& ranks = SingleProcess();  // the ranks that share the job
  double save_every = 1.0;               // seconds
  std::function<void(const std::string& line)> report = {};
};

// The result has two parts: "answer", which is bitwise the same whenever and
// however often the job was interrupted, and "cost", with times and memory.
//
// With several ranks, only the first one reads and writes files and reports
// progress; all of them stop, or throw, after the same step.
//
// Returns false if it stopped early on request. Throws Error.
bool RunJob(const JobContext& context);

// Writes both parts, and a copy of study.json for recovery.
void WriteResult(const JobContext& context, const Json& answer,
                 const Json& cost);

// The two kinds of job.
bool TrainAndEvaluate(const JobContext& context);
void Measure(const JobContext& context);

// How a job ended: an exit code of worker.h, and the error.
struct JobOutcome {
  int code = 0;
  std::string error = {};
};
// As RunJob, but every exception except LostRanks becomes a sentence.
JobOutcome TryJob(const JobContext& context);

// Operations (as counted by plan.h) that the ranks do per second, measured over
// a few steps of the first job.
double MeasureRate(const Study& study, const Ranks& ranks);

// NaN and infinities become null, since JSON cannot represent them.
Json FiniteJson(double value);
// Of a nonempty list.
double Quantile(std::vector<double> values, double share);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_JOB_H_
