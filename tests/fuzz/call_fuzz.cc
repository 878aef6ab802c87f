// Compares random calls with the reference, for any length of time.
//
//   call_fuzz [--seconds N] [--seed S] [--case K]
//
// Runs cases 0, 1, ... of seed S (default 1) for N seconds (default 60) of CPU
// time, or only case K. Prints the first case that fails or ends the program,
// and how to run it again.
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <string>

#include "fuzz/trial.h"

namespace locus::testing {
namespace {

struct Args {
  int64_t seconds = 60;
  int64_t seed = 1;
  int64_t only = -1;
};

bool ReadArgs(int argc, char** argv, Args& args) {
  for (int n = 1; n < argc; n += 2) {
    int64_t* const to = std::strcmp(argv[n], "--seconds") == 0 ? &args.seconds
                        : std::strcmp(argv[n], "--seed") == 0  ? &args.seed
                        : std::strcmp(argv[n], "--case") == 0  ? &args.only
                                                               : nullptr;
    if (to == nullptr || n + 1 == argc) return false;
    const char* end = argv[n + 1] + std::strlen(argv[n + 1]);
    const auto [stop, error] = std::from_chars(argv[n + 1], end, *to);
    if (error != std::errc() || stop != end || *to < 0) return false;
  }
  return true;
}

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// The seeds of any two cases differ.
uint64_t SeedOf(int64_t seed, int64_t number) {
  std::seed_seq mix{seed & 0xFFFFFFFF, seed >> 32, number & 0xFFFFFFFF,
                    number >> 32};
  uint32_t words[2];
  mix.generate(words, words + 2);
  return (uint64_t{words[0]} << 32) | words[1];
}

// How to run the current case again, for a program that is about to end.
char again[256];

void SayAgain(int number) {
  const ssize_t written = write(STDERR_FILENO, again, std::strlen(again));
  static_cast<void>(written);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

bool Passes(const char* program, int64_t seed, int64_t number) {
  std::snprintf(again, sizeof(again), "again: %s --seed %lld --case %lld\n",
                program, static_cast<long long>(seed),
                static_cast<long long>(number));
  Trial trial(SeedOf(seed, number));
  std::string wrong;
  try {
    wrong = trial.Run();
  } catch (const std::exception& error) {
    wrong = std::string("it throws: ") + error.what();
  }
  if (wrong.empty()) return true;
  std::printf("%s\n%s\n%s", wrong.c_str(), trial.Describe().c_str(), again);
  return false;
}

int Main(int argc, char** argv) {
  Args args;
  if (!ReadArgs(argc, argv, args)) {
    std::fprintf(stderr, "usage: %s [--seconds N] [--seed S] [--case K]\n",
                 argv[0]);
    return 2;
  }
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM}) {
    std::signal(number, SayAgain);
  }
  if (args.only >= 0) return Passes(argv[0], args.seed, args.only) ? 0 : 1;
  int64_t number = 0;
  for (; CpuSeconds() < static_cast<double>(args.seconds); ++number) {
    if (!Passes(argv[0], args.seed, number)) return 1;
  }
  std::printf("%lld cases of seed %lld are right\n",
              static_cast<long long>(number),
              static_cast<long long>(args.seed));
  return 0;
}

}  // namespace
}  // namespace locus::testing

int main(int argc, char** argv) { return locus::testing::Main(argc, argv); }
