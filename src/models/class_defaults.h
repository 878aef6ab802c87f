// What the config class of a model type takes for the keys that a file leaves
// out, and the keys that never bear on positions. Both are data, written by
// tools/model_keys.py out of the classes themselves.
#ifndef LOCUS_SRC_MODELS_CLASS_DEFAULTS_H_
#define LOCUS_SRC_MODELS_CLASS_DEFAULTS_H_

#include <string>
#include <string_view>

#include "models/json.h"

namespace locus::models {

// A config as the class of `model_type` sees it: keys that the file leaves out
// have the class's own values, and other spellings of a key (attribute_map) are
// put under the class's own. `name` prefixes keys in messages.
Json WithClassDefaults(const Json& file, const std::string& model_type,
                       const std::string& name);

// Whether a key of a config is known to have nothing to do with positions,
// masks, sizes of heads or scales, whatever the model.
bool IsHarmlessKey(std::string_view key);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_CLASS_DEFAULTS_H_
