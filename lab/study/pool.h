// Runs the jobs of a study in worker processes.
#ifndef LOCUS_LAB_STUDY_POOL_H_
#define LOCUS_LAB_STUDY_POOL_H_

#include <functional>
#include <string>
#include <vector>

#include "lab/study/study.h"

namespace locus::lab {

struct PoolOptions {
  int workers = 1;
  double save_every = 1.0;  // seconds between checkpoints of a worker
  bool measurements_only = false;
  std::function<void()> meanwhile = {};  // called several times a second
};

struct Failure {
  std::string id = {};
  std::string sentence = {};
};

struct Outcome {
  bool stopped = false;                // a signal asked for it
  std::vector<Failure> failures = {};  // jobs that could not be done
  std::string storage_error = {};      // one sentence, if the disk gave up
  double seconds = 0;                  // by the clock on the wall
};

// Does what is not done yet. A job that fails or crashes does not keep others
// from going on; a disk that is full, or SIGINT or SIGTERM, stops them all
// after their current step. A second signal ends them at once.
Outcome RunJobs(const Study& study, const PoolOptions& options);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_POOL_H_
