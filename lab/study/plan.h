// The jobs of a study, each for a process of its own.
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
  kExtend,  // stretches a trained RoPE model and evaluates that
  kCost,    // seconds and memory of a step, several models; runs alone
};

struct Job {
  std::string id = {};  // "text/rope/1": also its folder
  JobKind kind = JobKind::kTrain;
  RunSpec spec = {};  // kCost: of the first model

  // kTrain and kExtend: what is evaluated.
  std::vector<int64_t> lengths = {};
  int64_t score_tokens = 0;

  // kTrain: whether it belongs to the first answer (every encoding on the first
  // task, one seed) and is drawn, and whether extensions start from it.
  bool first_answer = false;
  bool keep_model = false;

  // kTrain and kExtend: ids of the jobs that the learning rate is chosen by.
  std::vector<std::string> tuned_by = {};

  // kExtend
  std::string base = {};  // id of the job that trains the model
  std::string method = {};
  double factor = 1;
  int64_t fine_tune_steps = 0;

  // kCost
  std::vector<RunSpec> models = {};
  int64_t rounds = 0;

  // Floating-point operations, roughly: what time left is estimated from.
  double work = 0;
};

// In the order in which jobs start: every encoding on the first task with its
// first seed, then the other tasks, then one more seed of each at a time: early
// on there is an answer to everything, and it becomes surer. Measurements of
// time come last. The same for the same settings.
std::vector<Job> MakePlan(const Settings& settings);

// Ids of the jobs that must be done before it.
std::vector<std::string> NeedsOf(const Job& job);

// Operations of one training step.
double StepWork(const RunSpec& spec);

// An extended model is fine-tuned at the length that it is extended to.
int64_t FineTuneLength(const Job& job);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_PLAN_H_
