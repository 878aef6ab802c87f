#include "locus/files.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>

#include "core/os.h"
#include "locus/text.h"

namespace locus {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".part";

// A path, made safe for a message.
std::string Shown(const std::string& path) { return EscapeControls(path); }

[[noreturn]] void Refuse(const std::string& path, const char* why, int code) {
  throw OutputError(fmt::format("cannot write '{}': {}", Shown(path), why),
                    code);
}

[[noreturn]] void Refuse(const std::string& path, std::error_code error) {
  Refuse(path, error.message().c_str(), error.value());
}

// A temporary name in the folder of `path`: "model.safetensors.1234-0.part".
std::string Beside(const std::string& path) {
  static std::atomic<int> count = 0;
  // File systems allow names of 255 bytes; the rest is for the numbers.
  constexpr size_t kMostName = 200;
  const fs::path whole(path);
  return (whole.parent_path() /
          fmt::format("{}.{}-{}{}",
                      whole.filename().string().substr(0, kMostName),
                      os::ProcessId(), count++, kEnding))
      .string();
}

// All unfinished outputs of the process.
class Unfinished {
 public:
  static Unfinished& Get() {
    // Never destroyed: AbandonOutputs may run while the process ends.
    static auto* all = new Unfinished();
    return *all;
  }
  // Calls `make` with temporary names until one is free; returns that name, or
  // "" with errno set.
  template <typename Make>
  std::string Add(const std::string& path, const Make& make) {
    const std::lock_guard lock(mutex_);
    // A killed process with the same id may have left files of these names.
    constexpr int kTries = 100;
    for (int n = 0; n < kTries; ++n) {
      std::string beside = Beside(path);
      if (make(beside)) return *paths_.insert(beside).first;
      if (errno != EEXIST) break;
    }
    return "";
  }
  // Removes the output from the disk.
  void Remove(const std::string& beside) {
    const std::lock_guard lock(mutex_);
    std::error_code ignored;  // it may already have been removed
    fs::remove_all(beside, ignored);
    paths_.erase(beside);
  }
  // Renames the output to its final name; returns an errno value, 0 on success.
  int Rename(const std::string& beside, const std::string& path) {
    const std::lock_guard lock(mutex_);
    std::error_code error;
    fs::rename(beside, path, error);
    if (!error) paths_.erase(beside);
    return error.value();
  }
  void Abandon() {
    mutex_.lock();  // never unlocked: other threads block from here on
    for (const std::string& path : paths_) {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  }

 private:
  std::mutex mutex_;
  std::set<std::string> paths_;
};

// The regular file, existing or not, that writing to `path` replaces.
std::string Resolve(const std::string& path) {
  if (fs::path(path).filename().empty()) {
    Refuse(path, "that is no name of a file", EISDIR);
  }
  std::error_code error;
  fs::file_status status = fs::symlink_status(path, error);
  if (!fs::status_known(status)) Refuse(path, error);
  if (!fs::exists(status)) return path;
  std::string target = path;
  if (fs::is_symlink(status)) {
    target = fs::canonical(path, error).string();
    if (!error) status = fs::status(target, error);
    if (error) {
      Refuse(path, "it is a symbolic link that points to no file", ENOENT);
    }
  }
  if (fs::is_directory(status)) Refuse(path, "it is a folder", EISDIR);
  if (!fs::is_regular_file(status)) {
    Refuse(path, "it exists and is not a regular file", EINVAL);
  }
  return target;
}

// Flushes the folder of `path`, so that a rename in it reaches the disk.
void SyncFolder(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  if (!os::FlushFolder(parent.empty() ? "." : parent.string())) {
    Refuse(path, std::strerror(errno), errno);
  }
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(Resolve(path)) {
  beside_ = Unfinished::Get().Add(path_, [this](const std::string& name) {
    file_ = os::OpenNew(name);
    return file_ >= 0;
  });
  if (beside_.empty()) Refuse(path, std::strerror(errno), errno);
  // A replaced file keeps its permissions.
  std::error_code ignored;
  const fs::file_status old = fs::status(path_, ignored);
  if (fs::exists(old)) fs::permissions(beside_, old.permissions(), ignored);
}

OutputFile::~OutputFile() {
  if (file_ >= 0) os::Close(file_);
  if (!beside_.empty()) Unfinished::Get().Remove(beside_);
}

void OutputFile::Broken(const char* what) {
  const int error = errno;
  throw OutputError(fmt::format("cannot {} '{}': {}", what, Shown(path_),
                                std::strerror(error)),
                    error);
}

void OutputFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t written = os::Write(file_, bytes);
    if (written < 0) Broken("write");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void OutputFile::Write(std::string_view text) {
  Write(std::as_bytes(std::span(text)));
}

void OutputFile::Finish() {
  if (!os::Flush(file_)) Broken("write");
  const int file = file_;
  file_ = -1;
  if (!os::Close(file)) Broken("write");
  errno = Unfinished::Get().Rename(beside_, path_);
  if (errno != 0) Broken("rename");
  beside_.clear();
  SyncFolder(path_);
}

OutputFolder::OutputFolder(const std::string& path) : path_(path) {
  // "folder/" means "folder".
  if (fs::path(path_).filename().empty()) {
    path_ = fs::path(path_).parent_path().string();
  }
  if (fs::exists(fs::symlink_status(path_))) {
    throw OutputError(
        fmt::format("'{}' exists; files of an index go into a new folder",
                    Shown(path)),
        EEXIST);
  }
  beside_ = Unfinished::Get().Add(path_, [](const std::string& name) {
    std::error_code error;
    if (fs::create_directory(name, error)) return true;
    errno = error ? error.value() : EEXIST;
    return false;
  });
  if (!beside_.empty()) return;
  const int error = errno;
  throw OutputError(fmt::format("cannot create the folder '{}': {}",
                                Shown(path), std::strerror(error)),
                    error);
}

OutputFolder::~OutputFolder() {
  if (!beside_.empty()) Unfinished::Get().Remove(beside_);
}

std::string OutputFolder::File(const std::string& name) const {
  return (fs::path(beside_) / name).string();
}

void OutputFolder::Finish() {
  const int error = Unfinished::Get().Rename(beside_, path_);
  if (error != 0) Refuse(path_, std::strerror(error), error);
  beside_.clear();
  SyncFolder(path_);
}

void WriteOutput(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.Write(text);
  file.Finish();
}

void CheckOutput(const std::string& path) { const OutputFile probe(path); }

bool IsUnfinishedOutput(std::string_view name) {
  // NAME.PROCESS-NUMBER.part
  if (!name.ends_with(kEnding)) return false;
  name.remove_suffix(kEnding.size());
  for (const char mark : {'-', '.'}) {
    const size_t at = name.find_last_not_of("0123456789");
    if (at == std::string_view::npos || at + 1 == name.size() ||
        name[at] != mark) {
      return false;
    }
    name = name.substr(0, at);
  }
  return !name.empty();
}

void AbandonOutputs() { Unfinished::Get().Abandon(); }

}  // namespace locus
