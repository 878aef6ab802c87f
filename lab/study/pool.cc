#include "lab/study/pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <list>

#include "lab/study/progress.h"
#include "lab/study/stop.h"
#include "lab/study/worker.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

struct Worker {
  Job job = {};
  pid_t pid = -1;
  int events = -1;
  std::string buffered = {};  // the beginning of an incomplete line
  std::string error = {};
};

[[noreturn]] void Fail(const char* what) {
  throw Error(
      fmt::format("cannot start a worker: {}: {}", what, std::strerror(errno)));
}

// In the child: executes this program again with a job. Its output goes to a
// log.
[[noreturn]] void ExecWorker(const std::vector<std::string>& arguments,
                             const std::string& log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // it finishes its step, saves and exits
  if (getppid() != parent) _exit(kWorkerStopped);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int file =
      open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  dup2(nothing, STDIN_FILENO);
  dup2(file >= 0 ? file : nothing, STDOUT_FILENO);
  dup2(file >= 0 ? file : nothing, STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  _exit(127);
}

Worker Spawn(const Study& study, const Job& job, double save_every) {
  int ends[2];
  if (pipe(ends) != 0) Fail("pipe");
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  MakeFolder(study.JobFolder(job));
  const std::string log = (study.JobFolder(job) / "log").string();
  const std::vector<std::string> arguments = {"locus-compare",
                                              "--out",
                                              study.folder,
                                              "--worker",
                                              job.id,
                                              "--events",
                                              fmt::format("{}", ends[1]),
                                              "--save-every",
                                              fmt::format("{}", save_every)};
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) Fail("fork");
  if (pid == 0) ExecWorker(arguments, log, parent);
  close(ends[1]);
  return {.job = job, .pid = pid, .events = ends[0]};
}

class Pool {
 public:
  Pool(const Study& study, const PoolOptions& options)
      : study_(study), options_(options) {
    for (const Job& job : study.plan) {
      const bool wanted =
          !options.measurements_only || job.kind == JobKind::kCost;
      if (wanted && !study.IsDone(job)) waiting_.push_back(job);
    }
  }

  Outcome Run() {
    const auto start = std::chrono::steady_clock::now();
    ProgressLine line({waiting_.begin(), waiting_.end()}, study_.plan.size(),
                      options_.workers);
    line_ = &line;
    while (!waiting_.empty() || !running_.empty()) {
      HandleSignals();
      if (!stopping_) StartWhatCan();
      if (running_.empty()) break;
      Listen();
      line.Show();
      if (options_.meanwhile) options_.meanwhile();
      Publish();
    }
    outcome_.stopped = outcome_.storage_error.empty() && StopRequests() > 0;
    outcome_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    return std::move(outcome_);
  }

 private:
  void Publish() {
    const bool alone = std::ranges::any_of(running_, [](const Worker& worker) {
      return worker.job.kind == JobKind::kCost;
    });
    if (!options_.publish || stopping_ || alone) return;
    clock_.Tick([&] {
      Live live{.seconds_left = line_->SecondsLeft(),
                .failures = outcome_.failures};
      for (const Worker& worker : running_) {
        live.running.push_back(worker.job.id);
      }
      try {
        options_.publish(live);
      } catch (const StorageError& e) {
        outcome_.storage_error = e.what();
        StopAll(SIGTERM);
      }
    });
  }

  void HandleSignals() {
    if (StopRequests() > 0 && !stopping_) {
      line_->Log("stopping: each run finishes its step and saves");
      StopAll(SIGTERM);
    }
    if (StopRequests() > 1 && !killed_) {
      killed_ = true;
      StopAll(SIGKILL);
    }
  }

  void StopAll(int signal) {
    stopping_ = true;
    for (const Worker& worker : running_) {
      // A measurement has nothing to save.
      kill(worker.pid, worker.job.kind == JobKind::kCost ? SIGKILL : signal);
    }
  }

  void StartWhatCan() {
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      if (running_.size() >= static_cast<size_t>(options_.workers)) return;
      const bool alone = at->kind == JobKind::kCost;
      const bool other_alone =
          !running_.empty() && running_.front().job.kind == JobKind::kCost;
      if (other_alone || (alone && !running_.empty())) return;
      const std::vector<std::string> needs = NeedsOf(*at);
      const auto failed = std::ranges::find_if(
          needs, [&](const std::string& id) { return Failed(id); });
      if (failed != needs.end()) {
        Note(*at, fmt::format("it needs {}, which failed", *failed));
        at = waiting_.erase(at);
        continue;
      }
      if (std::ranges::any_of(needs, [&](const std::string& id) {
            return !study_.IsDone(study_.Find(id));
          })) {
        ++at;
        continue;
      }
      running_.push_back(Spawn(study_, *at, options_.save_every));
      line_->Start(*at);
      at = waiting_.erase(at);
    }
  }

  bool Failed(const std::string& id) const {
    return std::ranges::find(outcome_.failures, id, &Failure::id) !=
           outcome_.failures.end();
  }

  void Note(const Job& job, const std::string& sentence) {
    line_->Log(fmt::format("{} failed: {}", job.id, sentence));
    outcome_.failures.push_back({.id = job.id, .sentence = sentence});
  }

  // Waits a moment for lines and for workers to end.
  void Listen() {
    constexpr int kMilliseconds = 200;
    std::vector<pollfd> ends;
    for (const Worker& worker : running_) {
      ends.push_back({.fd = worker.events, .events = POLLIN, .revents = 0});
    }
    if (poll(ends.data(), ends.size(), kMilliseconds) <= 0) return;
    size_t n = 0;
    for (auto at = running_.begin(); at != running_.end(); ++n) {
      const bool ended = ends[n].revents != 0 && !ReadLines(*at);
      if (ended) {
        Reap(*at);
        at = running_.erase(at);
      } else {
        ++at;
      }
    }
  }

  // Returns false if the worker closed its end.
  bool ReadLines(Worker& worker) {
    char buffer[4096];
    const ssize_t got = read(worker.events, buffer, sizeof(buffer));
    if (got < 0) return errno == EINTR;
    if (got == 0) return false;
    worker.buffered.append(buffer, static_cast<size_t>(got));
    for (size_t end; (end = worker.buffered.find('\n')) != std::string::npos;) {
      const std::string line = worker.buffered.substr(0, end);
      worker.buffered.erase(0, end + 1);
      constexpr std::string_view kError = "error ";
      if (line.starts_with(kError)) {
        worker.error = line.substr(kError.size());
      } else {
        line_->OnLine(worker.job, line);
      }
    }
    return true;
  }

  void Reap(const Worker& worker) {
    close(worker.events);
    int status = 0;
    while (waitpid(worker.pid, &status, 0) < 0 && errno == EINTR) {
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    line_->End(worker.job, code == kWorkerDone);
    clock_.JobEnded();
    if (code == kWorkerDone || (stopping_ && IsOurDoing(status))) return;
    if (code == kWorkerNoRoom) {
      if (outcome_.storage_error.empty()) outcome_.storage_error = worker.error;
      if (!stopping_) StopAll(SIGTERM);
      return;
    }
    Note(worker.job, Reason(worker, status));
  }

  // Whether the worker was ended by the signal that StopAll sent, before or
  // after it could handle it.
  static bool IsOurDoing(int status) {
    if (WIFEXITED(status)) return WEXITSTATUS(status) == kWorkerStopped;
    return WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL;
  }

  std::string Reason(const Worker& worker, int status) const {
    if (!worker.error.empty()) return worker.error;
    const std::string log = (study_.JobFolder(worker.job) / "log").string();
    if (!WIFSIGNALED(status)) {
      return fmt::format("its process ended with code {}; see {}",
                         WEXITSTATUS(status), log);
    }
    const int signal = WTERMSIG(status);
    return fmt::format("its process was ended by signal {} ({}){}; see {}",
                       signal, strsignal(signal),
                       signal == SIGKILL ? ", perhaps for want of memory" : "",
                       log);
  }

  const Study& study_;
  PoolOptions options_;
  std::list<Job> waiting_ = {};
  std::list<Worker> running_ = {};
  ProgressLine* line_ = nullptr;
  Outcome outcome_ = {};
  PublishClock clock_ = {};
  bool stopping_ = false;
  bool killed_ = false;
};

}  // namespace

void PublishClock::Tick(const std::function<void()>& publish) {
  constexpr double kSoonest = 3;
  constexpr double kLatest = 20;
  constexpr double kShare = 30;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const double pause = std::max(news_ ? kSoonest : kLatest, kShare * took_);
  if (last_ != Clock::time_point{} && seconds_since(last_) < pause) return;
  const auto start = Clock::now();
  publish();
  news_ = false;
  last_ = Clock::now();
  took_ = seconds_since(start);
}

Outcome RunJobs(const Study& study, const PoolOptions& options) {
  return Pool(study, options).Run();
}

}  // namespace locus::lab
