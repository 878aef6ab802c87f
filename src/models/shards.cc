#include "models/shards.h"

#include "core/fail.h"
#include "models/byte_reader.h"
#include "models/json.h"
#include "models/mapped_file.h"

namespace locus::models {

std::map<std::string, std::vector<std::string>> ReadIndex(
    const std::string& path) {
  const MappedFile index = MapFile(path);
  const Json json = ParseObject(
      {reinterpret_cast<const char*>(index.bytes.data()), index.bytes.size()},
      "the index");
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) {
    Fail("'{}' has no weight_map", path);
  }
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& [tensor, file] : map->items()) {
    const bool plain =
        file.is_string() && !file.get_ref<const std::string&>().empty() &&
        file.get_ref<const std::string&>().find('/') == std::string::npos &&
        file != "." && file != "..";
    if (!plain) {
      Fail("the index puts tensor '{}' into {}, which is no file beside it",
           Printable(tensor), Shown(file));
    }
    files[file.get<std::string>()].push_back(tensor);
  }
  return files;
}

}  // namespace locus::models
