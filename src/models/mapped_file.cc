#include "models/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <optional>

#include "core/fail.h"
#include "core/os.h"
#include "locus/text.h"

namespace locus::models {

MappedFile MapFile(const std::string& path) {
  const int file = os::OpenToRead(path);
  if (file < 0)
    Fail("cannot open '{}': {}", EscapeControls(path), std::strerror(errno));
  const std::optional<uint64_t> size = os::RegularSize(file);
  if (size.value_or(0) == 0) {
    os::Close(file);
    Fail("'{}' is not a file with contents", EscapeControls(path));
  }
  const auto bytes = static_cast<size_t>(*size);
  const std::shared_ptr<const std::byte> data = os::Map(file, bytes);
  const int error = errno;
  os::Close(file);
  if (data == nullptr) {
    Fail("cannot map '{}': {}", EscapeControls(path), std::strerror(error));
  }
  return {.bytes = {data.get(), bytes}, .owner = data};
}

}  // namespace locus::models
