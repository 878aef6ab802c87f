// A file as bytes, memory-mapped for reading.
#ifndef LOCUS_SRC_MODELS_MAPPED_FILE_H_
#define LOCUS_SRC_MODELS_MAPPED_FILE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace locus::models {

struct MappedFile {
  std::span<const std::byte> bytes = {};
  std::shared_ptr<const void> owner = {};  // its last copy unmaps the file
};

// Throws Error if the file cannot be read or is empty.
MappedFile MapFile(const std::string& path);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_MAPPED_FILE_H_
