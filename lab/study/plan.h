// The jobs of a study, each run in a separate process.
#ifndef LOCUS_LAB_STUDY_PLAN_H_
#define LOCUS_LAB_STUDY_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lab/study/config.h"
#include "lab/train/run.h"

namespace locus::lab {

enum class JobKind : uint8_t {
  kTune,    // tries one learning rate for an encoding on a task
  kTrain,   // trains a model and evaluates it
  kExtend,  // extends a trained RoPE model and evaluates that
  kCost,    // seconds and memory of a step, for several models; runs alone
};

struct Job {
  std::string id = {};  // "text/rope/1": also its folder
  JobKind kind = JobKind::kTrain;
  RunSpec spec = {};  // kCost: of the first model

  // kTrain and kExtend: the evaluated lengths.
  std::vector<int64_t> lengths = {};
  int64_t score_tokens = 0;

  // kTrain: whether it is part of the first answer (every encoding on the first
  // task, one seed) and is drawn, and whether extensions start from it.
  bool first_answer = false;
  bool keep_model = false;

  // kTrain and kExtend: ids of the jobs that select the learning rate.
  std::vector<std::string> tuned_by = {};

  // kExtend
  std::string base = {};  // id of the job that trains the model
  std::string method = {};
  double factor = 1;
  int64_t fine_tune_steps = 0;

  // kCost
  std::vector<RunSpec> models = {};
  int64_t rounds = 0;

  // Floating-point operations, roughly, from which the remaining time is
  // estimated.
  double work = 0;
};

// The jobs in the order in which they start: every encoding on the first task
// with its first seed, then the other tasks, then one more seed of each at a
// time: early on there are results for everything, which then become more
// certain. Measurements of time come last. Deterministic.
std::vector<Job> MakePlan(const Settings& settings);

// Ids of the jobs that must be finished before this one.
std::vector<std::string> NeedsOf(const Job& job);

// Operations of one training step.
double StepWork(const RunSpec& spec);

// An extended model is fine-tuned at the length to which it is extended.
int64_t FineTuneLength(const Job& job);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_PLAN_H_
