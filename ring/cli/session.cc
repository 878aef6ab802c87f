#include "ring/cli/session.h"

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "cli/app.h"
#include "cli/complain.h"
#include "ring/agreement/agree.h"

namespace locus::ring {
namespace {

// mpirun ends the job when the first rank exits with an error, and drops output
// that others have just written: failing ranks wait this long before they end.
constexpr unsigned kLastWordsSeconds = 1;

int WorldRank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

// Ends the program unless it is destroyed in time.
class Watchdog {
 public:
  Watchdog(double seconds, std::string message)
      : thread_([this, seconds, message = std::move(message)] {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, std::chrono::duration<double>(seconds),
                             [this] { return stop_; })) {
            return;
          }
          cli::Complain(message);
          std::_Exit(cli::kAnswerIsNo);
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool stop_ = false;
  std::thread thread_;
};

// On this rank only; ends the others, which would wait for it.
[[noreturn]] void FailAlone(const std::string& message) {
  cli::Complain(message);
  sleep(kLastWordsSeconds);
  MPI_Abort(MPI_COMM_WORLD, cli::kAnswerIsNo);
  std::_Exit(cli::kAnswerIsNo);
}

int Run(const std::function<int()>& body) {
  try {
    return body();
  } catch (const LostRank& e) {
    FailAlone(e.what());
  } catch (const Error& e) {
    if (WorldRank() != 0) return StayQuiet();
    cli::Complain(e.what());
    return cli::kBadInput;
  } catch (const std::bad_alloc&) {
    FailAlone(
        fmt::format("rank {} has not enough memory for its part", WorldRank()));
  } catch (const std::exception& e) {
    FailAlone(fmt::format("rank {}: {}", WorldRank(), e.what()));
  }
}

}  // namespace

void OnFirstRank(const Group& all, const std::function<void()>& work) {
  std::string error;
  try {
    if (all.rank() == 0) work();
  } catch (const Error& e) {
    error = e.what();
  }
  Agree(all, error, {});
}

int StayQuiet() {
  sleep(kLastWordsSeconds);
  return cli::kBadInput;
}

int RunSession(double deadline_seconds, const std::function<int()>& body) {
  {
    const Watchdog watchdog(
        deadline_seconds,
        fmt::format("MPI did not start within {:g} s: another rank has died, "
                    "or is no program of MPI",
                    deadline_seconds));
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  }
  const int code = Run(body);
  const Watchdog watchdog(
      deadline_seconds,
      fmt::format("rank {} waited {:g} s for the others to end: one has died "
                  "or stopped",
                  WorldRank(), deadline_seconds));
  MPI_Finalize();
  return code;
}

}  // namespace locus::ring
