// The values that the config class of a model type assumes for keys that a file
// omits, and the keys that never affect positions. Both are data that
// tools/model_keys.py extracts from the classes.
#ifndef LOCUS_SRC_MODELS_CLASS_DEFAULTS_H_
#define LOCUS_SRC_MODELS_CLASS_DEFAULTS_H_

#include <string>
#include <string_view>

#include "models/json.h"

namespace locus::models {

// A config as the class of `model_type` sees it: omitted keys get the class's
// defaults, and alternative spellings of a key (attribute_map) are moved to the
// class's own spelling. `name` prefixes keys in messages.
Json WithClassDefaults(const Json& file, const std::string& model_type,
                       const std::string& name);

// Whether a key of a config is known not to affect positions, masks, head sizes
// or scales in any model.
bool IsHarmlessKey(std::string_view key);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_CLASS_DEFAULTS_H_
