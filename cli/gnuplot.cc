#include "cli/gnuplot.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "cli/interrupts.h"
#include "locus/error.h"
#include "locus/files.h"

extern char** environ;

namespace locus::cli {
namespace {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

File TemporaryFile() {
  File file(std::tmpfile(), &std::fclose);
  if (!file) {
    throw Error(
        fmt::format("cannot make a temporary file: {}", std::strerror(errno)));
  }
  return file;
}

// The first nonempty line of a file.
std::string FirstLine(FILE* file) {
  std::rewind(file);
  char buffer[512];
  while (std::fgets(buffer, sizeof(buffer), file) != nullptr) {
    std::string line(buffer);
    line.erase(line.find_last_not_of(" \r\n^") + 1);
    line.erase(0, line.find_first_not_of(" \""));
    if (!line.empty()) return line;
  }
  return "";
}

}  // namespace

void RunGnuplot(const std::string& path,
                const std::function<std::string(const std::string&)>& script) {
  const CleanInterrupts interrupts;
  OutputFile file(path);
  // Files rather than pipes, so that neither side can block the other.
  const File input = TemporaryFile();
  const File messages = TemporaryFile();
  const std::string text = script(file.beside());
  if (std::fwrite(text.data(), 1, text.size(), input.get()) != text.size() ||
      std::fflush(input.get()) != 0) {
    throw Error(
        fmt::format("cannot write the plot's data: {}", std::strerror(errno)));
  }
  std::rewind(input.get());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(input.get()), 0);
  posix_spawn_file_actions_adddup2(&actions, fileno(messages.get()), 1);
  posix_spawn_file_actions_adddup2(&actions, fileno(messages.get()), 2);
  std::string program = "gnuplot";
  char* argv[] = {program.data(), nullptr};
  pid_t child = 0;
  const int spawned =
      posix_spawnp(&child, "gnuplot", &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (spawned != 0) {
    throw Error(fmt::format(
        "gnuplot, which draws pictures into files, could not be run: {}",
        std::strerror(spawned)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  struct stat written {};
  const bool whole = WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
                     stat(file.beside().c_str(), &written) == 0 &&
                     written.st_size > 0;
  if (!whole) {
    const std::string said = FirstLine(messages.get());
    throw Error(fmt::format("gnuplot could not draw {}: {}", path,
                            said.empty() ? "it gave no reason" : said));
  }
  file.Finish();
}

}  // namespace locus::cli
