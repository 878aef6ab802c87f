// A pool of helpers that join the parallel regions of their callers.
//
// A helper that is done, and a caller whose helpers are not, wait for up to
// 50 us before they sleep: waking a thread takes as long as a short call. They
// wait by pause instructions, and by sched_yield only if there are more threads
// than CPUs. Threads that yield to each other on one CPU have always just run,
// which to the kernel's balancer means not worth moving, and never sleep, so
// that they are never placed anew: caller and helper could share a CPU for the
// whole life of a process.
//
// A helper that finds itself on its caller's CPU moves to another one at once.
// On a busy machine the kernel starts a new thread on the CPU of its creator
// more often than not, and takes some 100 ms to move it.
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

// Leaves the core's resources to its other hyper-thread for a moment.
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

// Moves this helper off the CPU of its caller. Where CPUs are so busy that it
// soon is back there, it does not spend its time on moving.
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

// Whether there is a CPU for each of them. Without memory to find out: no.
bool HaveCpusFor(int threads) noexcept {
  try {
    return threads <= UsableCpus();
  } catch (const std::exception&) {
    return false;
  }
}

// Waits a little for ready() and tells whether it came true. Without room for
// every thread, one that spins would hold up one that works.
template <typename Ready>
bool SoonReady(bool room, const Ready& ready) {
  constexpr auto kPatience = std::chrono::microseconds(50);
  constexpr int kPauses = 16;  // between two looks at the clock
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
  // A helper is counted in `helpers` before it leaves `wanted`, and does not
  // touch the region once it has left `helpers`.
  std::atomic<int> wanted{0};  // helpers that may still join
  std::atomic<int> helpers{0};
  Region* later = nullptr;  // in the queue
};

// Threads that help with regions. It owns no region: whoever offers one takes
// it back before it ends, and nothing is left in the queue.
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

  // Asks `helpers` workers to join the region; fewer, if threads cannot be
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

  // Lets no more workers join, and waits for those that have.
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

  // Who waits has said so before it looked at the helpers a last time: either
  // it sees that this one has left, or this one sees that it waits.
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
  std::condition_variable wake_;  // a region is there
  std::condition_variable left_;  // a region's last helper has left
  Region* first_ = nullptr;       // those that want helpers
  Region* last_ = nullptr;
  std::atomic<bool> queued_{false};  // any there, for those without the lock
  std::atomic<bool> room_{false};    // of the last region
  int workers_ = 0;
  int sleeping_ = 0;
  std::atomic<int> waiting_{0};  // callers who wait for helpers to leave
};

// When the library is loaded, before there are threads that could fork: a
// process forked while the pool is being made would wait for it forever.
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
