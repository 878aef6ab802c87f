// Progress on standard error: a line that is redrawn on a terminal, or a plain
// line now and then elsewhere.
#ifndef LOCUS_LAB_STUDY_PROGRESS_H_
#define LOCUS_LAB_STUDY_PROGRESS_H_

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "lab/study/plan.h"

namespace locus::lab {

class ProgressLine {
 public:
  // `left`: the jobs to do now, of `total` in the study.
  ProgressLine(const std::vector<Job>& left, size_t total, int workers);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Start(const Job& job);
  // A line of the job's pipe.
  void OnLine(const Job& job, const std::string& line);
  // The job has ended; `done` unless it failed or was stopped.
  void End(const Job& job, bool done);
  // Redraws the line if it is time.
  void Show();
  // Prints a permanent line.
  void Log(const std::string& sentence);
  // Negative as long as it is unknown.
  double SecondsLeft() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    Job job = {};
    Clock::time_point start = {};
    int64_t first_step = -1;  // at the beginning of this session
    int64_t step = 0;
    std::string doing = "starting";
    double WorkDone() const;
  };

  std::string Line() const;

  bool terminal_;
  int workers_;
  size_t total_;
  size_t done_;
  double shared_work_ = 0;  // not started, of jobs that run in parallel
  double alone_work_ = 0;   // of jobs that run alone
  double work_done_ = 0;    // of jobs that ended in this session
  double busy_seconds_ = 0;
  std::map<std::string, Running> running_ = {};
  Clock::time_point shown_ = Clock::now();
};

// "50 s", "4 min", "1 h 20 min"
std::string DurationText(double seconds);

// The estimated duration of the jobs if a worker does `rate` operations per
// second.
double EstimateSeconds(const std::vector<Job>& jobs, int workers, double rate);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_PROGRESS_H_
