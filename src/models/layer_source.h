// A model's config, parsed once and read for one layer after another.
#ifndef LOCUS_SRC_MODELS_LAYER_SOURCE_H_
#define LOCUS_SRC_MODELS_LAYER_SOURCE_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "locus/models.h"
#include "models/json.h"

namespace locus::models {

class LayerSource {
 public:
  LayerSource() = default;
  virtual ~LayerSource() = default;
  LayerSource(const LayerSource&) = delete;
  LayerSource& operator=(const LayerSource&) = delete;

  // The position of options.layer; throws Error.
  virtual LayerPosition Read(const ReadOptions& options) const = 0;
};

// From a parsed config.
std::unique_ptr<LayerSource> ConfigSource(JsonTree json);
// From a GGUF file whose bytes `owner` keeps alive.
std::unique_ptr<LayerSource> GgufSource(std::span<const std::byte> bytes,
                                        std::shared_ptr<const void> owner,
                                        const std::string& name);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_LAYER_SOURCE_H_
