#include "core/threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

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

// One ParallelFor call. Helpers hold a share, so that a helper that wakes up
// late finds an exhausted counter instead of a dead object.
struct Job {
  Job(int64_t n, const std::function<void(int64_t)>& t) : count(n), task(&t) {}

  // Runs tasks until none are left.
  void Work() {
    int64_t mine = 0;
    for (;;) {
      const int64_t at = next.fetch_add(1, std::memory_order_relaxed);
      if (at >= count) break;
      (*task)(at);
      ++mine;
    }
    if (mine == 0) return;
    if (done.fetch_add(mine, std::memory_order_acq_rel) + mine == count) {
      const std::lock_guard<std::mutex> lock(mutex);
      finished.notify_all();
    }
  }

  void Wait() {
    const auto all_done = [this] {
      return done.load(std::memory_order_acquire) == count;
    };
    if (SoonReady(all_done)) return;
    std::unique_lock<std::mutex> lock(mutex);
    finished.wait(lock, all_done);
  }

  const int64_t count;
  const std::function<void(int64_t)>* task;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};
  std::mutex mutex;
  std::condition_variable finished;
};

thread_local bool inside_task = false;

// Of the host; nullptr: the pool's.
std::atomic<Team> host_team{nullptr};

// A thread's share of a job.
void WorkInside(Job& job) {
  inside_task = true;
  job.Work();
  inside_task = false;
}

class Pool {
 public:
  static Pool& Get() {
    // Never destroyed: worker threads may outlive static destruction.
    static Pool* pool = new Pool();
    return *pool;
  }

  // Asks `helpers` workers to join the job.
  void Share(const std::shared_ptr<Job>& job, int helpers) {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (workers_ < helpers) {
      std::thread([this] { Serve(); }).detach();
      ++workers_;
    }
    for (int h = 0; h < helpers; ++h) queue_.push_back(job);
    queued_.fetch_add(helpers, std::memory_order_release);
    for (int h = std::min(helpers, sleeping_); h > 0; --h) wake_.notify_one();
  }

 private:
  void Serve() {
    inside_task = true;
    for (;;) Take()->Work();
  }

  std::shared_ptr<Job> Take() {
    SoonReady([this] { return queued_.load(std::memory_order_acquire) > 0; });
    std::unique_lock<std::mutex> lock(mutex_);
    ++sleeping_;
    wake_.wait(lock, [this] { return !queue_.empty(); });
    --sleeping_;
    std::shared_ptr<Job> job = std::move(queue_.front());
    queue_.pop_front();
    queued_.fetch_sub(1, std::memory_order_relaxed);
    return job;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> queue_;
  std::atomic<int> queued_{0};  // its size, for those who wait without the lock
  int workers_ = 0;
  int sleeping_ = 0;
};

}  // namespace

void ParallelFor(int64_t count, int threads,
                 const std::function<void(int64_t)>& task) {
  if (threads > count) threads = static_cast<int>(count);
  if (threads <= 1 || inside_task) {
    for (int64_t at = 0; at < count; ++at) task(at);
    return;
  }
  if (const Team team = host_team.load(std::memory_order_relaxed)) {
    Job job(count, task);
    team(
        threads, [](void* mine) { WorkInside(*static_cast<Job*>(mine)); },
        &job);
    return;
  }
  const auto job = std::make_shared<Job>(count, task);
  Pool::Get().Share(job, threads - 1);
  WorkInside(*job);
  job->Wait();
}

void UseTeam(Team team) { host_team.store(team, std::memory_order_relaxed); }

int NumThreads(int requested) {
  if (requested > 0) return requested;
  // Asked once: the answer takes longer than a short call.
  static const unsigned int cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : static_cast<int>(cores);
}

}  // namespace locus
