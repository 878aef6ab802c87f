#include "models/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/fail.h"
#include "locus/text.h"

namespace locus::models {

MappedFile MapFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    Fail("cannot open '{}': {}", EscapeControls(path), std::strerror(errno));
  struct stat status {};
  const bool known = fstat(file, &status) == 0;
  if (!known || !S_ISREG(status.st_mode) || status.st_size <= 0) {
    close(file);
    Fail("'{}' is not a file with contents", EscapeControls(path));
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  close(file);
  if (data == MAP_FAILED) {
    Fail("cannot map '{}': {}", EscapeControls(path), std::strerror(error));
  }
  MappedFile mapped;
  mapped.owner = std::shared_ptr<const void>(
      data, [size](const void* p) { munmap(const_cast<void*>(p), size); });
  mapped.bytes = {static_cast<const std::byte*>(data), size};
  return mapped;
}

}  // namespace locus::models
