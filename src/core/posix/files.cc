#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/os.h"

namespace locus::os {
namespace {

// Repeats `f` while signals interrupt it.
template <typename F>
int64_t Resumed(const F& f) {
  for (;;) {
    const ssize_t result = f();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace

int OpenToRead(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

int OpenNew(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

bool Close(int file) { return close(file) == 0; }

int64_t Read(int file, std::span<std::byte> into) {
  return Resumed([&] { return read(file, into.data(), into.size()); });
}

int64_t ReadAt(int file, uint64_t begin, std::span<std::byte> into) {
  return Resumed([&] {
    return pread(file, into.data(), into.size(), static_cast<off_t>(begin));
  });
}

int64_t Write(int file, std::span<const std::byte> bytes) {
  return Resumed([&] { return write(file, bytes.data(), bytes.size()); });
}

bool Flush(int file) { return fsync(file) == 0; }

bool FlushFolder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return true;  // it may be writable but not readable
  const int synced = fsync(folder);
  const int error = errno;
  close(folder);
  errno = error;
  // Some file systems do not support fsync on folders.
  return synced == 0 || error == EINVAL || error == ENOTSUP;
}

std::optional<uint64_t> RegularSize(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return {};
  return static_cast<uint64_t>(status.st_size);
}

std::shared_ptr<const std::byte> Map(int file, size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) return nullptr;
  return {static_cast<const std::byte*>(data), [bytes](const std::byte* p) {
            munmap(const_cast<std::byte*>(p), bytes);
          }};
}

}  // namespace locus::os
