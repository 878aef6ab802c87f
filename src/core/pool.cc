// A thread pool whose helpers join the parallel regions of callers.
//
// An idle helper, and a caller whose helpers are still busy, spin for up to
// 50 us before they sleep, since waking a thread takes as long as a short call.
// They spin on pause instructions, and on sched_yield only if there are more
// threads than CPUs. Two threads that yield to each other on one CPU always
// look recently run (cache hot) to the kernel's load balancer and never sleep,
// so they are never migrated: caller and helper could share a CPU for the whole
// life of a process.
//
// A helper that finds itself on its caller's CPU moves to another one at once.
// On a busy machine the kernel often starts a new thread on its creator's CPU
// and takes some 100 ms to migrate it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "core/os.h"
#include "locus/threads.h"

namespace locus {
namespace {

// Yields the core's resources to its other hyper-thread for a moment.
inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` does nothing on most cores
#elif defined(__powerpc64__)
  asm volatile("or 27,27,27" ::: "memory");
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

// Moves this helper off its caller's CPU, at most once per 10 ms: if CPUs are
// so busy that it is soon back there, moving again is not worth the time.
void KeepApartFrom(int caller_cpu) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPause = std::chrono::milliseconds(10);
  thread_local Clock::time_point next_move;
  if (caller_cpu < 0 || os::CurrentCpu() != caller_cpu) return;
  const Clock::time_point now = Clock::now();
  if (now < next_move) return;
  next_move = now + kPause;
  os::MoveOff(caller_cpu);
}

// Whether there is a CPU for each thread; false if finding out runs out of
// memory.
bool HaveCpusFor(int threads) noexcept {
  try {
    return threads <= UsableCpus();
  } catch (const std::exception&) {
    return false;
  }
}

// Spins until ready(), for at most 50 us, and returns whether it became true.
// Without room for all threads it yields, since a spinning thread would hold up
// a working one.
template <typename Ready>
bool SoonReady(bool room, const Ready& ready) {
  constexpr auto kPatience = std::chrono::microseconds(50);
  constexpr int kPauses = 16;  // between two clock reads
  if (ready()) return true;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  do {
    if (!room) std::this_thread::yield();
    for (int n = 0; n < kPauses; ++n) {
      if (ready()) return true;
      if (room) Pause();
    }
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

// One call of OwnThreads, on its caller's stack.
struct Region {
  void (*const body)(void*);
  void* const argument;
  const int caller_cpu = os::CurrentCpu();
  bool room = false;  // a CPU for each thread
  // A joining helper increments `helpers` before it decrements `wanted`, and
  // does not touch the region after it has decremented `helpers` again.
  std::atomic<int> wanted{0};   // helpers that may still join
  std::atomic<int> helpers{0};  // helpers at work
  Region* later = nullptr;      // next in the queue
};

// The helper threads and the queue of regions that want helpers. It owns no
// region: the caller that offers one takes it back before the region ends.
class Pool {
 public:
  // Never destroyed: worker threads may outlive static destruction.
  static Pool& Get() {
    alignas(Pool) static std::byte memory[sizeof(Pool)];
    static auto* pool = new (memory) Pool();
    return *pool;
  }

  // Starts afresh in a forked process, which has none of the threads and may
  // have inherited a locked mutex.
  static void ResetInChild() { new (&Get()) Pool(); }

  // Queues the region for `helpers` workers, or fewer if threads cannot be
  // started.
  void Offer(Region& region, int helpers) {
    int wakes = 0;
    region.room = HaveCpusFor(helpers + 1);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      while (workers_ < helpers && StartWorker()) ++workers_;
      helpers = std::min(helpers, workers_);
      if (helpers == 0) return;
      room_.store(region.room, std::memory_order_relaxed);
      region.wanted.store(helpers, std::memory_order_relaxed);
      (last_ == nullptr ? first_ : last_->later) = &region;
      last_ = &region;
      queued_.store(true, std::memory_order_release);
      wakes = std::min(helpers, sleeping_);
    }
    for (; wakes > 0; --wakes) wake_.notify_one();
  }

  // Stops more workers from joining and waits for those that have joined.
  void TakeBack(Region& region) {
    if (region.wanted.load(std::memory_order_acquire) > 0) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (region.wanted.load(std::memory_order_relaxed) > 0) Remove(region);
    }
    const auto alone = [&region] { return region.helpers.load() == 0; };
    if (SoonReady(region.room, alone)) return;
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
          Region& region = Join();
          if (region.room) KeepApartFrom(region.caller_cpu);
          region.body(region.argument);
          Leave(region);
        }
      }).detach();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  Region& Join() {
    SoonReady(room_.load(std::memory_order_relaxed),
              [this] { return queued_.load(std::memory_order_acquire); });
    std::unique_lock<std::mutex> lock(mutex_);
    ++sleeping_;
    wake_.wait(lock, [this] { return first_ != nullptr; });
    --sleeping_;
    Region& region = *first_;
    const int wanted = region.wanted.load(std::memory_order_relaxed) - 1;
    if (wanted == 0) Remove(region);
    region.helpers.fetch_add(1, std::memory_order_relaxed);
    region.wanted.store(wanted, std::memory_order_release);
    return region;
  }

  // A waiting caller increments `waiting_` before it last reads `helpers`: so
  // either it sees that this helper has left, or this helper sees it waiting.
  void Leave(Region& region) {
    if (region.helpers.fetch_sub(1) > 1 || waiting_.load() == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    left_.notify_all();
  }

  void Remove(Region& region) {
    Region* before = nullptr;
    for (Region* at = first_; at != &region; at = at->later) before = at;
    (before == nullptr ? first_ : before->later) = region.later;
    if (last_ == &region) last_ = before;
    queued_.store(first_ != nullptr, std::memory_order_relaxed);
  }

  std::mutex mutex_;
  std::condition_variable wake_;  // a region was queued
  std::condition_variable left_;  // a region's last helper has left
  Region* first_ = nullptr;       // queue of regions that want helpers
  Region* last_ = nullptr;
  std::atomic<bool> queued_{false};  // queue not empty; read without the lock
  std::atomic<bool> room_{false};    // of the region queued last
  int workers_ = 0;
  int sleeping_ = 0;
  std::atomic<int> waiting_{0};  // callers waiting for helpers to leave
};

// Runs when the library is loaded, before any thread could fork: a child forked
// while the pool is being constructed would wait for it forever.
[[maybe_unused]] const int kPoolForkHandler = [] {
  Pool::Get();
  return os::AtFork(nullptr, nullptr, Pool::ResetInChild);
}();

}  // namespace

void OwnThreads(int threads, void (*body)(void*), void* argument) {
  Region region{.body = body, .argument = argument};
  Pool& pool = Pool::Get();
  if (threads > 1) pool.Offer(region, threads - 1);
  body(argument);
  pool.TakeBack(region);
}

}  // namespace locus
