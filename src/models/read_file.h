// Reads files into memory, with limits on their size.
#ifndef LOCUS_SRC_MODELS_READ_FILE_H_
#define LOCUS_SRC_MODELS_READ_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace locus::models {

// Reads a whole file, pipe or device; throws Error if it has more than
// `most_bytes`, so that an endless one fails. `what` names it in messages.
std::string ReadWhole(const std::string& path, const char* what,
                      size_t most_bytes);

// A regular file that is read in pieces. If a mapped file were truncated, the
// process would end with SIGBUS; here that is an Error.
class PieceReader {
 public:
  explicit PieceReader(std::string path);
  ~PieceReader();
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;

  const std::string& path() const { return path_; }
  // Size when it was opened.
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
