// Strict JSON parsing in linear time.
#ifndef LOCUS_SRC_MODELS_JSON_H_
#define LOCUS_SRC_MODELS_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace locus::models {

// Keys are sorted: ordered_json compares each new key with all before it.
using Json = nlohmann::json;

// A value that is emptied before it is destroyed. nlohmann's destructor of a
// non-empty list or object allocates, which would terminate the program when
// memory has run out.
struct JsonTree {
  JsonTree() = default;
  explicit JsonTree(Json value) noexcept : root(std::move(value)) {}
  JsonTree(JsonTree&&) = default;
  JsonTree& operator=(JsonTree&&) = delete;
  ~JsonTree();

  Json root = {};
};

// Parses one JSON object. Throws Error, with a one-sentence message, for text
// that is longer than `most_bytes`, deeper than 32 levels, has a duplicate key
// in an object, or is not valid UTF-8. `what` names the text in messages.
JsonTree ParseObject(std::string_view text, const char* what,
                     size_t most_bytes);

// A value for a message: at most 60 characters.
std::string Shown(const Json& value);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_JSON_H_
