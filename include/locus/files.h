// Files that are whole or not there.
//
// An output is written beside its place, flushed to the disk and renamed, so
// that a reader sees the old file or the new one, whatever happens in between.
//
// What exists under its name must be a regular file: devices, pipes and folders
// are refused, since renaming would replace them. A symbolic link is followed:
// the file that it points to is replaced, and the link stays.
#ifndef LOCUS_FILES_H_
#define LOCUS_FILES_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "locus/api.h"
#include "locus/error.h"

namespace LOCUS_API locus {

// An output could not be written; `code` is the errno of the reason.
class OutputError : public Error {
 public:
  OutputError(const std::string& what, int code) : Error(what), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// All members throw OutputError, and leave what was there under that name.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  // Removes what was written unless Finish succeeded.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text);
  // Where the bytes are until Finish, for programs that write them themselves.
  const std::string& beside() const { return beside_; }
  // Flushes the file, gives it its name and flushes the folder.
  void Finish();

 private:
  [[noreturn]] void Broken(const char* what);

  std::string path_;    // with links followed
  std::string beside_;  // empty: finished
  int file_ = -1;
};

// The same for a folder, which must be new.
class OutputFolder {
 public:
  explicit OutputFolder(const std::string& path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // The path of a file in it until Finish.
  std::string File(const std::string& name) const;
  void Finish();

 private:
  std::string path_, beside_;
};

// A whole file at once.
void WriteOutput(const std::string& path, std::string_view text);

// Throws OutputError if an output could not be begun at `path`: for tools that
// work long before they write.
void CheckOutput(const std::string& path);

// Whether a file of this name is an output that a killed process left behind.
bool IsUnfinishedOutput(std::string_view name);

// Removes every output that is not finished; the threads that write them wait
// from then on. For a process that is about to end.
void AbandonOutputs();

}  // namespace locus

#endif  // LOCUS_FILES_H_
