// Strict reading of JSON text, in time that is linear in its length.
#ifndef LOCUS_SRC_MODELS_JSON_H_
#define LOCUS_SRC_MODELS_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace locus::models {

// Keys are sorted: ordered_json compares each new key with all before it.
using Json = nlohmann::json;

// A value that is taken apart before it ends. The destructor of a list or an
// object allocates as long as it has entries: where memory has run out, that
// would end the program.
struct JsonTree {
  JsonTree() = default;
  explicit JsonTree(Json value) noexcept : root(std::move(value)) {}
  JsonTree(JsonTree&&) = default;
  JsonTree& operator=(JsonTree&&) = delete;
  ~JsonTree();

  Json root = {};
};

// Parses one JSON object. Text longer than `most_bytes`, deeper than 32 levels,
// with a key twice in an object, or in invalid UTF-8, is refused with one
// sentence. `what` names the text in messages.
JsonTree ParseObject(std::string_view text, const char* what,
                     size_t most_bytes);

// A value as it may stand in a message: at most 60 characters.
std::string Shown(const Json& value);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_JSON_H_
