#include "cli/gnuplot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "locus/error.h"

extern char** environ;

namespace locus::cli {
namespace {

// A new, empty file beside `path`, removed unless it is kept.
class FileBeside {
 public:
  explicit FileBeside(const std::string& path)
      : path_(path), name_(path + ".XXXXXX") {
    const int fd = mkstemp(name_.data());
    if (fd < 0) {
      name_.clear();
      throw Error(
          fmt::format("cannot write {}: {}", path, std::strerror(errno)));
    }
    close(fd);
  }
  ~FileBeside() {
    if (!name_.empty()) unlink(name_.c_str());
  }
  FileBeside(const FileBeside&) = delete;
  FileBeside& operator=(const FileBeside&) = delete;

  const std::string& name() const { return name_; }
  void Keep() {
    // mkstemp makes private files; a picture follows the umask.
    const mode_t mask = umask(0);
    umask(mask);
    chmod(name_.c_str(), 0666 & ~mask);
    if (std::rename(name_.c_str(), path_.c_str()) != 0) {
      throw Error(
          fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
    }
    name_.clear();
  }

 private:
  std::string path_;
  std::string name_;
};

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

File TemporaryFile() {
  File file(std::tmpfile(), &std::fclose);
  if (!file) {
    throw Error(
        fmt::format("cannot make a temporary file: {}", std::strerror(errno)));
  }
  return file;
}

// The first line of a file that says something.
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
  FileBeside beside(path);
  // Files rather than pipes: neither side can block the other.
  const File input = TemporaryFile();
  const File messages = TemporaryFile();
  const std::string text = script(beside.name());
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
                     stat(beside.name().c_str(), &written) == 0 &&
                     written.st_size > 0;
  if (!whole) {
    const std::string said = FirstLine(messages.get());
    throw Error(fmt::format("gnuplot could not draw {}: {}", path,
                            said.empty() ? "it gave no reason" : said));
  }
  beside.Keep();
}

}  // namespace locus::cli
