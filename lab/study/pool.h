// Runs the jobs of a study in worker processes.
#ifndef LOCUS_LAB_STUDY_POOL_H_
#define LOCUS_LAB_STUDY_POOL_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lab/study/study.h"

namespace locus::lab {

struct Failure {
  std::string id = {};
  std::string sentence = {};
};

// A running study.
struct Live {
  std::vector<std::string> running = {};  // ids of jobs
  double seconds_left = -1;               // negative if unknown
  const std::vector<Failure>& failures;   // so far
};

struct PoolOptions {
  int workers = 1;
  double save_every = 1.0;  // seconds between checkpoints of a worker
  bool measurements_only = false;
  std::function<void()> meanwhile = {};  // called several times a second
  // Called when there are new results, at most every few seconds, and never
  // during a measurement. A StorageError stops the study.
  std::function<void(const Live& live)> publish = {};
};

struct Outcome {
  bool stopped = false;                // requested by a signal
  std::vector<Failure> failures = {};  // jobs that could not be done
  std::string storage_error = {};      // one sentence, if the disk failed
  double seconds = 0;                  // wall-clock time
};

// When to publish: at once after a job has ended, otherwise now and then, and
// never so often that it takes more than a thirtieth of the time.
class PublishClock {
 public:
  void JobEnded() { news_ = true; }
  // Calls `publish` if it is time.
  void Tick(const std::function<void()>& publish);

 private:
  using Clock = std::chrono::steady_clock;
  bool news_ = true;
  Clock::time_point last_ = {};
  double took_ = 0;  // seconds, of the last call
};

// Runs the jobs that are not done yet. A job that fails or crashes does not
// prevent others from running; a full disk, or SIGINT or SIGTERM, stops all of
// them after their current step. A second signal ends them at once.
Outcome RunJobs(const Study& study, const PoolOptions& options);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_POOL_H_
