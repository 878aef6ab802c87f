#include "lab/study/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <thread>

#include "lab/train/sha256.h"
#include "locus/files.h"

namespace locus::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "locus checkpoint 2\n";
constexpr size_t kSumDigits = 64;  // of SHA-256

// `what` is the operation that failed.
[[noreturn]] void FailBecause(const std::string& what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw StorageError(
      fmt::format("{}; {}", what,
                  full ? "free some space and continue with --resume"
                       : "make it writable and continue with --resume"));
}

[[noreturn]] void FailStorage(const fs::path& path, int error) {
  FailBecause(
      fmt::format("cannot write {}: {}", path.string(), std::strerror(error)),
      error);
}

// Writes the parts one after another; throws StorageError on failure.
void WriteParts(const fs::path& path,
                std::initializer_list<std::string_view> parts) {
  try {
    OutputFile file(path.string());
    for (const std::string_view part : parts) file.Write(part);
    file.Finish();
  } catch (const OutputError& e) {
    FailBecause(e.what(), e.code());
  }
}

}  // namespace

DamageError::DamageError(const fs::path& path, std::string_view what)
    : Error(fmt::format("{} is damaged ({})", path.string(), what)) {}

void WriteFile(const fs::path& path, std::string_view bytes) {
  WriteParts(path, {bytes});
}

std::string ReadFile(const fs::path& path, size_t most_bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  std::array<char, 1 << 16> piece;
  while (file.read(piece.data(), piece.size()) || file.gcount() > 0) {
    bytes.append(piece.data(), static_cast<size_t>(file.gcount()));
    if (bytes.size() > most_bytes) {
      throw Error(fmt::format("{} has more than the {} bytes that can be right",
                              path.string(), most_bytes));
    }
  }
  if (!file.is_open() || file.bad()) {
    throw Error(
        fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  }
  return bytes;
}

void MakeFolder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) FailStorage(path, error.value());
}

void RemoveUnfinished(const fs::path& folder) {
  const auto remove = [](auto entries) {
    for (const fs::directory_entry& entry : entries) {
      std::error_code error;  // it may already be gone
      if (IsUnfinishedOutput(entry.path().filename().string())) {
        fs::remove(entry.path(), error);
      }
    }
  };
  std::error_code error;  // the folder may not exist
  remove(fs::directory_iterator(folder, error));
  remove(fs::recursive_directory_iterator(folder / "runs", error));
}

std::string Fingerprint(std::string_view bytes) {
  return Sha256(bytes).substr(0, 16);
}

void WriteCheckpoint(const fs::path& path, const Json& json) {
  std::string bytes;
  Json::to_cbor(json, bytes);
  WriteParts(path, {kMagic, Sha256(bytes), bytes});
}

Json ReadCheckpoint(const fs::path& path) {
  const std::string bytes = ReadFile(path);
  std::string_view rest = bytes;
  if (!rest.starts_with(kMagic)) {
    throw DamageError(path, "it does not begin as a checkpoint does");
  }
  rest.remove_prefix(kMagic.size());
  const std::string_view sum = rest.substr(0, kSumDigits);
  rest.remove_prefix(sum.size());
  if (Sha256(rest) != sum) throw DamageError(path, "its checksum differs");
  return Json::from_cbor(rest);
}

void WriteSealedJson(const fs::path& path, const Json& json) {
  Json sealed = {{"checksum", Sha256(json.dump())}};
  sealed.update(json);
  WriteFile(path, sealed.dump(1) + "\n");
}

Json ReadSealedJson(const fs::path& path) {
  Json json = Json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("checksum")) {
    throw DamageError(path, "it is not JSON with a checksum");
  }
  const Json sum = json["checksum"];
  json.erase("checksum");
  if (sum != Sha256(json.dump())) {
    throw DamageError(path, "its checksum differs");
  }
  return json;
}

FolderLock::FolderLock(const fs::path& folder) {
  const fs::path path = folder / "lock";
  // Not closed on exec, so workers hold it as well.
  fd_ = open(path.c_str(), O_RDWR | O_CREAT, 0644);
  if (fd_ < 0) FailStorage(path, errno);
  // A worker whose study was killed finishes its step and evaluation first.
  constexpr int kTries = 300;
  constexpr auto kPause = std::chrono::milliseconds(100);
  for (int n = 0; n < kTries; ++n) {
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
    if (n == 20) {
      fmt::print(stderr, "locus: waiting for another comparison in {}\n",
                 folder.string());
    }
    std::this_thread::sleep_for(kPause);
  }
  close(fd_);
  throw Error(
      fmt::format("another comparison is running in {}; wait for it, "
                  "or choose another folder by --out",
                  folder.string()));
}

FolderLock::~FolderLock() { close(fd_); }

}  // namespace locus::lab
