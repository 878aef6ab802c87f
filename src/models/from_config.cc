// FromConfig: parse, find the family, let it read, and look at what is left.
#include <fstream>
#include <iterator>

#include "models/families.h"

namespace locus::models {
namespace {

// Configs of several parts keep the text model in an object of its own. The
// type inside may be missing, or be that of the whole.
constexpr const char* kTextKeys[] = {"text_config", "llm_config"};

struct Root {
  const Json* object;
  std::string name;
  std::string model_type;
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
            inner.empty() ? root.model_type : inner};
  }
  if (root.model_type.empty()) {
    Fail("model_type is missing: it says which model's code is meant");
  }
  return root;
}

}  // namespace

AttentionOptions LayerPosition::CallOptions() const {
  AttentionOptions options;
  options.causal = causal;
  options.scale = scale;
  options.window = window;
  options.softcap = softcap;
  return options;
}

LayerPosition FromConfig(std::string_view text, const ReadOptions& options) {
  const Json json = ParseObject(text, "the config");
  const Root root = FindRoot(json);
  const Family& family = FindFamily(root.model_type);
  LayerPosition out;
  out.model_type = root.model_type;
  out.family = family.info.name;
  out.part = "decoder";
  out.layer = options.layer;
  const Config config(*root.object, root.name);
  Reader reader(config, options, out);
  family.read(reader);
  if (!options.part.empty() && options.part != out.part) {
    Fail("{} has no part '{}'", out.model_type, options.part.substr(0, 40));
  }
  const auto unused = config.Unused();
  if (!unused.empty()) {
    reader.Refuse("{} bear{} on positions, but nothing of {} uses {}",
                  fmt::join(unused, ", "), unused.size() == 1 ? "s" : "",
                  out.family, unused.size() == 1 ? "it" : "them");
  }
  return out;
}

LayerPosition FromConfig(std::string_view json, int64_t layer) {
  return FromConfig(json, ReadOptions{.layer = layer});
}

LayerPosition FromConfigFile(const std::string& path,
                             const ReadOptions& options) {
  std::ifstream file(path, std::ios::binary);
  if (!file) Fail("cannot open '{}'", path);
  // The limit of ParseObject, so that a wrong file is not read to its end.
  constexpr std::streamsize kMost = std::streamsize{64} << 20;
  std::string text;
  char block[65536];
  while (file.read(block, sizeof block) || file.gcount() > 0) {
    text.append(block, static_cast<size_t>(file.gcount()));
    if (static_cast<std::streamsize>(text.size()) > kMost) {
      Fail("'{}' is larger than any config", path);
    }
  }
  if (file.bad()) Fail("cannot read '{}'", path);
  return FromConfig(text, options);
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
