// Reads little-endian numbers and strings from untrusted bytes.
#ifndef LOCUS_SRC_MODELS_BYTE_READER_H_
#define LOCUS_SRC_MODELS_BYTE_READER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/fail.h"
#include "locus/text.h"

namespace locus::models {

// Reads sequentially; reading past the end throws Error. Views point into the
// bytes.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {}

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  template <typename T>
  T Number() {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    std::memcpy(&value, Take(sizeof(T)), sizeof(T));
    return value;
  }

  // A string: a 64-bit length, then that many bytes.
  std::string_view Text() {
    const auto length = Number<uint64_t>();
    const auto* bytes = reinterpret_cast<const char*>(Take(length));
    return {bytes, static_cast<size_t>(length)};
  }

  // Skips `count` items of `size` bytes.
  void Skip(uint64_t count, uint64_t size) {
    if (size != 0 && count > left() / size) Short(count, size);
    at_ += static_cast<size_t>(count * size);
  }

 private:
  [[noreturn]] void Short(uint64_t count, uint64_t size) const {
    Fail(
        "'{}' ends too early: {} x {} bytes are announced at byte {}, {} are "
        "left",
        name_, count, size, at_, left());
  }
  const std::byte* Take(uint64_t size) {
    if (size > left()) Short(1, size);
    const std::byte* data = bytes_.data() + at_;
    at_ += static_cast<size_t>(size);
    return data;
  }

  std::span<const std::byte> bytes_;
  std::string name_;
  size_t at_ = 0;
};

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_BYTE_READER_H_
