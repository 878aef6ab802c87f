#include "core/threads.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace locus {
namespace {

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
    if (done.load(std::memory_order_acquire) == count) return;
    std::unique_lock<std::mutex> lock(mutex);
    finished.wait(
        lock, [this] { return done.load(std::memory_order_acquire) == count; });
  }

  const int64_t count;
  const std::function<void(int64_t)>* task;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};
  std::mutex mutex;
  std::condition_variable finished;
};

thread_local bool inside_task = false;

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
    while (static_cast<int>(workers_) < helpers) {
      std::thread([this] { Serve(); }).detach();
      ++workers_;
    }
    for (int h = 0; h < helpers; ++h) queue_.push_back(job);
    wake_.notify_all();
  }

 private:
  void Serve() {
    inside_task = true;
    for (;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [this] { return !queue_.empty(); });
        job = std::move(queue_.front());
        queue_.pop_front();
      }
      job->Work();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> queue_;
  int workers_ = 0;
};

}  // namespace

void ParallelFor(int64_t count, int threads,
                 const std::function<void(int64_t)>& task) {
  if (threads > count) threads = static_cast<int>(count);
  if (threads <= 1 || inside_task) {
    for (int64_t at = 0; at < count; ++at) task(at);
    return;
  }
  const auto job = std::make_shared<Job>(count, task);
  Pool::Get().Share(job, threads - 1);
  inside_task = true;
  job->Work();
  inside_task = false;
  job->Wait();
}

int NumThreads(int requested) {
  if (requested > 0) return requested;
  // Asked once: the answer takes longer than a short call.
  static const unsigned int cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : static_cast<int>(cores);
}

}  // namespace locus
