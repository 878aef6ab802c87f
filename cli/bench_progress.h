// Progress on standard error if it is a terminal, and requests to stop.
#ifndef LOCUS_CLI_BENCH_PROGRESS_H_
#define LOCUS_CLI_BENCH_PROGRESS_H_

#include <csignal>
#include <string>

namespace locus::cli {

// Thrown where a measurement may stop; nothing is half-written at that point.
struct Interrupted {};

// During its lifetime, the first Ctrl-C is a request that is checked between
// two runs; the second ends the program at once.
class Progress {
 public:
  // `steps`: roughly how many times Show will be called.
  explicit Progress(int steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows what begins now; throws Interrupted on a request to stop.
  void Show(const std::string& what);
  // Removes the line before something is printed.
  void Clear();
  static bool WasInterrupted();
  static void Check();  // throws Interrupted

 private:
  bool terminal_;
  int steps_;
  int done_ = 0;
  struct sigaction before_ = {};
};

}  // namespace locus::cli

#endif  // LOCUS_CLI_BENCH_PROGRESS_H_
