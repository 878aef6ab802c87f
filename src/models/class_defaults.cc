#include "models/class_defaults.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/fail.h"
#include "locus/text.h"

namespace locus::models {
namespace {

using TypeLine = std::pair<std::string_view, std::string_view>;

// One JSON object per model type, sorted by type.
constexpr auto kClassDefaults = std::to_array<TypeLine>({
#include "models/class_defaults.inc"
});

// Sorted.
constexpr auto kHarmlessKeys = std::to_array<std::string_view>({
#include "models/harmless_keys.inc"
});

// Spellings of the contents of `rope_parameters`: if a file has any of them,
// the class's default for the whole object does not apply.
constexpr const char* kRopeSpellings[] = {
    "rope_parameters",       "rope_scaling",         "rope_theta",
    "partial_rotary_factor", "rotary_dim",           "rotary_pct",
    "rotary_emb_base",       "rope_local_base_freq", "global_rope_theta",
    "local_rope_theta",      "rotary_embedding_base"};

void RenameAlias(Json& config, const std::string& alias, const std::string& own,
                 const std::string& name) {
  const auto at = config.find(alias);
  if (at == config.end()) return;
  const auto known = config.find(own);
  if (known == config.end() || known->is_null()) {
    Json value = std::move(*at);
    config[own] = std::move(value);
  } else if (!at->is_null() && *known != *at) {
    Fail("{} = {} contradicts {} = {}", Printable(name + alias), Shown(*at),
         Printable(name + own), Shown(*known));
  }
  config.erase(alias);
}

}  // namespace

Json WithClassDefaults(const Json& file, const std::string& model_type,
                       const std::string& name) {
  const auto line = std::ranges::lower_bound(kClassDefaults, model_type,
                                             std::less<>(), &TypeLine::first);
  Json config = file;
  if (line == kClassDefaults.end() || line->first != model_type) return config;
  const Json defaults = Json::parse(line->second);
  if (const auto aliases = defaults.find("aliases");
      aliases != defaults.end()) {
    for (const auto& [alias, own] : aliases->items()) {
      RenameAlias(config, alias, own.get<std::string>(), name);
    }
  }
  const bool spelled =
      std::ranges::any_of(kRopeSpellings, [&](const char* key) {
        return file.contains(key) && !file[key].is_null();
      });
  for (const auto& [key, value] : defaults.items()) {
    if (key == "aliases" || (key == "rope_parameters" && spelled)) continue;
    if (!config.contains(key)) config[key] = value;
  }
  return config;
}

bool IsHarmlessKey(std::string_view key) {
  return std::ranges::binary_search(kHarmlessKeys, key);
}

}  // namespace locus::models
