// Atomic output: files are written completely or not at all.
//
// An output is written to a temporary file in the same folder, flushed to disk
// and renamed, so that readers see either the old file or the new one.
//
// An existing file of that name must be a regular one: devices, pipes and
// folders are refused, since renaming would replace them. Symbolic links are
// followed: the target is replaced and the link stays.
#ifndef LOCUS_FILES_H_
#define LOCUS_FILES_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "locus/api.h"
#include "locus/error.h"

namespace LOCUS_API locus {

// An output could not be written; `code` is the errno value.
class OutputError : public Error {
 public:
  OutputError(const std::string& what, int code) : Error(what), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// A file being written. Members throw OutputError and then leave any existing
// file unchanged.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  // Removes the temporary file unless Finish succeeded.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text);
  // The path of the temporary file, for code that writes to it directly.
  const std::string& beside() const { return beside_; }
  // Flushes the file, renames it and flushes the folder.
  void Finish();

 private:
  [[noreturn]] void Broken(const char* what);

  std::string path_;    // with symbolic links resolved
  std::string beside_;  // empty: finished
  int file_ = -1;
};

// The same for a folder, which must not exist yet.
class OutputFolder {
 public:
  explicit OutputFolder(const std::string& path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // The path to write a file of the folder to, valid until Finish.
  std::string File(const std::string& name) const;
  void Finish();

 private:
  std::string path_, beside_;
};

// Writes a whole file.
void WriteOutput(const std::string& path, std::string_view text);

// Throws OutputError if `path` cannot be written, for tools that should find
// out before a long computation.
void CheckOutput(const std::string& path);

// Whether a file name is that of an unfinished output of a killed process.
bool IsUnfinishedOutput(std::string_view name);

// Removes all unfinished outputs; threads that are writing one block from then
// on. For a process that is about to exit.
void AbandonOutputs();

}  // namespace locus

#endif  // LOCUS_FILES_H_
