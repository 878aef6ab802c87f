#include "lab/threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "locus/simd.h"

namespace locus::lab {
namespace {

// A function of OpenBLAS, which may stand behind libblas; null if another
// library does. libtorch knows nothing of these.
template <typename Function>
Function* OpenBlas(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

void SetThreads(int threads) {
  at::set_num_threads(threads);
  static auto* const set = OpenBlas<void(int)>("openblas_set_num_threads");
  if (set != nullptr) set(threads);
}

void SettleBlas(char** argv) {
  auto* const core = OpenBlas<const char*()>("openblas_get_corename");
  if (core == nullptr || std::string_view(core()) != "Prescott") return;
  const std::string simd = SimdTarget();
  const char* better = simd == "AVX3"   ? "SkylakeX"
                       : simd == "AVX2" ? "Haswell"
                                        : nullptr;
  constexpr const char* kChoice = "OPENBLAS_CORETYPE";
  if (better != nullptr && std::getenv(kChoice) == nullptr &&
      setenv(kChoice, better, /*replace=*/0) == 0) {
    execv("/proc/self/exe", argv);
  }
}

}  // namespace locus::lab
