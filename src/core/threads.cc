#include "core/threads.h"

#include <atomic>
#include <exception>
#include <utility>

#include "core/openmp.h"
#include "locus/threads.h"

namespace locus {
namespace {

struct Job;
thread_local Job* current_job = nullptr;  // whose tasks this thread runs
thread_local InterruptCheck interrupt_check = nullptr;

// While one lives, this thread runs tasks of a job.
class Inside {
 public:
  explicit Inside(Job* job) : before_(std::exchange(current_job, job)) {}
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { current_job = before_; }

 private:
  Job* before_;
};

// What ends a task of a job that has failed elsewhere.
struct Cancelled {};

// One ParallelFor call, on its caller's stack.
struct Job {
  Job(int64_t n, TaskRef t) : count(n), task(t) {}

  // Runs tasks until none are left or one has thrown.
  void Work() noexcept {
    const Inside inside(this);
    try {
      for (;;) {
        const int64_t at = next.fetch_add(1, std::memory_order_relaxed);
        if (at >= count) return;
        CheckInterrupt();
        task(at);
      }
    } catch (...) {
      next.store(count, std::memory_order_relaxed);
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }

  // To the caller, when nobody works any more.
  void Rethrow() const {
    if (error) std::rethrow_exception(error);
  }

  const int64_t count;
  const TaskRef task;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // the first
};

// On the threads of the process's OpenMP runtime, else on the engine's own.
void AnyThreads(int threads, void (*body)(void*), void* argument) {
  const OpenMp* const openmp = FindOpenMp();
  if (openmp == nullptr) {
    OwnThreads(threads, body, argument);
  } else if (openmp->in_parallel() != 0) {
    body(argument);  // the caller is one of the runtime's threads at work
  } else {
    openmp->parallel(body, argument, static_cast<unsigned int>(threads), 0);
  }
}

std::atomic<ParallelBackend> parallel_backend{&AnyThreads};

}  // namespace

void ParallelFor(int64_t count, int threads, TaskRef task) {
  if (threads > count) threads = static_cast<int>(count);
  if (threads <= 1 || current_job != nullptr) {
    for (int64_t at = 0; at < count; ++at) {
      CheckInterrupt();
      task(at);
    }
    return;
  }
  Job job(count, task);
  parallel_backend.load(std::memory_order_relaxed)(
      threads, [](void* mine) { static_cast<Job*>(mine)->Work(); }, &job);
  job.Rethrow();
}

void CheckInterrupt() {
  if (interrupt_check != nullptr) interrupt_check();
  if (current_job != nullptr &&
      current_job->failed.load(std::memory_order_relaxed)) {
    throw Cancelled();
  }
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
