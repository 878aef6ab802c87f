// How many threads the engine runs on, and whose.
#ifndef LOCUS_THREADS_H_
#define LOCUS_THREADS_H_

#include "locus/api.h"

namespace LOCUS_API locus {

// How many CPUs this process may use: those of its affinity mask, and no more
// than the CPU quota of its control groups (cgroup v1 or v2), rounded up. Asked
// once, when it is first needed. The default wherever a number of threads is 0.
int UsableCpus();

// Runs body(argument) on `threads` threads at once, the caller among them, or
// on fewer, and returns when all have returned. The body does not throw.
using ParallelBackend = void (*)(int threads, void (*body)(void*),
                                 void* argument);

// A backend: the engine's own pool of threads, started when first needed.
void OwnThreads(int threads, void (*body)(void*), void* argument);

// Whose threads the engine runs on from now on. nullptr, the default: those of
// the OpenMP runtime that the process has loaded (GNU's, LLVM's or Intel's,
// before or after this library), else OwnThreads. Threads of OpenMP keep
// spinning for some milliseconds after their work, so a second pool beside them
// would oversubscribe the cores. A call from inside an OpenMP parallel region
// runs on its own thread alone then, and a forked process always uses
// OwnThreads: what it inherits of an OpenMP runtime may not work.
//
// Results are the same bits on any backend. Not to be called while the engine
// is at work.
void SetParallelBackend(ParallelBackend backend);

// What the thread that called the engine runs between pieces of a long call; it
// ends the call by throwing, and the exception reaches the caller. Calls that
// change something in place leave it half changed then, KvCache apart.
using InterruptCheck = void (*)();

// Sets the check of this thread's calls, nullptr for none, and gives the one
// before.
InterruptCheck SetInterruptCheck(InterruptCheck check);

}  // namespace locus

#endif  // LOCUS_THREADS_H_
