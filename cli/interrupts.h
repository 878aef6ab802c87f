// Signals that end the tool while it writes a file.
#ifndef LOCUS_CLI_INTERRUPTS_H_
#define LOCUS_CLI_INTERRUPTS_H_

#include <csignal>
#include <thread>
#include <vector>

namespace locus::cli {

// While one lives, SIGINT, SIGTERM and SIGHUP first remove what is
// half-written, then end the tool as they would have. A signal that is ignored
// stays ignored.
class CleanInterrupts {
 public:
  CleanInterrupts();
  ~CleanInterrupts();
  CleanInterrupts(const CleanInterrupts&) = delete;
  CleanInterrupts& operator=(const CleanInterrupts&) = delete;

 private:
  struct Before {
    int signal;
    struct sigaction action;
  };
  std::vector<Before> before_;
  std::thread cleaner_;
};

}  // namespace locus::cli

#endif  // LOCUS_CLI_INTERRUPTS_H_
