// Numbered tasks on several threads; whose threads these are, locus/threads.h
// says.
#ifndef LOCUS_SRC_CORE_THREADS_H_
#define LOCUS_SRC_CORE_THREADS_H_

#include <cstdint>

namespace locus {

// A reference to something that is called with the number of a task; it must
// outlive the reference. Unlike std::function it allocates nothing.
class TaskRef {
 public:
  template <typename F>
  TaskRef(const F& f)
      : object_(&f), call_([](const void* object, int64_t at) {
          (*static_cast<const F*>(object))(at);
        }) {}
  void operator()(int64_t at) const { call_(object_, at); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t);
};

// Calls task(0) .. task(count - 1), each once, on up to `threads` threads, the
// caller among them, and returns when all are done. Tasks are handed out in
// order; which thread runs which is not fixed, so a task's result must not
// depend on it. Safe to call from many threads at once and from inside a task
// (then it runs on the calling thread alone).
//
// When a task throws, no more tasks are handed out, those that have begun are
// waited for, and the first exception is thrown to the caller. By itself it
// neither throws nor allocates: where no thread can be started, fewer work. The
// caller checks for interrupts before each of its own tasks.
void ParallelFor(int64_t count, int threads, TaskRef task);

// Runs the check of locus/threads.h, if this thread has one, and ends a task
// whose job has failed on another thread: for long loops. May throw.
void CheckInterrupt();

// The number of threads for a request: `requested` if positive, else what
// UsableCpus() says.
int NumThreads(int requested);

}  // namespace locus

#endif  // LOCUS_SRC_CORE_THREADS_H_
