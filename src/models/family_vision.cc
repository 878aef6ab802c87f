// Vision: tables over a raster of patches.
#include "locus/encodings/learned.h"
#include "locus/encodings/swin.h"
#include "models/families.h"
#include "models/images.h"
#include "models/project.h"

namespace locus::models {
namespace {

constexpr int64_t kImageSide = 224, kPatchSide = 16;  // unless a config says

void Vit(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
  r.NoPosition("plain attention: position is in the input");
  const Sides grid = ReadPatches(r, kImageSide, kPatchSide);
  // DeiT has a distillation token in addition to [CLS].
  const int64_t prefix = r.out.model_type == "deit" ? 2 : 1;
  const int64_t rows = prefix + grid.height * grid.width;
  const int64_t width = r.out.model_dim;
  const Sides wanted{
      r.options.grid_height != 0 ? r.options.grid_height : grid.height,
      r.options.grid_width != 0 ? r.options.grid_width : grid.width};
  if (wanted.height < 1 || wanted.width < 1 || wanted.height > 65536 ||
      wanted.width > 65536) {
    Fail("an image must have 1 .. 65536 patches a side, got {} x {}",
         wanted.height, wanted.width);
  }
  const bool resized =
      wanted.height != grid.height || wanted.width != grid.width;
  r.out.input = TensorScheme(
      "learned",
      fmt::format("learned table, {} + {} x {} rows{}", prefix, grid.height,
                  grid.width,
                  resized ? fmt::format(", resized to {} x {} by bicubic "
                                        "interpolation",
                                        wanted.height, wanted.width)
                          : ""),
      {.name = r.out.model_type + ".embeddings.position_embeddings",
       .shape = {1, rows, width},
       .use = "learned positions"},
      [=](const Tensor& table) -> std::shared_ptr<const Encoding> {
        const Learned learned(WithShape(table, {rows, width}));
        if (!resized) return std::make_shared<Learned>(learned);
        return std::make_shared<Learned>(learned.Resized2D(
            {grid.height, grid.width}, {wanted.height, wanted.width},
            Resample::kBicubic, prefix));
      });
  r.out.trained_length = rows;
}

// The prefix of Swin's tensor names; towers of other models are named from
// their own root.
std::string SwinPrefix(const Reader& r) {
  return r.out.model_type == "swin" ? "swin." : "";
}

// Layers are numbered through the stages; `depths` has the size of each stage.
void Swin(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  const int64_t embed = r.c.IntOr("embed_dim", 96, 1, kMostWidth);
  const SwinStage where = ReadSwinStage(r, embed, true);
  const Sides image = ReadSides(r, "image_size", kImageSide);
  const Sides patch = ReadSides(r, "patch_size", 4);
  const int64_t side =
      std::min(image.height / patch.height, image.width / patch.width) >>
      where.stage;
  int64_t window = r.c.IntOr("window_size", 7, 1, 4096);
  const bool whole = side <= window;
  if (whole) window = std::max<int64_t>(side, 1);
  r.IgnoredUpstream("use_absolute_embeddings_window");
  r.Ignore({"hidden_size", "num_layers", "num_hidden_layers"});
  if (where.block % 2 == 1 && !whole) {
    r.Warn(
        "this block shifts the image by {} before it cuts windows, and masks "
        "what was not together",
        window / 2);
  }
  if (r.c.FlagOr("use_absolute_embeddings", false)) {
    const int64_t rows =
        (image.height / patch.height) * (image.width / patch.width);
    r.out.input = TensorScheme(
        "learned", fmt::format("learned table of {} patches", rows),
        {.name = SwinPrefix(r) + "embeddings.position_embeddings",
         .shape = {1, rows, embed},
         .use = "learned positions"},
        [=](const Tensor& table) {
          return std::make_shared<Learned>(WithShape(table, {rows, embed}));
        });
  }
  const int64_t rows = (2 * window - 1) * (2 * window - 1);
  r.out.trained_length = window * window;
  r.out.attention = TensorScheme(
      "swin",
      fmt::format("bias by 2-D offset in windows of {} x {}", window, window),
      {.name = fmt::format("{}encoder.layers.{}.blocks.{}.attention.self."
                           "relative_position_bias_table",
                           SwinPrefix(r), where.stage, where.block),
       .shape = {rows, where.heads},
       .use = "bias by offset"},
      [window](Tensor table) {
        return std::make_shared<SwinBias>(std::move(table), window, window);
      });
}

std::string BeitPrefix(const Reader& r) {
  return r.out.model_type == "beit" ? "beit." : "data2vec_vision.";
}

void Beit(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
  const Sides grid = ReadPatches(r, kImageSide, kPatchSide);
  const int64_t patches = grid.height * grid.width;
  const int64_t width = r.out.model_dim, heads = r.out.q_heads;
  r.out.trained_length = patches + 1;
  const bool own = r.c.FlagOr("use_relative_position_bias", false);
  const bool shared = r.c.FlagOr("use_shared_relative_position_bias", false);
  r.NoPosition("plain attention");
  if (r.c.FlagOr("use_absolute_position_embeddings", false)) {
    r.out.input = TensorScheme(
        "learned", fmt::format("learned table, 1 + {} rows", patches),
        {.name = BeitPrefix(r) + "embeddings.position_embeddings",
         .shape = {1, patches + 1, width},
         .use = "learned positions"},
        [=](const Tensor& table) {
          return std::make_shared<Learned>(
              WithShape(table, {patches + 1, width}));
        });
  }
  if (own && shared) {
    Fail("{} and {} are both true", r.c.Path("use_relative_position_bias"),
         r.c.Path("use_shared_relative_position_bias"));
  }
  if (!own && !shared) return;
  const int64_t rows = (2 * grid.height - 1) * (2 * grid.width - 1) + 3;
  const std::string at =
      own ? fmt::format("{}encoder.layer.{}.attention.attention.",
                        BeitPrefix(r), r.out.layer)
          : BeitPrefix(r) + "encoder.";
  r.out.attention = TensorScheme(
      "swin",
      fmt::format("bias by 2-D offset over {} x {} patches and [CLS]",
                  grid.height, grid.width),
      {.name = at + "relative_position_bias.relative_position_bias_table",
       .shape = {rows, heads},
       .use = "bias by offset"},
      [grid](Tensor table) {
        return std::make_shared<SwinBias>(std::move(table), grid.height,
                                          grid.width, /*cls=*/true);
      });
}

}  // namespace

std::vector<Family> VisionFamilies() {
  return {
      {{"ViT, DeiT",
        {"vit", "deit"},
        "learned table, [CLS] first",
        "other image sizes resize the raster bicubically and keep [CLS]"},
       Vit},
      {{"Swin",
        {"swin", "donut-swin", "maskformer-swin"},
        "bias by 2-D offset in windows",
        "windows shrink to the image in late stages; odd blocks shift"},
       Swin},
      {{"BEiT",
        {"beit", "data2vec-vision"},
        "bias by 2-D offset, three rows for [CLS]",
        "a table in every layer, or one shared; absolute positions may be off"},
       Beit},
  };
}

}  // namespace locus::models
