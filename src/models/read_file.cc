#include "models/read_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "core/fail.h"
#include "core/os.h"
#include "locus/text.h"

namespace locus::models {
namespace {

// An owning file descriptor.
struct Opened {
  explicit Opened(const std::string& path) : file(os::OpenToRead(path)) {
    if (file < 0) {
      Fail("cannot open '{}': {}", EscapeControls(path), std::strerror(errno));
    }
  }
  ~Opened() {
    if (file >= 0) os::Close(file);
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
    const int64_t got =
        os::Read(opened.file,
                 std::as_writable_bytes(std::span(text.data() + size, kPiece)));
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
  size_ = os::RegularSize(opened.file).value_or(0);
  if (size_ == 0) {
    Fail("'{}' is not a file with contents", EscapeControls(path_));
  }
  file_ = std::exchange(opened.file, -1);
}

PieceReader::~PieceReader() { os::Close(file_); }

void PieceReader::Read(uint64_t begin, std::span<std::byte> into) const {
  while (!into.empty()) {
    const int64_t got = os::ReadAt(file_, begin, into);
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
