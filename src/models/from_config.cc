// FromConfig: parse, find the family, let it read, and look at what is left.
#include "locus/text.h"
#include "models/families.h"
#include "models/layer_source.h"

namespace locus::models {
namespace {

// Configs of several parts keep the text model in an object of its own. The
// type inside may be missing, or be that of the whole.
constexpr const char* kTextKeys[] = {"text_config", "llm_config"};

struct Root {
  const Json* object;
  std::string name;
  std::string model_type;
  const Json* beside = nullptr;  // what the object stands in, if it does
};

Root FindRoot(const Json& json) {
  const auto type_of = [](const Json& object) -> std::string {
    const auto at = object.find("model_type");
    if (at == object.end() || at->is_null()) return {};
    if (!at->is_string()) {
      Fail("model_type must be a text, got {}", Shown(*at));
    }
    return at->get<std::string>();
  };
  Root root{&json, "", type_of(json)};
  for (const char* key : kTextKeys) {
    const auto at = json.find(key);
    if (at == json.end() || !at->is_object()) continue;
    const std::string inner = type_of(*at);
    return {&*at, std::string(key) + ".",
            inner.empty() ? root.model_type : inner, &json};
  }
  if (root.model_type.empty()) {
    Fail("model_type is missing: it says which model's code is meant");
  }
  return root;
}

// Values below a key, at most `most` of them counted.
size_t CountValues(const Json& json, size_t most) {
  size_t count = 0;
  if (!json.is_structured()) return count;
  for (const Json& value : json) {
    count += 1 + CountValues(value, most - count);
    if (count >= most) return most;
  }
  return count;
}

class ParsedConfig final : public LayerSource {
 public:
  explicit ParsedConfig(JsonTree json)
      : json_(std::move(json)),
        root_(FindRoot(json_.root)),
        family_(FindFamily(root_.model_type)),
        position_keys_(PositionKeys(*root_.object)) {
    // Each layer looks through these: more would only cost time.
    constexpr size_t kMostValues = 1 << 16;
    for (const std::string& key : position_keys_) {
      if (CountValues(root_.object->at(key), kMostValues) >= kMostValues) {
        Fail("{} has {} values or more, which cannot be right",
             Printable(root_.name + key), kMostValues);
      }
    }
  }

  LayerPosition Read(const ReadOptions& options) const override {
    LayerPosition out;
    out.model_type = root_.model_type;
    out.family = family_.info.name;
    out.part = "decoder";
    out.layer = options.layer;
    const Config config(*root_.object, root_.name, position_keys_);
    Reader reader(config, options, out);
    reader.DualChunks();
    family_.read(reader);
    reader.Causality(root_.beside);
    if (!options.part.empty() && options.part != out.part) {
      Fail("{} has no part '{}'", out.model_type, Printable(options.part));
    }
    const auto unused = config.Unused();
    if (!unused.empty()) {
      reader.Refuse("{} bear{} on positions, but nothing of {} uses {}",
                    Listed(unused), unused.size() == 1 ? "s" : "", out.family,
                    unused.size() == 1 ? "it" : "them");
    }
    return out;
  }

 private:
  JsonTree json_;
  Root root_;
  const Family& family_;
  std::vector<std::string> position_keys_;
};

}  // namespace

std::unique_ptr<LayerSource> ConfigSource(JsonTree json) {
  return std::make_unique<ParsedConfig>(std::move(json));
}

LayerPosition FromConfig(std::string_view text, const ReadOptions& options) {
  return ModelConfig::Parse(text).Layer(options);
}

LayerPosition FromConfig(std::string_view json, int64_t layer) {
  return FromConfig(json, ReadOptions{.layer = layer});
}

LayerPosition FromConfigFile(const std::string& path,
                             const ReadOptions& options) {
  return ModelConfig::Open(path).Layer(options);
}

std::shared_ptr<const Encoding> Build(const Scheme& scheme,
                                      const TensorLookup& tensors) {
  if (scheme.encoding) return scheme.encoding;
  if (!scheme.build) return nullptr;
  if (!tensors) {
    Fail("{} positions need the tensor '{}' of the checkpoint", scheme.name,
         scheme.tensors.empty() ? "?" : scheme.tensors.front().name);
  }
  return scheme.build(tensors);
}

}  // namespace locus::models
