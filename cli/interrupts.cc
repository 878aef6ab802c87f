// A signal handler may do very little, so it only passes the number of the
// signal through a pipe to a thread, which may do anything.
#include "cli/interrupts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "locus/error.h"
#include "locus/files.h"

namespace locus::cli {
namespace {

constexpr unsigned char kStop = 0;  // no signal has this number

// Of the single instance.
int pipe_ends[2] = {-1, -1};

void Tell(unsigned char what) {
  const int before = errno;
  const ssize_t written = write(pipe_ends[1], &what, 1);
  static_cast<void>(written);  // the pipe is empty, so there is space
  errno = before;
}

void OnSignal(int signal) { Tell(static_cast<unsigned char>(signal)); }

void Clean() {
  unsigned char what = kStop;
  while (read(pipe_ends[0], &what, 1) < 0 && errno == EINTR) {
  }
  if (what == kStop) return;
  AbandonOutputs();
  std::signal(what, SIG_DFL);
  kill(getpid(), what);
}

}  // namespace

CleanInterrupts::CleanInterrupts() {
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  cleaner_ = std::thread(Clean);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    before_.push_back({.signal = signal, .action = action});
    action = {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

CleanInterrupts::~CleanInterrupts() {
  for (const auto& [signal, action] : before_) {
    sigaction(signal, &action, nullptr);
  }
  Tell(kStop);
  cleaner_.join();
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace locus::cli
