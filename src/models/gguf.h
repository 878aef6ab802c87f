// GGUF: the file format of llama.cpp, with metadata and tensors.
#ifndef LOCUS_SRC_MODELS_GGUF_H_
#define LOCUS_SRC_MODELS_GGUF_H_

#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "locus/checkpoint.h"

namespace locus::models {

// Scalars, strings and short lists of numbers; longer lists and lists of
// strings (vocabularies) are skipped.
using GgufValue = std::variant<std::monostate, int64_t, double, bool,
                               std::string, std::vector<double>>;

struct Gguf {
  std::map<std::string, GgufValue, std::less<>> metadata = {};
  std::vector<TensorEntry> tensors = {};
};

// Whether a file begins with the magic number of GGUF.
bool IsGguf(std::span<const std::byte> bytes);

Gguf ReadGguf(std::span<const std::byte> bytes, const std::string& name);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_GGUF_H_
