#include "models/images.h"

namespace locus::models {

Sides ReadSides(Reader& r, const char* key, std::optional<int64_t> fallback) {
  const Json* value = r.c.Find(key);
  if (value == nullptr) {
    if (!fallback) Fail("{} is missing", r.c.Path(key));
    return {*fallback, *fallback};
  }
  if (!value->is_array()) {
    const int64_t side = r.c.Int(key, 1, 65536);
    return {side, side};
  }
  const auto sides = *r.c.MaybeInts(key, 2);
  if (sides.size() != 2 || sides[0] < 1 || sides[1] < 1 || sides[0] > 65536 ||
      sides[1] > 65536) {
    Fail("{} must be one size or two, 1 .. 65536", r.c.Path(key));
  }
  return {sides[0], sides[1]};
}

Sides ReadPatches(Reader& r, std::optional<int64_t> default_image,
                  std::optional<int64_t> default_patch) {
  const Sides image = ReadSides(r, "image_size", default_image);
  const Sides patch = ReadSides(r, "patch_size", default_patch);
  const Sides grid{image.height / patch.height, image.width / patch.width};
  if (grid.height < 1 || grid.width < 1) {
    Fail("{} is smaller than {}", r.c.Path("image_size"),
         r.c.Path("patch_size"));
  }
  return grid;
}

SwinStage ReadSwinStage(Reader& r, int64_t embed, bool doubles) {
  const auto depths = r.c.MaybeInts("depths", 16);
  const auto heads = r.c.MaybeInts("num_heads", 16);
  if (!depths || !heads || depths->empty() || depths->size() != heads->size()) {
    Fail("{} and {} must be lists of the same length", r.c.Path("depths"),
         r.c.Path("num_heads"));
  }
  int64_t layers = 0;
  for (int64_t depth : *depths) {
    if (depth < 1 || depth > kMostLayers) {
      Fail("an entry of {} must lie in 1 .. {}, got {}", r.c.Path("depths"),
           kMostLayers, depth);
    }
    layers += depth;
  }
  r.Layers(layers);
  SwinStage at{.stages = depths->size(), .block = r.out.layer};
  while (at.block >= (*depths)[at.stage]) at.block -= (*depths)[at.stage++];
  at.heads = (*heads)[at.stage];
  const int64_t width = doubles ? embed << at.stage : embed;
  if (at.heads < 1 || at.heads > kMostHeads || width % at.heads != 0) {
    Fail("stage {} has width {} and {} heads", at.stage, width, at.heads);
  }
  r.Heads(width, at.heads, at.heads, width / at.heads);
  return at;
}

}  // namespace locus::models
