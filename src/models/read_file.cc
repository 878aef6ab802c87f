#include "models/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/fail.h"
#include "locus/text.h"

namespace locus::models {
namespace {

// A file descriptor that closes itself.
struct Opened {
  explicit Opened(const std::string& path)
      : file(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file < 0) {
      Fail("cannot open '{}': {}", EscapeControls(path), std::strerror(errno));
    }
  }
  ~Opened() {
    if (file >= 0) close(file);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  int file;
};

}  // namespace

std::string ReadWhole(const std::string& path, const char* what,
                      size_t most_bytes) {
  const Opened opened(path);
  constexpr size_t kPiece = size_t{1} << 16;
  std::string text;
  size_t size = 0;
  while (true) {
    text.resize(size + kPiece);
    const ssize_t got = read(opened.file, text.data() + size, kPiece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      Fail("cannot read '{}': {}", EscapeControls(path), std::strerror(errno));
    }
    size += static_cast<size_t>(got);
    if (got == 0) break;
    if (size > most_bytes) {
      Fail("'{}' has more than the {} bytes that {} may have",
           EscapeControls(path), most_bytes, what);
    }
  }
  text.resize(size);
  return text;
}

PieceReader::PieceReader(std::string path) : path_(std::move(path)) {
  Opened opened(path_);
  struct stat status {};
  if (fstat(opened.file, &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size <= 0) {
    Fail("'{}' is not a file with contents", EscapeControls(path_));
  }
  size_ = static_cast<uint64_t>(status.st_size);
  file_ = std::exchange(opened.file, -1);
}

PieceReader::~PieceReader() { close(file_); }

void PieceReader::Read(uint64_t begin, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got =
        pread(file_, into.data(), into.size(), static_cast<off_t>(begin));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      Fail("cannot read '{}': {}", EscapeControls(path_), std::strerror(errno));
    }
    if (got == 0) {
      Fail("'{}' became shorter while it was read: it ends at byte {} of {}",
           EscapeControls(path_), begin, size_);
    }
    begin += static_cast<uint64_t>(got);
    into = into.subspan(static_cast<size_t>(got));
  }
}

}  // namespace locus::models
