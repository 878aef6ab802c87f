#include "models/shards.h"

#include "core/fail.h"
#include "locus/text.h"
#include "models/json.h"
#include "models/read_file.h"

namespace locus::models {

namespace {

// Some hundred bytes per tensor, some hundred thousand tensors.
constexpr size_t kMostIndexBytes = size_t{64} << 20;

// Whether it is the name of a file in the same folder, without control
// characters that a terminal would interpret.
bool IsPlain(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('/') == std::string::npos && EscapeControls(name) == name;
}

}  // namespace

ShardIndex ReadIndex(const std::string& path) {
  ShardIndex index{.text = ReadWhole(path, "an index", kMostIndexBytes)};
  const JsonTree tree = ParseObject(index.text, "the index", kMostIndexBytes);
  const Json& json = tree.root;
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) {
    Fail("'{}' has no weight_map", EscapeControls(path));
  }
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !IsPlain(file.get_ref<const std::string&>())) {
      Fail("the index puts tensor '{}' into {}, which is no file beside it",
           Printable(tensor), Shown(file));
    }
    index.tensors[file.get<std::string>()].push_back(tensor);
  }
  return index;
}

}  // namespace locus::models
