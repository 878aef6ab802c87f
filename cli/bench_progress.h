// What is going on, told on standard error while that is a terminal; and the
// wish to stop.
#ifndef LOCUS_CLI_BENCH_PROGRESS_H_
#define LOCUS_CLI_BENCH_PROGRESS_H_

#include <csignal>
#include <string>

namespace locus::cli {

// Thrown where a measurement may stop; nothing is half-written then.
struct Interrupted {};

// While one lives, the first Ctrl-C is a wish, heard between two runs; the
// second ends the program at once.
class Progress {
 public:
  // `steps`: how many times Show will be called, roughly.
  explicit Progress(int steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Tells what begins now; throws Interrupted if that is not wanted.
  void Show(const std::string& what);
  // Takes the line away, before something is printed.
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
