#include "cli/bench_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace locus::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void OnInterrupt(int /*signal*/) { interrupted = 1; }

}  // namespace

Progress::Progress(int steps)
    : terminal_(isatty(STDERR_FILENO) == 1), steps_(steps) {
  interrupted = 0;
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  // Only once; and blocking calls (waiting for a child) should return.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, &before_);
}

Progress::~Progress() {
  Clear();
  sigaction(SIGINT, &before_, nullptr);
}

void Progress::Show(const std::string& what) {
  Check();
  ++done_;
  if (!terminal_) return;
  fmt::print(stderr, "\r\x1b[K{} of {}: {} ...", done_, std::max(done_, steps_),
             what);
  std::fflush(stderr);
}

void Progress::Clear() {
  if (!terminal_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

bool Progress::WasInterrupted() { return interrupted != 0; }

void Progress::Check() {
  if (WasInterrupted()) throw Interrupted();
}

}  // namespace locus::cli
