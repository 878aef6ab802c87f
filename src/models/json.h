// Strict reading of JSON text.
#ifndef LOCUS_SRC_MODELS_JSON_H_
#define LOCUS_SRC_MODELS_JSON_H_

#include <nlohmann/json.hpp>
#include <string_view>

namespace locus::models {

using Json = nlohmann::ordered_json;

// Parses one JSON object. Text longer than `most_bytes`, deeper than 32 levels,
// with a key twice in an object, or in invalid UTF-8, is refused with one
// sentence. `what` names the text in messages.
Json ParseObject(std::string_view text, const char* what,
                 size_t most_bytes = size_t{64} << 20);

// A value as it may stand in a message: at most 60 characters.
std::string Shown(const Json& value);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_JSON_H_
