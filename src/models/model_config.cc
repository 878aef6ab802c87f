#include <array>
#include <filesystem>
#include <utility>

#include "models/gguf.h"
#include "models/layer_source.h"
#include "models/mapped_file.h"
#include "models/nonfinite.h"
#include "models/read_file.h"

namespace locus::models {

namespace {

namespace fs = std::filesystem;

// Decided by the file name's ending, or by the first bytes of a regular file:
// those of a pipe could be read only once.
bool IsGgufFile(const std::string& path) {
  if (path.ends_with(".gguf")) return true;
  std::error_code error;
  std::array<std::byte, 4> magic{};
  if (!fs::is_regular_file(path, error) ||
      fs::file_size(path, error) < magic.size() || error) {
    return false;
  }
  PieceReader(path).Read(0, magic);
  return IsGguf(magic);
}

}  // namespace

ModelConfig::ModelConfig(std::shared_ptr<const LayerSource> source)
    : source_(std::move(source)) {}

ModelConfig ModelConfig::Parse(std::string_view json) {
  return ModelConfig(ConfigSource(
      ParseObject(QuoteNonFinite(json), "the config", kMostConfigBytes)));
}

ModelConfig ModelConfig::Open(const std::string& path) {
  if (IsGgufFile(path)) {
    const MappedFile file = MapFile(path);
    return ModelConfig(GgufSource(file.bytes, file.owner, path));
  }
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  return Parse(ReadWhole(folder ? path + "/config.json" : path, "a config",
                         kMostConfigBytes));
}

LayerPosition ModelConfig::Layer(const ReadOptions& options) const {
  return source_->Read(options);
}

}  // namespace locus::models
