// ParallelFor: numbered tasks on several threads. locus/threads.h chooses the
// backend that provides the threads.
#ifndef LOCUS_SRC_CORE_THREADS_H_
#define LOCUS_SRC_CORE_THREADS_H_

#include <cstdint>
#include <type_traits>

namespace locus {

// A non-owning reference to a callable task(index) or task(index, worker).
// Unlike std::function it never allocates.
class TaskRef {
 public:
  template <typename F>
  TaskRef(const F& f)
      : object_(&f),
        call_([](const void* object, int64_t at, int worker) noexcept {
          const F& task = *static_cast<const F*>(object);
          if constexpr (std::is_invocable_v<const F&, int64_t, int>) {
            static_assert(std::is_nothrow_invocable_v<const F&, int64_t, int>);
            task(at, worker);
          } else {
            static_assert(std::is_nothrow_invocable_v<const F&, int64_t>);
            task(at);
          }
        }) {}
  void operator()(int64_t at, int worker) const noexcept {
    call_(object_, at, worker);
  }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int) noexcept;
};

// Calls task(0) .. task(count - 1), each once, on up to `threads` threads, the
// caller among them, and returns when all are done. Tasks start in order, but
// on any thread, so results must not depend on which thread runs a task. Safe
// to call from several threads at once, and from inside a task, where it runs
// on the calling thread alone.
//
// Workers are numbered 0 .. threads - 1, and a worker runs one task at a time.
// Tasks must not throw, so scratch memory is allocated beforehand, per worker.
// If threads cannot be started, fewer workers do all the tasks.
//
// The caller runs its InterruptCheck (locus/threads.h) before each of its own
// tasks. If that throws, no more tasks start, running ones may return early
// (see Interrupted), and once all have returned the exception is rethrown to
// the caller.
void ParallelFor(int64_t count, int threads, TaskRef task);

// For long loops outside tasks: runs this thread's InterruptCheck, if any,
// which may throw.
void CheckInterrupt();

// For long loops inside tasks: runs the check, and returns whether the task
// should return early because the check has thrown.
bool Interrupted() noexcept;

// `requested` if positive, else UsableCpus().
int NumThreads(int requested);

}  // namespace locus

#endif  // LOCUS_SRC_CORE_THREADS_H_
