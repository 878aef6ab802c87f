#include "core/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <utility>

#include "core/openmp.h"
#include "locus/threads.h"

namespace locus {
namespace {

struct Job;
thread_local Job* current_job = nullptr;  // the job this thread works on
thread_local InterruptCheck interrupt_check = nullptr;

// Sets current_job for its lifetime.
class Inside {
 public:
  explicit Inside(Job* job) : before_(std::exchange(current_job, job)) {}
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { current_job = before_; }

 private:
  Job* before_;
};

// One ParallelFor call, on its caller's stack.
struct Job {
  Job(int64_t n, int most, TaskRef t) : count(n), threads(most), task(t) {}

  // Runs tasks until none are left or the call is interrupted.
  void Work() noexcept {
    const int worker = workers.fetch_add(1, std::memory_order_relaxed);
    if (worker >= threads) return;
    const Inside inside(this);
    for (;;) {
      const int64_t at = next.fetch_add(1, std::memory_order_relaxed);
      if (at >= count || Interrupted()) return;
      task(at, worker);
    }
  }

  void Check() noexcept {
    try {
      CheckInterrupt();
    } catch (...) {
      if (!stopped.exchange(true)) error = std::current_exception();
    }
  }

  // Called by the caller after all workers have finished.
  void Rethrow() const {
    if (error) std::rethrow_exception(error);
  }

  const int64_t count;
  const int threads;
  const TaskRef task;
  std::atomic<int64_t> next{0};
  std::atomic<int> workers{0};
  std::atomic<bool> stopped{false};
  std::exception_ptr error;  // what the check threw
};

// The default backend: the process's OpenMP runtime, or else OwnThreads.
void AnyThreads(int threads, void (*body)(void*), void* argument) {
  const std::optional<const OpenMp*> openmp = FindOpenMp();
  if (openmp && *openmp == nullptr) {
    OwnThreads(threads, body, argument);
  } else if (!openmp || (*openmp)->in_parallel() != 0) {
    // The caller already is a worker of the runtime, or it may be.
    body(argument);
  } else {
    (*openmp)->parallel(body, argument, static_cast<unsigned int>(threads), 0);
  }
}

std::atomic<ParallelBackend> parallel_backend{&AnyThreads};

}  // namespace

void ParallelFor(int64_t count, int threads, TaskRef task) {
  if (current_job != nullptr) {
    for (int64_t at = 0; at < count && !Interrupted(); ++at) task(at, 0);
    return;
  }
  threads =
      static_cast<int>(std::clamp<int64_t>(count, 1, std::max(threads, 1)));
  Job job(count, threads, task);
  if (threads == 1) {
    job.Work();
  } else {
    parallel_backend.load(std::memory_order_relaxed)(
        threads, [](void* mine) { static_cast<Job*>(mine)->Work(); }, &job);
  }
  job.Rethrow();
}

void CheckInterrupt() {
  if (interrupt_check != nullptr) interrupt_check();
}

bool Interrupted() noexcept {
  if (current_job == nullptr) return false;
  const std::atomic<bool>& stopped = current_job->stopped;
  if (!stopped.load(std::memory_order_relaxed)) current_job->Check();
  return stopped.load(std::memory_order_relaxed);
}

InterruptCheck SetInterruptCheck(InterruptCheck check) {
  return std::exchange(interrupt_check, check);
}

void SetParallelBackend(ParallelBackend backend) {
  parallel_backend.store(backend != nullptr ? backend : &AnyThreads,
                         std::memory_order_relaxed);
}

int NumThreads(int requested) {
  return requested > 0 ? requested : UsableCpus();
}

}  // namespace locus
