// Files of a study, each whole or not there (see locus/files.h).
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

// The disk cannot take more: no other run can be saved either.
class StorageError : public Error {
 public:
  using Error::Error;
};

// A file does not hold what was written to it.
class DamageError : public Error {
 public:
  // "PATH is damaged (WHAT)"
  DamageError(const std::filesystem::path& path, std::string_view what);
};

// Throws StorageError; what was there under that name stays then.
void WriteFile(const std::filesystem::path& path, std::string_view bytes);
// Throws Error, also once a file has more than `most_bytes`.
std::string ReadFile(const std::filesystem::path& path,
                     size_t most_bytes = SIZE_MAX);
// Folders on the way to it, too. Throws StorageError.
void MakeFolder(const std::filesystem::path& path);

// Removes what processes that were killed had begun to write in the folder
// itself or below FOLDER/runs.
void RemoveUnfinished(const std::filesystem::path& folder);

// The first 16 digits of SHA-256: two studies agree if theirs do.
std::string Fingerprint(std::string_view bytes);

// A checkpoint: JSON that may hold blocks of bytes (Json::binary), as CBOR (RFC
// 8949) after its SHA-256.
void WriteCheckpoint(const std::filesystem::path& path, const Json& json);
// Throws DamageError.
Json ReadCheckpoint(const std::filesystem::path& path);

// JSON for people to read, with a checksum of the rest as its first key.
void WriteSealedJson(const std::filesystem::path& path, const Json& json);
// Without the checksum. Throws DamageError.
Json ReadSealedJson(const std::filesystem::path& path);

// Held by this process and the workers that it starts: as long as one of them
// lives, nobody else writes to the folder.
class FolderLock {
 public:
  // Waits a moment for workers of a study that was killed; throws Error if the
  // folder is still in use then.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_STORE_H_
