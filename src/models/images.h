// What configs of vision models say of images, patches and stages.
#ifndef LOCUS_SRC_MODELS_IMAGES_H_
#define LOCUS_SRC_MODELS_IMAGES_H_

#include <optional>

#include "models/reader.h"

namespace locus::models {

struct Sides {
  int64_t height = 0, width = 0;
};

// A size, or [height, width]. A missing key means `fallback`, and is an error
// without one.
Sides ReadSides(Reader& r, const char* key,
                std::optional<int64_t> fallback = std::nullopt);

// The patches of an image, at least one each way.
Sides ReadPatches(Reader& r,
                  std::optional<int64_t> default_image = std::nullopt,
                  std::optional<int64_t> default_patch = std::nullopt);

// Where a layer lies in Swin, whose layers are numbered through its stages.
struct SwinStage {
  size_t stages = 0;  // in all
  size_t stage = 0;
  int64_t block = 0;  // within the stage
  int64_t heads = 0;
};

// Reads `depths` and `num_heads`, which have an entry per stage, and sets the
// layers and heads. The width is `embed`, and doubles from stage to stage if
// `doubles`.
SwinStage ReadSwinStage(Reader& r, int64_t embed, bool doubles);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_IMAGES_H_
