#include "lab/study/stop.h"

#include <csignal>

namespace locus::lab {
namespace {

volatile std::sig_atomic_t wishes = 0;

void OnSignal(int /*signal*/) { wishes = wishes + 1; }

}  // namespace

void InstallSignalHandlers(bool interrupt) {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  if (interrupt) {
    sigaction(SIGINT, &action, nullptr);
  } else {
    std::signal(SIGINT, SIG_IGN);
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

int StopRequests() { return static_cast<int>(wishes); }

}  // namespace locus::lab
