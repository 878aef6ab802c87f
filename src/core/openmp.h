// Finds the OpenMP runtime that the process has loaded, if any: GNU's libgomp,
// LLVM's libomp or Intel's libiomp5, under any file name. PyTorch, for example,
// ships its own.
#ifndef LOCUS_SRC_CORE_OPENMP_H_
#define LOCUS_SRC_CORE_OPENMP_H_

#include <optional>

namespace locus {

struct OpenMp {
  // GOMP_parallel: runs body(argument) on `threads` threads, the caller among
  // them. g++ compiles parallel regions to calls of it, and the other runtimes
  // provide it for compatibility with g++.
  void (*parallel)(void (*body)(void*), void* argument, unsigned int threads,
                   unsigned int flags);
  int (*in_parallel)();  // omp_in_parallel
};

// Searches again whenever the process has loaded another library, so that a
// runtime loaded later is found; the test for that takes some 10 ns per call
// until there is a runtime. A runtime that was found is kept loaded. Returns
// nullptr if there is none, or if it cannot be used:
// - in a forked process, which lacks the threads of GNU's runtime, so that the
//   runtime would wait for them forever,
// - under ThreadSanitizer, which does not see how the runtime synchronises.
// Returns nullopt while another thread searches: waiting for it could deadlock
// if the caller holds the loader's lock.
std::optional<const OpenMp*> FindOpenMp() noexcept;

}  // namespace locus

#endif  // LOCUS_SRC_CORE_OPENMP_H_
