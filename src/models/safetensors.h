// The header of a safetensors file.
#ifndef LOCUS_SRC_MODELS_SAFETENSORS_H_
#define LOCUS_SRC_MODELS_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "locus/checkpoint.h"

namespace locus::models {

// The length of the header, 8 bytes, precedes it.
inline constexpr size_t kSafetensorsPrefix = 8;

struct PlacedTensor {
  TensorEntry entry = {};  // without its data
  uint64_t begin = 0;      // relative to the end of the header
  uint64_t end = 0;
};

// Throws Error if a header of `header_size` bytes is impossible in a file with
// `left` bytes after the length.
void CheckHeaderSize(uint64_t header_size, uint64_t left,
                     const std::string& name);

// The tensors in the order of their data, which have `data_size` bytes in
// total. `name` is the file's, for messages.
std::vector<PlacedTensor> ReadSafetensorsHeader(std::string_view header,
                                                uint64_t data_size,
                                                const std::string& name);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_SAFETENSORS_H_
