// A JSON object whose reads are typed, checked and recorded.
//
// Every read marks its key as used. Keys that are left unused when a family has
// read all it knows, and that are not known to be harmless, are what the model
// would silently lose.
#ifndef LOCUS_SRC_MODELS_CONFIG_H_
#define LOCUS_SRC_MODELS_CONFIG_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "models/json.h"

namespace locus::models {

// No model has larger sizes; they would only waste memory.
inline constexpr int64_t kMostHeads = 4096;
inline constexpr int64_t kMostWidth = int64_t{1} << 20;
inline constexpr int64_t kMostLayers = 4096;
inline constexpr int64_t kMostLength = int64_t{1} << 40;
// Channels of a head: frequencies are computed for every layer.
inline constexpr int64_t kMostHeadDim = 8192;
// Keys of a single object.
inline constexpr size_t kMostKeys = 4096;

// Alternative spellings of a key; messages use the first.
//
// Owns no memory: families are written as nested braced lists, and if an
// allocation fails within these, g++ 12 destroys some elements twice.
class Names {
 public:
  Names() = default;
  Names(std::initializer_list<const char*> names) : size_(names.size()) {
    if (size_ > names_.size()) {
      throw std::length_error("more names of a key than Names has room for");
    }
    std::copy(names.begin(), names.end(), names_.begin());
  }
  const char* const* begin() const { return names_.data(); }
  const char* const* end() const { return names_.data() + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const char* front() const { return names_[0]; }
  const char* operator[](size_t n) const { return names_[n]; }

 private:
  std::array<const char*, 16> names_ = {};
  size_t size_ = 0;
};

class Config {
 public:
  // `name` prefixes keys in messages: "" or "text_config.". For the root,
  // `position_keys` are the keys that count as unused until they are read; they
  // must outlive this object. Throws Error if there are more than kMostKeys
  // keys.
  Config(const Json& object, std::string name,
         std::span<const std::string> position_keys = {});

  // Present and not null. Marks the key as used either way.
  bool Has(const char* key) const { return Find(key) != nullptr; }
  // Not present at all, not even as null. Defaults of a model's own code apply
  // only to absent keys.
  bool Absent(const char* key) const { return !object_->contains(key); }

  // An integer in [lowest, highest]. Int requires the key.
  int64_t Int(const char* key, int64_t lowest, int64_t highest) const;
  std::optional<int64_t> MaybeInt(const char* key, int64_t lowest,
                                  int64_t highest) const;
  int64_t IntOr(const char* key, int64_t fallback, int64_t lowest,
                int64_t highest) const {
    return MaybeInt(key, lowest, highest).value_or(fallback);
  }
  // The first of several spellings that is present; throws Error if two differ.
  int64_t IntOf(const Names& keys, int64_t lowest, int64_t highest) const;
  std::optional<int64_t> MaybeIntOf(const Names& keys, int64_t lowest,
                                    int64_t highest) const;

  // A finite number in [lowest, highest].
  std::optional<double> MaybeNumber(const char* key, double lowest,
                                    double highest) const;
  double NumberOr(const char* key, double fallback, double lowest,
                  double highest) const {
    return MaybeNumber(key, lowest, highest).value_or(fallback);
  }
  std::optional<double> MaybeNumberOf(const Names& keys, double lowest,
                                      double highest) const;

  std::optional<bool> MaybeFlag(const char* key) const;
  bool FlagOr(const char* key, bool fallback) const {
    return MaybeFlag(key).value_or(fallback);
  }
  std::optional<std::string> MaybeText(const char* key) const;
  std::optional<std::vector<double>> MaybeNumbers(const char* key,
                                                  size_t most) const;
  std::optional<std::vector<int64_t>> MaybeInts(const char* key,
                                                size_t most) const;
  std::optional<std::vector<std::string>> MaybeTexts(const char* key,
                                                     size_t most) const;
  // The object under a key, or nothing.
  std::optional<Config> MaybeObject(const char* key) const;
  // The same for an object that is itself a config, in which keys unrelated to
  // positions are expected.
  std::optional<Config> MaybeConfig(const char* key) const;

  // The value itself, for keys that come in several types; null if absent.
  const Json* Find(const char* key) const;
  // Keys of the object, in order.
  std::vector<std::string> Keys() const;

  // Keys with a value that nobody read, of this object and of objects obtained
  // from it. In configs, keys known to be harmless do not count.
  std::vector<std::string> Unused() const;

  // "text_config.rope_theta", for messages.
  std::string Path(std::string_view key) const;

 private:
  struct Log {
    std::set<std::string> used;
    std::vector<Config> below;
  };
  const Json* Require(const char* key) const;
  std::optional<Config> Below(const char* key, bool is_config) const;

  const Json* object_;
  std::string name_;
  bool root_ = true;
  bool is_config_ = true;  // rather than an object about one thing
  std::span<const std::string> position_keys_;
  std::shared_ptr<Log> log_;
};

// The keys of an object that have a value and are not known to be harmless.
std::vector<std::string> PositionKeys(const Json& object);

// A list of names for a message: the first few, and how many more.
std::string Listed(const std::vector<std::string>& names);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_CONFIG_H_
