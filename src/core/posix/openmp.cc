#include "core/openmp.h"

#include <dlfcn.h>

#if defined(__linux__)
#include <link.h>
#endif

#include <atomic>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "core/os.h"

namespace locus {
namespace {

#if defined(__SANITIZE_THREAD__)
#define LOCUS_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LOCUS_THREAD_SANITIZER 1
#endif
#endif

std::atomic<const OpenMp*> found{nullptr};
std::atomic<bool> hands_off{false};  // OpenMP must not be used in this process

// Looks up the two functions in a library; false if either is missing.
bool Resolve(void* library, OpenMp& openmp) {
  openmp.parallel = reinterpret_cast<decltype(openmp.parallel)>(
      dlsym(library, "GOMP_parallel"));
  openmp.in_parallel = reinterpret_cast<decltype(openmp.in_parallel)>(
      dlsym(library, "omp_in_parallel"));
  return openmp.parallel != nullptr && openmp.in_parallel != nullptr;
}

#if defined(__linux__)

// Number of libraries that the process has ever loaded.
[[maybe_unused]] unsigned long long LibrariesLoaded() {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<unsigned long long*>(out) = info->dlpi_adds;
        return 1;  // stop at the first library: all report the same count
      },
      &count);
  return count;
}

// The path of the n-th loaded library whose name looks like an OpenMP runtime.
struct Candidate {
  int n;
  char path[4096];

  bool Find(int which) {
    n = which;
    return dl_iterate_phdr(&Look, this) != 0;
  }

  static int Look(dl_phdr_info* info, size_t, void* self) {
    Candidate& mine = *static_cast<Candidate*>(self);
    const std::string_view path = info->dlpi_name;
    const std::string_view file = path.substr(path.rfind('/') + 1);
    bool match = false;
    for (const char* name : {"gomp", "libomp", "iomp5"}) {
      match = match || file.find(name) != file.npos;
    }
    if (!match || mine.n-- > 0 || path.size() >= sizeof(mine.path)) return 0;
    std::memcpy(mine.path, path.data(), path.size());
    mine.path[path.size()] = '\0';
    return 1;
  }
};

// Whether this process was forked without an exec since.
[[maybe_unused]] bool IsForked() {
  constexpr unsigned int kForkNoExec = 0x40;  // PF_FORKNOEXEC
  std::FILE* const file = std::fopen("/proc/self/stat", "re");
  if (file == nullptr) return false;
  // "12345 (name) S ...": the flags are the seventh field after the name, which
  // may contain any character.
  char text[512];
  const size_t read = std::fread(text, 1, sizeof(text) - 1, file);
  std::fclose(file);
  text[read] = '\0';
  const char* const behind = std::strrchr(text, ')');
  unsigned int flags = 0;
  return behind != nullptr &&
         std::sscanf(behind + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
         (flags & kForkNoExec) != 0;
}

// Finds a runtime with global symbols, or else one that was loaded locally, for
// example by a Python extension module.
[[maybe_unused]] bool Search(OpenMp& openmp) {
  if (Resolve(RTLD_DEFAULT, openmp)) {
    // Holds a reference, since whoever loaded it may close it.
    Dl_info where;
    if (dladdr(reinterpret_cast<void*>(openmp.parallel), &where) != 0) {
      dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
    return true;
  }
  // dl_iterate_phdr holds the loader's lock, so the library is opened after it
  // has returned.
  static Candidate candidate;  // by one thread at a time, see FindOpenMp
  for (int n = 0; candidate.Find(n); ++n) {
    void* const library = dlopen(candidate.path, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    if (Resolve(library, openmp)) return true;
    dlclose(library);
  }
  return false;
}

#else

[[maybe_unused]] unsigned long long LibrariesLoaded() { return 1; }
[[maybe_unused]] bool IsForked() { return false; }
[[maybe_unused]] bool Search(OpenMp& openmp) {
  return Resolve(RTLD_DEFAULT, openmp);
}

#endif

// A forked process never searches: another thread may have held the loader's
// locks during the fork.
[[maybe_unused]] const int kOpenMpForkHandler =
    os::AtFork(nullptr, nullptr, [] {
      hands_off = true;
      found = nullptr;
    });

}  // namespace

std::optional<const OpenMp*> FindOpenMp() noexcept {
#if defined(LOCUS_THREAD_SANITIZER)
  return nullptr;
#else
  const OpenMp* const openmp = found.load(std::memory_order_acquire);
  if (openmp != nullptr || hands_off.load(std::memory_order_relaxed)) {
    return openmp;
  }
  // Whoever sees what a search has stored in `seen` sees that it runs, or what
  // it found.
  static std::atomic<unsigned long long> seen{0};
  static std::atomic_flag looking = ATOMIC_FLAG_INIT;
  const unsigned long long loaded = LibrariesLoaded();
  if (loaded == seen.load(std::memory_order_acquire)) {
    if (looking.test(std::memory_order_acquire)) return std::nullopt;
    return found.load(std::memory_order_acquire);
  }
  if (looking.test_and_set(std::memory_order_acquire)) return std::nullopt;
  static OpenMp runtime;
  const bool first = seen.exchange(loaded, std::memory_order_acq_rel) == 0;
  if (found.load(std::memory_order_relaxed) == nullptr && Search(runtime)) {
    // A runtime present at the first search may have been used before a fork.
    if (first && IsForked()) {
      hands_off = true;
    } else {
      found.store(&runtime, std::memory_order_release);
    }
  }
  looking.clear(std::memory_order_release);
  return found.load(std::memory_order_acquire);
#endif
}

}  // namespace locus
