// Signals that end the tool while it writes a file.
#ifndef LOCUS_CLI_INTERRUPTS_H_
#define LOCUS_CLI_INTERRUPTS_H_

#include <csignal>
#include <thread>
#include <vector>

namespace locus::cli {

// During its lifetime, SIGINT, SIGTERM and SIGHUP first remove unfinished
// files, then end the tool as usual. Ignored signals remain ignored.
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
