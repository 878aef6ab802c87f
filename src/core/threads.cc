#include "core/threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "locus/threads.h"

namespace locus {
namespace {

// Waits a little for ready(), and tells whether it came true. Waking a thread
// that sleeps takes some tens of microseconds, as long as a short call; the
// next call, or the end of this one, mostly comes sooner. Others who want the
// core have it meanwhile.
template <typename Ready>
bool SoonReady(const Ready& ready) {
  constexpr auto kPatience = std::chrono::microseconds(50);
  if (ready()) return true;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  do {
    std::this_thread::yield();
    if (ready()) return true;
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

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

  // The pool's. A helper is counted in `helpers` before it leaves `wanted`, and
  // does not touch the job once it has left `helpers`.
  std::atomic<int> wanted{0};  // helpers that may still join
  std::atomic<int> helpers{0};
  Job* later = nullptr;  // in the queue
};

// Threads that help with jobs. It owns no job: whoever offers one takes it back
// before it ends, and nothing is left in the queue.
class Pool {
 public:
  // Never destroyed: worker threads may outlive static destruction.
  static Pool& Get() {
    alignas(Pool) static std::byte memory[sizeof(Pool)];
    static auto* pool = new (memory) Pool();
    return *pool;
  }

  // A forked process has none of the threads, and the lock may have been held
  // by one of them: begins anew.
  static void ResetInChild() { new (&Get()) Pool(); }

  // Asks `helpers` workers to join the job; fewer, if threads cannot be
  // started.
  void Offer(Job& job, int helpers) {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (workers_ < helpers && StartWorker()) ++workers_;
    helpers = std::min(helpers, workers_);
    if (helpers == 0) return;
    job.wanted.store(helpers, std::memory_order_relaxed);
    (last_ == nullptr ? first_ : last_->later) = &job;
    last_ = &job;
    queued_.store(true, std::memory_order_release);
    for (int h = std::min(helpers, sleeping_); h > 0; --h) wake_.notify_one();
  }

  // Lets no more workers join, and waits for those that have.
  void TakeBack(Job& job) {
    if (job.wanted.load(std::memory_order_acquire) > 0) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (job.wanted.load(std::memory_order_relaxed) > 0) Remove(job);
    }
    const auto alone = [&job] { return job.helpers.load() == 0; };
    if (SoonReady(alone)) return;
    ++waiting_;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      left_.wait(lock, alone);
    }
    --waiting_;
  }

 private:
  bool StartWorker() {
    try {
      std::thread([this] {
        for (;;) {
          Job& job = Join();
          job.Work();
          Leave(job);
        }
      }).detach();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  Job& Join() {
    SoonReady([this] { return queued_.load(std::memory_order_acquire); });
    std::unique_lock<std::mutex> lock(mutex_);
    ++sleeping_;
    wake_.wait(lock, [this] { return first_ != nullptr; });
    --sleeping_;
    Job& job = *first_;
    const int wanted = job.wanted.load(std::memory_order_relaxed) - 1;
    if (wanted == 0) Remove(job);
    job.helpers.fetch_add(1, std::memory_order_relaxed);
    job.wanted.store(wanted, std::memory_order_release);
    return job;
  }

  // Who waits has said so before it looked at the helpers a last time: either
  // it sees that this one has left, or this one sees that it waits.
  void Leave(Job& job) {
    if (job.helpers.fetch_sub(1) > 1 || waiting_.load() == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    left_.notify_all();
  }

  void Remove(Job& job) {
    Job* before = nullptr;
    for (Job* at = first_; at != &job; at = at->later) before = at;
    (before == nullptr ? first_ : before->later) = job.later;
    if (last_ == &job) last_ = before;
    queued_.store(first_ != nullptr, std::memory_order_relaxed);
  }

  std::mutex mutex_;
  std::condition_variable wake_;  // a job is there
  std::condition_variable left_;  // a job's last helper has left
  Job* first_ = nullptr;          // those that want helpers
  Job* last_ = nullptr;
  std::atomic<bool> queued_{false};  // any there, for those without the lock
  int workers_ = 0;
  int sleeping_ = 0;
  std::atomic<int> waiting_{0};  // callers who wait for helpers to leave
};

// When the library is loaded, before there are threads that could fork: a
// process forked while the pool is being made would wait for it forever.
[[maybe_unused]] const int kPoolForkHandler = [] {
  Pool::Get();
  return pthread_atfork(nullptr, nullptr, Pool::ResetInChild);
}();

// Of the host; nullptr: the pool's.
std::atomic<Team> host_team{nullptr};

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
  if (const Team team = host_team.load(std::memory_order_relaxed)) {
    team(
        threads, [](void* mine) { static_cast<Job*>(mine)->Work(); }, &job);
  } else {
    Pool& pool = Pool::Get();
    pool.Offer(job, threads - 1);
    job.Work();
    pool.TakeBack(job);
  }
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

void UseTeam(Team team) { host_team.store(team, std::memory_order_relaxed); }

int NumThreads(int requested) {
  return requested > 0 ? requested : UsableCpus();
}

}  // namespace locus
