// Runs one job in a separate process, which reports to its parent through a
// pipe.
#ifndef LOCUS_LAB_STUDY_WORKER_H_
#define LOCUS_LAB_STUDY_WORKER_H_

#include <filesystem>
#include <string>

namespace locus::lab {

// Exit codes of workers.
inline constexpr int kWorkerDone = 0;
inline constexpr int kWorkerFailed = 1;  // this job failed
inline constexpr int kWorkerNoRoom = 3;  // nor can others be saved
inline constexpr int kWorkerStopped =
    130;  // on request; a checkpoint was saved

struct WorkerOptions {
  std::filesystem::path folder = {};
  std::string job = {};
  int events = -1;          // descriptor of the pipe
  double save_every = 1.0;  // seconds between checkpoints
};

// Lines sent through the pipe:
//   step <steps done> <loss>
//   evaluate <length>
//   error <one sentence>
int RunWorker(const WorkerOptions& options);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_WORKER_H_
