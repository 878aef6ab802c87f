#include "models/config.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "locus/text.h"
#include "models/class_defaults.h"

namespace locus::models {
namespace {

template <typename T>
void CheckRange(const std::string& path, T value, T lowest, T highest) {
  if (!(value >= lowest && value <= highest)) {
    Fail("{} must lie in {} .. {}, got {}", path, lowest, highest, value);
  }
}

int64_t AsInt(const std::string& path, const Json& value, int64_t lowest,
              int64_t highest) {
  if (!value.is_number_integer()) {
    Fail("{} must be a whole number, got {}", path, Shown(value));
  }
  // Unsigned values past int64 would wrap.
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(highest)) {
    Fail("{} must lie in {} .. {}, got {}", path, lowest, highest,
         value.get<uint64_t>());
  }
  const auto number = value.get<int64_t>();
  CheckRange(path, number, lowest, highest);
  return number;
}

double AsNumber(const std::string& path, const Json& value) {
  if (!value.is_number()) {
    Fail("{} must be a number, got {}", path, Shown(value));
  }
  const auto number = value.get<double>();
  if (!std::isfinite(number)) {
    Fail("{} must be finite, got {}", path, Shown(value));
  }
  return number;
}

const Json& AsList(const std::string& path, const Json& value, size_t most) {
  if (!value.is_array()) {
    Fail("{} must be a list, got {}", path, Shown(value));
  }
  if (value.size() > most) {
    Fail("{} has {} entries, more than {}", path, value.size(), most);
  }
  return value;
}

void CheckKeys(const Json& object, const std::string& name) {
  if (object.size() <= kMostKeys) return;
  // "rope_scaling." is the name of the object.
  Fail("{} has {} keys, more than the {} that can be right",
       name.empty() ? "the config" : name.substr(0, name.size() - 1),
       object.size(), kMostKeys);
}

}  // namespace

std::vector<std::string> PositionKeys(const Json& object) {
  CheckKeys(object, "");
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_null() && !IsHarmlessKey(key)) keys.push_back(key);
  }
  return keys;
}

std::string Listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  const size_t shown = std::min(names.size(), kMost);
  std::string text = fmt::format(
      "{}",
      fmt::join(names.begin(),
                names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) {
    text += fmt::format(" and {} more", names.size() - shown);
  }
  return text;
}

Config::Config(const Json& object, std::string name,
               std::span<const std::string> position_keys)
    : object_(&object),
      name_(std::move(name)),
      position_keys_(position_keys),
      log_(std::make_shared<Log>()) {
  CheckKeys(object, name_);
}

std::string Config::Path(std::string_view key) const {
  // Keys may come from the file.
  constexpr size_t kMost = 100;
  return Printable(name_ + std::string(key), kMost);
}

const Json* Config::Find(const char* key) const {
  log_->used.insert(key);
  const auto at = object_->find(key);
  return at == object_->end() || at->is_null() ? nullptr : &*at;
}

const Json* Config::Require(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) Fail("{} is missing", Path(key));
  return value;
}

int64_t Config::Int(const char* key, int64_t lowest, int64_t highest) const {
  return AsInt(Path(key), *Require(key), lowest, highest);
}

std::optional<int64_t> Config::MaybeInt(const char* key, int64_t lowest,
                                        int64_t highest) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  return AsInt(Path(key), *value, lowest, highest);
}

namespace {

// The value of the first key that is present; the others must agree with it.
template <typename T, typename Read>
std::optional<T> Agreed(const Names& keys, const Config& config, Read read) {
  std::optional<T> found;
  const char* where = nullptr;
  for (const char* key : keys) {
    const std::optional<T> value = read(key);
    if (!value) continue;
    if (found && *found != *value) {
      Fail("{} = {} contradicts {} = {}", config.Path(key), *value,
           config.Path(where), *found);
    }
    if (!found) where = key;
    found = value;
  }
  return found;
}

}  // namespace

std::optional<int64_t> Config::MaybeIntOf(const Names& keys, int64_t lowest,
                                          int64_t highest) const {
  return Agreed<int64_t>(keys, *this, [&](const char* key) {
    return MaybeInt(key, lowest, highest);
  });
}

int64_t Config::IntOf(const Names& keys, int64_t lowest,
                      int64_t highest) const {
  const auto value = MaybeIntOf(keys, lowest, highest);
  if (!value) Fail("{} is missing", Path(keys.front()));
  return *value;
}

std::optional<double> Config::MaybeNumber(const char* key, double lowest,
                                          double highest) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const double number = AsNumber(Path(key), *value);
  CheckRange(Path(key), number, lowest, highest);
  return number;
}

std::optional<double> Config::MaybeNumberOf(const Names& keys, double lowest,
                                            double highest) const {
  return Agreed<double>(keys, *this, [&](const char* key) {
    return MaybeNumber(key, lowest, highest);
  });
}

std::optional<bool> Config::MaybeFlag(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    Fail("{} must be true or false, got {}", Path(key), Shown(*value));
  }
  return value->get<bool>();
}

std::optional<std::string> Config::MaybeText(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    Fail("{} must be a string, got {}", Path(key), Shown(*value));
  }
  return value->get<std::string>();
}

std::optional<std::vector<double>> Config::MaybeNumbers(const char* key,
                                                        size_t most) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<double> numbers;
  for (const Json& entry : AsList(Path(key), *value, most)) {
    numbers.push_back(AsNumber("an entry of " + Path(key), entry));
  }
  return numbers;
}

std::optional<std::vector<int64_t>> Config::MaybeInts(const char* key,
                                                      size_t most) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Json& entry : AsList(Path(key), *value, most)) {
    numbers.push_back(AsInt("an entry of " + Path(key), entry, 0, kMostLength));
  }
  return numbers;
}

std::optional<std::vector<std::string>> Config::MaybeTexts(const char* key,
                                                           size_t most) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> texts;
  for (const Json& entry : AsList(Path(key), *value, most)) {
    if (!entry.is_string()) {
      Fail("an entry of {} must be a string, got {}", Path(key), Shown(entry));
    }
    texts.push_back(entry.get<std::string>());
  }
  return texts;
}

std::optional<Config> Config::MaybeObject(const char* key) const {
  return Below(key, /*is_config=*/false);
}

std::optional<Config> Config::MaybeConfig(const char* key) const {
  return Below(key, /*is_config=*/true);
}

std::optional<Config> Config::Below(const char* key, bool is_config) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) {
    Fail("{} must be an object, got {}", Path(key), Shown(*value));
  }
  for (const Config& known : log_->below) {
    if (known.object_ == value) return known;
  }
  Config below(*value, Path(key) + ".");
  below.root_ = false;
  below.is_config_ = is_config;
  log_->below.push_back(below);
  return below;
}

std::vector<std::string> Config::Keys() const {
  std::vector<std::string> keys;
  for (const auto& entry : object_->items()) keys.push_back(entry.key());
  return keys;
}

std::vector<std::string> Config::Unused() const {
  std::vector<std::string> unused;
  const auto check = [&](const std::string& key) {
    if (!log_->used.contains(key)) unused.push_back(Shown(Json(Path(key))));
  };
  if (root_) {
    for (const std::string& key : position_keys_) check(key);
  } else {
    for (const auto& [key, value] : object_->items()) {
      if (!value.is_null() && (!is_config_ || !IsHarmlessKey(key))) check(key);
    }
  }
  for (const Config& below : log_->below) {
    for (std::string& key : below.Unused()) unused.push_back(std::move(key));
  }
  return unused;
}

}  // namespace locus::models
