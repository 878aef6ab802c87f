// Files of a study, each complete or absent (see locus/files.h).
#ifndef LOCUS_LAB_STUDY_STORE_H_
#define LOCUS_LAB_STUDY_STORE_H_

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "locus/error.h"

namespace locus::lab {

// Keys keep the order in which they are written.
using Json = nlohmann::ordered_json;

// The disk cannot store more, so other runs cannot be saved either.
class StorageError : public Error {
 public:
  using Error::Error;
};

// The contents of a file differ from what was written.
class DamageError : public Error {
 public:
  // "PATH is damaged (WHAT)"
  DamageError(const std::filesystem::path& path, std::string_view what);
};

// Throws StorageError; an existing file of that name is then unchanged.
void WriteFile(const std::filesystem::path& path, std::string_view bytes);
// Throws Error, including if a file has more than `most_bytes`.
std::string ReadFile(const std::filesystem::path& path,
                     size_t most_bytes = SIZE_MAX);
// Creates parent folders as well. Throws StorageError.
void MakeFolder(const std::filesystem::path& path);

// Removes unfinished files of killed processes, in the folder itself and below
// FOLDER/runs.
void RemoveUnfinished(const std::filesystem::path& folder);

// The first 16 digits of SHA-256: two studies have equal contents if these
// match.
std::string Fingerprint(std::string_view bytes);

// Writes a checkpoint: JSON that may have blocks of bytes (Json::binary), as
// CBOR (RFC 8949) preceded by its SHA-256.
void WriteCheckpoint(const std::filesystem::path& path, const Json& json);
// Throws DamageError.
Json ReadCheckpoint(const std::filesystem::path& path);

// Readable JSON, with a checksum of the rest as its first key.
void WriteSealedJson(const std::filesystem::path& path, const Json& json);
// Returns the JSON without the checksum. Throws DamageError.
Json ReadSealedJson(const std::filesystem::path& path);

// Held by this process and the workers that it starts: as long as one of them
// is alive, no other process writes to the folder.
class FolderLock {
 public:
  // Waits a while for workers of a killed study; throws Error if the folder is
  // still in use.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_STORE_H_
