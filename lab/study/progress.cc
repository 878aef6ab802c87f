#include "lab/study/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "locus/text.h"

namespace locus::lab {
namespace {

int Columns() {
  winsize size{};
  const bool known =
      ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 100;
}

int64_t StepsOf(const Job& job) {
  switch (job.kind) {
    case JobKind::kTune:
    case JobKind::kTrain:
      return job.spec.steps;
    case JobKind::kExtend:
      return job.fine_tune_steps;
    case JobKind::kCost:
      break;
  }
  return job.rounds;
}

// The share of a job's work that a step is.
double WorkOfStep(const Job& job) {
  if (job.kind == JobKind::kTrain || job.kind == JobKind::kTune) {
    return StepWork(job.spec);
  }
  const auto steps = static_cast<double>(StepsOf(job));
  return steps > 0 ? job.work / steps : 0;
}

}  // namespace

ProgressLine::ProgressLine(const std::vector<Job>& left, size_t total,
                           int workers)
    : terminal_(isatty(STDERR_FILENO) == 1),
      workers_(workers),
      total_(total),
      done_(total - left.size()) {
  for (const Job& job : left) {
    (job.kind == JobKind::kCost ? alone_work_ : shared_work_) += job.work;
  }
}

ProgressLine::~ProgressLine() {
  if (terminal_) fmt::print(stderr, "\r\x1b[K");
}

double ProgressLine::Running::WorkDone() const {
  if (first_step < 0) return 0;
  return static_cast<double>(step - first_step) * WorkOfStep(job);
}

void ProgressLine::Start(const Job& job) {
  (job.kind == JobKind::kCost ? alone_work_ : shared_work_) -= job.work;
  running_[job.id] = {.job = job, .start = Clock::now()};
}

void ProgressLine::OnLine(const Job& job, const std::string& line) {
  Running& running = running_[job.id];
  std::istringstream words(line);
  std::string what;
  words >> what;
  if (what == "step") {
    std::string loss;
    words >> running.step >> loss;
    if (running.first_step < 0) running.first_step = running.step - 1;
    running.doing =
        fmt::format("step {}/{}, loss {}", running.step, StepsOf(job), loss);
  } else if (what == "evaluate") {
    std::string length;
    words >> length;
    running.doing = fmt::format("evaluating at {}", length);
  }
}

void ProgressLine::End(const Job& job, bool done) {
  const Running& running = running_[job.id];
  if (done) {
    ++done_;
    const int64_t skipped = std::max<int64_t>(0, running.first_step);
    work_done_ += job.work - static_cast<double>(skipped) * WorkOfStep(job);
    busy_seconds_ +=
        std::chrono::duration<double>(Clock::now() - running.start).count();
  }
  running_.erase(job.id);
}

double ProgressLine::SecondsLeft() const {
  double work = work_done_;
  double busy = busy_seconds_;
  double current = 0;
  for (const auto& [id, running] : running_) {
    work += running.WorkDone();
    busy += std::chrono::duration<double>(Clock::now() - running.start).count();
    const int64_t skipped = std::max<int64_t>(0, running.first_step);
    current += std::max(
        0.0, running.job.work - running.WorkDone() -
                 static_cast<double>(skipped) * WorkOfStep(running.job));
  }
  // Too early for an estimate: starting alone takes this long.
  constexpr double kEnough = 5.0;
  if (work <= 0 || busy < kEnough) return -1;
  const double rate = work / busy;
  return ((shared_work_ + current) / workers_ + alone_work_) / rate;
}

std::string ProgressLine::Line() const {
  std::string line = fmt::format("{} of {} done", done_, total_);
  const double left = SecondsLeft();
  if (left >= 0) line += fmt::format(", about {} left", DurationText(left));
  for (const auto& [id, running] : running_) {
    line += fmt::format(" | {} {}", id, running.doing);
  }
  return line;
}

void ProgressLine::Show() {
  // Often enough to look alive, seldom enough for a log.
  const double pause = terminal_ ? 0.2 : 30.0;
  const auto now = Clock::now();
  if (std::chrono::duration<double>(now - shown_).count() < pause) return;
  shown_ = now;
  std::string line = Line();
  if (terminal_) {
    const auto width = static_cast<size_t>(std::max(20, Columns() - 1));
    if (line.size() > width) line = line.substr(0, width);
    fmt::print(stderr, "\r\x1b[K{}", line);
    std::fflush(stderr);
  } else {
    fmt::print(stderr, "locus: {}\n", line);
  }
}

void ProgressLine::Log(const std::string& sentence) {
  fmt::print(stderr, "{}locus: {}\n", terminal_ ? "\r\x1b[K" : "",
             EscapeControls(sentence));
  std::fflush(stderr);
}

std::string DurationText(double seconds) {
  if (seconds < 90) {
    return fmt::format("{} s", std::max(1L, std::lround(seconds)));
  }
  const long minutes = std::lround(seconds / 60);
  if (minutes < 90) return fmt::format("{} min", minutes);
  return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

double EstimateSeconds(const std::vector<Job>& jobs, int workers, double rate) {
  // A worker loads libtorch and the corpus before its first step.
  constexpr double kStart = 0.5;
  double shared = 0;
  double alone = 0;
  for (const Job& job : jobs) {
    (job.kind == JobKind::kCost ? alone : shared) += job.work / rate + kStart;
  }
  return shared / workers + alone;
}

}  // namespace locus::lab
