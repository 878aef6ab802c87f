// Builds safetensors and GGUF files in memory, valid and invalid ones.
#ifndef LOCUS_TESTS_MODELS_FILES_H_
#define LOCUS_TESTS_MODELS_FILES_H_

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "locus/checkpoint.h"

namespace locus::models {

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline std::span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline std::string Slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The given header, padded to 8 bytes as writers do, and data.
inline std::string Safetensors(std::string header, const std::string& data) {
  while (header.size() % 8 != 0) header += ' ';
  std::string bytes;
  Append<uint64_t>(bytes, header.size());
  return bytes + header + data;
}

class GgufFile {
 public:
  explicit GgufFile(uint32_t version = 3) : version_(version) {}

  static void Text(std::string& bytes, std::string_view text) {
    Append<uint64_t>(bytes, text.size());
    bytes += text;
  }
  GgufFile& U32(std::string_view key, uint32_t value) {
    return Raw(key, 4, std::string(reinterpret_cast<char*>(&value), 4));
  }
  GgufFile& F32(std::string_view key, float value) {
    return Raw(key, 6, std::string(reinterpret_cast<char*>(&value), 4));
  }
  GgufFile& Bool(std::string_view key, bool value) {
    return Raw(key, 7, std::string(1, value ? '\1' : '\0'));
  }
  GgufFile& Str(std::string_view key, std::string_view value) {
    std::string bytes;
    Text(bytes, value);
    return Raw(key, 8, bytes);
  }
  GgufFile& Raw(std::string_view key, uint32_t type, const std::string& value) {
    Text(entries_, key);
    Append<uint32_t>(entries_, type);
    entries_ += value;
    ++count_;
    return *this;
  }
  // Sizes are innermost first, as in the format.
  GgufFile& Floats(std::string_view name, const std::vector<uint64_t>& sizes,
                   const std::vector<float>& values) {
    Info(name, sizes, 0, data_.size());
    data_.append(reinterpret_cast<const char*>(values.data()),
                 values.size() * sizeof(float));
    while (data_.size() % 32 != 0) data_ += '\0';
    return *this;
  }
  GgufFile& Info(std::string_view name, const std::vector<uint64_t>& sizes,
                 uint32_t type, uint64_t offset) {
    Text(infos_, name);
    Append<uint32_t>(infos_, static_cast<uint32_t>(sizes.size()));
    for (uint64_t size : sizes) Append<uint64_t>(infos_, size);
    Append<uint32_t>(infos_, type);
    Append<uint64_t>(infos_, offset);
    ++tensors_;
    return *this;
  }
  std::string Bytes() const {
    std::string bytes = "GGUF";
    Append<uint32_t>(bytes, version_);
    Append<uint64_t>(bytes, tensors_);
    Append<uint64_t>(bytes, count_);
    bytes += entries_ + infos_;
    while (bytes.size() % 32 != 0) bytes += '\0';
    return bytes + data_;
  }

 private:
  uint32_t version_;
  uint64_t tensors_ = 0, count_ = 0;
  std::string entries_, infos_, data_;
};

}  // namespace locus::models

#endif  // LOCUS_TESTS_MODELS_FILES_H_
