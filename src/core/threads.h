// The seam to threads: numbered tasks on a shared pool, or on the host's team
// (locus/threads.h).
#ifndef LOCUS_SRC_CORE_THREADS_H_
#define LOCUS_SRC_CORE_THREADS_H_

#include <cstdint>
#include <functional>

namespace locus {

// Calls task(0) .. task(count - 1), each once, on up to `threads` threads, the
// caller among them, and returns when all are done. Tasks are handed out in
// order; which thread runs which is not fixed, so a task's result must not
// depend on it. Tasks must not throw. Safe to call from many threads at once
// and from inside a task (then it runs on the calling thread alone).
void ParallelFor(int64_t count, int threads,
                 const std::function<void(int64_t)>& task);

// The number of threads for a request: `requested` if positive, else what the
// machine has.
int NumThreads(int requested);

}  // namespace locus

#endif  // LOCUS_SRC_CORE_THREADS_H_
