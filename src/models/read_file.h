// Files read into memory, never more of them than can be right.
#ifndef LOCUS_SRC_MODELS_READ_FILE_H_
#define LOCUS_SRC_MODELS_READ_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace locus::models {

// The whole of a file, pipe or device; throws Error once it has more than
// `most_bytes`, so that an endless one ends. `what` names it in messages.
std::string ReadWhole(const std::string& path, const char* what,
                      size_t most_bytes);

// A regular file read piece by piece. A mapping would end the process with
// SIGBUS if the file became shorter; here that is an Error.
class PieceReader {
 public:
  explicit PieceReader(std::string path);
  ~PieceReader();
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;

  const std::string& path() const { return path_; }
  // When it was opened.
  uint64_t size() const { return size_; }
  // Fills `into` with the bytes from `begin` on.
  void Read(uint64_t begin, std::span<std::byte> into) const;

 private:
  std::string path_;
  int file_ = -1;
  uint64_t size_ = 0;
};

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_READ_FILE_H_
