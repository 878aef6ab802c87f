#include "bench/memory.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <malloc.h>
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "bench/measure.h"
#include "locus/error.h"

namespace locus::bench {
namespace {

// Everything a child has to say, until it closes its end. Empty if a signal
// came in between.
std::string ReadAll(int fd, bool& interrupted) {
  std::string all;
  char buffer[4096];
  for (;;) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got == 0) return all;
    if (got < 0) {
      interrupted = errno == EINTR;
      return "";
    }
    all.append(buffer, static_cast<size_t>(got));
  }
}

// "n" and numbers, or "e" and a message.
std::string Answer(const std::function<std::vector<double>()>& task) {
  try {
    const std::vector<double> numbers = task();
    std::string text = "n";
    text.append(reinterpret_cast<const char*>(numbers.data()),
                numbers.size() * sizeof(double));
    return text;
  } catch (const std::bad_alloc&) {
    return "enot enough memory for a call of this size";
  } catch (const std::exception& e) {
    return std::string("e") + e.what();
  }
}

[[noreturn]] void Child(int fd,
                        const std::function<std::vector<double>()>& task) {
  std::signal(SIGINT, SIG_DFL);
#if defined(__linux__)
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // not to outlive a parent that is killed
#endif
  const std::string text = Answer(task);
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t put = write(fd, text.data() + at, text.size() - at);
    if (put <= 0) break;
    at += static_cast<size_t>(put);
  }
  _exit(0);
}

// The peak of the resident set in bytes, as the kernel counts it.
double PeakBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  double kilobytes = 0.0;
  while (status >> word) {
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024.0;
  }
  throw Error("memory is read from /proc/self/status, which has no VmHWM here");
}

// From now on the peak is that of what follows. Returns what is resident.
double ResetPeak() {
  // What the allocator holds free would be used by the call unseen.
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  if (!file) {
    throw Error("the peak of memory cannot be reset: no /proc/self/clear_refs");
  }
  return PeakBytes();
}

// {bytes beyond inputs and outputs, bytes of outputs} of a process's first
// call.
std::vector<double> CallMemory(Case& call, Direction direction) {
  if (direction == Direction::kBackward) call.MakeUpForward();
  const double before = ResetPeak();
  const double outputs = static_cast<double>(call.OutputBytes(direction));
  // Outputs of a short call may come from pages that were there before.
  return {std::max(PeakBytes() - before - outputs, 0.0), outputs};
}

}  // namespace

std::vector<double> RunInChild(
    const std::function<std::vector<double>()>& task) {
  std::error_code none;  // where there is no /proc, nobody counts
  const std::filesystem::directory_iterator threads("/proc/self/task", none);
  if (std::distance(begin(threads), end(threads)) > 1) {
    throw Error("memory must be measured before any thread is started");
  }
  int ends[2];
  if (pipe(ends) != 0) {
    throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  const pid_t child = fork();
  if (child < 0) {
    throw Error(
        fmt::format("cannot start a process: {}", std::strerror(errno)));
  }
  if (child == 0) {
    close(ends[0]);
    Child(ends[1], task);
  }
  close(ends[1]);
  bool interrupted = false;
  const std::string answer = ReadAll(ends[0], interrupted);
  close(ends[0]);
  if (interrupted) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (interrupted) throw Error("interrupted");
  if (WIFSIGNALED(status) || answer.empty()) {
    throw Error(fmt::format("the process that measured was ended by signal {}",
                            WIFSIGNALED(status) ? WTERMSIG(status) : 0));
  }
  if (answer[0] == 'e') throw Error(answer.substr(1));
  std::vector<double> numbers((answer.size() - 1) / sizeof(double));
  std::memcpy(numbers.data(), answer.data() + 1,
              numbers.size() * sizeof(double));
  return numbers;
}

MemoryRow MeasureMemory(const CallSpec& spec, Direction direction) {
  const std::vector<double> found = RunInChild([&] {
    Case call(spec);
    return CallMemory(call, direction);
  });
  return {.spec = spec,
          .direction = direction,
          .extra_bytes = found[0],
          .output_bytes = found[1]};
}

GrowthRow MeasureGrowth(const CallSpec& spec, Direction direction,
                        int repeats) {
  CallSpec quarter = spec;
  quarter.length = spec.length / 4;
  const MemoryRow small = MeasureMemory(quarter, direction);
  const std::vector<double> found = RunInChild([&] {
    Case long_call(spec);
    std::vector<double> numbers = CallMemory(long_call, direction);
    Case short_call(quarter);
    if (direction == Direction::kBackward) short_call.MakeUpForward();
    short_call.Time(direction);
    std::vector<double> long_times, short_times;
    for (int run = 0; run < repeats; ++run) {
      long_times.push_back(long_call.Time(direction));
      // A sixteenth of the time, so that more of them are cheap.
      for (int n = 0; n < 3; ++n) {
        short_times.push_back(short_call.Time(direction));
      }
    }
    numbers.push_back(Spread(short_times).median * 1e3);
    numbers.push_back(Spread(long_times).median * 1e3);
    return numbers;
  });
  return {.spec = spec,
          .direction = direction,
          .repeats = repeats,
          .lengths = {quarter.length, spec.length},
          .milliseconds = {found[2], found[3]},
          .extra_bytes = {small.extra_bytes, found[0]}};
}

}  // namespace locus::bench
