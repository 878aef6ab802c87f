// The threads of another library in the same process.
#include <dlfcn.h>
#include <pthread.h>

#include "bind.h"
#include "locus/threads.h"
#include "signature.h"

namespace locus::python {
namespace {

// What compilers call for a parallel region of OpenMP; GNU's, LLVM's and
// Intel's libraries all have it.
using GompParallel = void (*)(void (*)(void*), void*, unsigned int,
                              unsigned int);
GompParallel gomp_parallel = nullptr;

bool UseOpenMp() {
  gomp_parallel =
      reinterpret_cast<GompParallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  if (gomp_parallel == nullptr) return false;
  SetParallelBackend([](int threads, void (*body)(void*), void* argument) {
    gomp_parallel(body, argument, static_cast<unsigned int>(threads), 0);
  });
  // A process that is forked has none of the threads, and GNU's library would
  // wait for them forever.
  static const int hooked =
      pthread_atfork(nullptr, nullptr, [] { SetParallelBackend(nullptr); });
  return hooked == 0;
}

}  // namespace

void BindThreads(nanobind::module_& m) {
  Function(m, "use_openmp() -> bool",
           "Works on the threads of the OpenMP library that the process has "
           "loaded from now on, if there is one, and tells whether.",
           [](const Arguments&) { return UseOpenMp(); });
}

}  // namespace locus::python
