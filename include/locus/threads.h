// How many threads the kernels use, and which thread pool provides them.
#ifndef LOCUS_THREADS_H_
#define LOCUS_THREADS_H_

#include "locus/api.h"

namespace LOCUS_API locus {

// Number of CPUs this process may use: those of its affinity mask, limited by
// the CPU quota of its control groups (cgroup v1 or v2), rounded up. Determined
// once, on first use. The default wherever a number of threads is 0.
int UsableCpus();

// Runs body(argument) on up to `threads` threads at once, the caller among
// them, and returns when all have returned. The body does not throw.
using ParallelBackend = void (*)(int threads, void (*body)(void*),
                                 void* argument);

// A backend: the library's own thread pool, started on first use.
void OwnThreads(int threads, void (*body)(void*), void* argument);

// Sets the backend of all later calls. nullptr, the default: the OpenMP runtime
// that the process has loaded (GNU's, LLVM's or Intel's, before or after this
// library), or OwnThreads if there is none. OpenMP threads keep spinning for
// some milliseconds after their work, so a second pool would oversubscribe the
// cores. With OpenMP, a call from inside a parallel region runs on the calling
// thread alone. A forked process always uses OwnThreads, since an inherited
// OpenMP runtime may not work.
//
// Results have the same bits on any backend. Must not be called while an
// attention call is running.
void SetParallelBackend(ParallelBackend backend);

// Called by the calling thread between the tasks of a long call. It ends the
// call by throwing; the exception reaches the caller. In-place operations,
// other than those of KvCache, may then be half done.
using InterruptCheck = void (*)();

// Sets the check for calls of this thread, nullptr for none, and returns the
// previous one.
InterruptCheck SetInterruptCheck(InterruptCheck check);

}  // namespace locus

#endif  // LOCUS_THREADS_H_
