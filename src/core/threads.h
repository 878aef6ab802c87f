// Numbered tasks on several threads; whose threads these are, locus/threads.h
// says.
#ifndef LOCUS_SRC_CORE_THREADS_H_
#define LOCUS_SRC_CORE_THREADS_H_

#include <cstdint>
#include <type_traits>

namespace locus {

// A reference to something that is called with the number of a task and, if it
// asks for that, the number of the worker that runs it; it must outlive the
// reference. Unlike std::function it allocates nothing.
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
// caller among them, and returns when all are done. Tasks are handed out in
// order; which thread runs which is not fixed, so a task's result must not
// depend on it. Safe to call from many threads at once and from inside a task
// (then it runs on the calling thread alone).
//
// Workers are numbered from 0 to threads - 1, and no two tasks run on one at
// the same time: what a task needs beside its operands is allocated before, for
// each worker, since a task does not throw. Where no thread can be started,
// fewer work.
//
// The caller runs the check of locus/threads.h before each of its own tasks.
// What that throws is thrown to the caller, once no task runs any more; no more
// are handed out then, and those that have begun may end early (Interrupted).
void ParallelFor(int64_t count, int threads, TaskRef task);

// For long loops outside of tasks: runs the check of locus/threads.h, if this
// thread has one. May throw.
void CheckInterrupt();

// For long loops inside of tasks: the same, and whether the task should return,
// its work unfinished, because the caller's check has thrown.
bool Interrupted() noexcept;

// The number of threads for a request: `requested` if positive, else what
// UsableCpus() says.
int NumThreads(int requested);

}  // namespace locus

#endif  // LOCUS_SRC_CORE_THREADS_H_
