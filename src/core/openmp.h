// The OpenMP runtime that the process has loaded, if any: GNU's libgomp, LLVM's
// libomp or Intel's libiomp5, under whatever file name. PyTorch, for one,
// brings its own.
#ifndef LOCUS_SRC_CORE_OPENMP_H_
#define LOCUS_SRC_CORE_OPENMP_H_

namespace locus {

struct OpenMp {
  // Runs body(argument) on `threads` threads, the caller among them: what g++
  // compiles a parallel region to. The other runtimes have it for programs that
  // g++ has compiled.
  void (*parallel)(void (*body)(void*), void* argument, unsigned int threads,
                   unsigned int flags);
  int (*in_parallel)();  // omp_in_parallel
};

// Looks again whenever the process has loaded another library since, so that a
// runtime which comes late is found; that costs some 10 ns as long as there is
// none, and nothing once there is one. The runtime stays loaded from then on.
// nullptr where there is none, and where it cannot be used:
// - in a forked process, since the threads of GNU's runtime do not come along
//   and it would wait for them forever,
// - under ThreadSanitizer, which does not see how the runtime synchronises.
const OpenMp* FindOpenMp() noexcept;

}  // namespace locus

#endif  // LOCUS_SRC_CORE_OPENMP_H_
