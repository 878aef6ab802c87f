// Vision towers that rotate by row and column.
//
// The first half of the pairs rotates by the row, the second by the column.
// Images may have any size: the token at row y and column x has position y * W
// + x, with W the requested width of the grid or kWidest.
#include <algorithm>

#include "locus/encodings/learned.h"
#include "locus/encodings/rope2d.h"
#include "models/families.h"
#include "models/project.h"

namespace locus::models {
namespace {

constexpr int64_t kWidest = 65536;

struct TowerRow {
  SizeKeys sizes = {.q_heads = {"num_heads"},
                    .kv_heads = {},
                    .head_dim = {},
                    .layers = {"depth"},
                    .length = {}};
  // A table of rows that is resized to the image and added; null if there is
  // none.
  const char* table = nullptr;
  bool table_by_image = false;  // rows given by image_size and patch_size
  Names ignored = {};
};

void CheckAxial(Reader& r) {
  const auto object = r.c.MaybeObject("rope_parameters");
  if (!object) return;
  const std::string kind = object->MaybeText("rope_type").value_or("axial");
  if (kind != "axial") {
    Fail("{} = '{}' is not what {} does, axial", object->Path("rope_type"),
         Printable(kind), r.out.family);
  }
}

double Base(Reader& r) {
  const auto object = r.c.MaybeObject("rope_parameters");
  const auto inside =
      object ? object->MaybeNumber("rope_theta", 1.0001, 1e18) : std::nullopt;
  return inside.value_or(r.c.NumberOr("rope_theta", 10000.0, 1.0001, 1e18));
}

void SetTable(Reader& r, const TowerRow& row) {
  int64_t rows = 0;
  if (row.table_by_image) {
    const int64_t side =
        r.c.Int("image_size", 1, 65536) / r.c.Int("patch_size", 1, 65536);
    rows = side * side;
  } else {
    rows = r.c.Int("num_position_embeddings", 1, int64_t{1} << 32);
  }
  const int64_t width = r.out.model_dim;
  r.out.input = TensorScheme(
      "learned",
      fmt::format("learned table of {} rows, resized to the image", rows),
      {.name = row.table, .shape = {rows, width}, .use = "learned positions"},
      [rows, width](const Tensor& table) {
        return std::make_shared<Learned>(WithShape(table, {rows, width}));
      });
  r.Warn(
      "the table is resized to each image by the model's own code; as it "
      "stands it serves the trained size");
}

std::function<void(Reader&)> Tower(const TowerRow& row) {
  return [row](Reader& r) {
    r.out.part = "encoder";
    r.out.causal = false;
    r.Sizes(row.sizes);
    r.Ignore(row.ignored);
    r.Ignore({"patch_size", "image_size"});
    CheckAxial(r);
    const double base = Base(r);
    // Layers attend within windows of the image, except for the listed ones.
    const auto whole = r.c.MaybeInts("fullatt_block_indexes",
                                     static_cast<size_t>(kMostLayers));
    const auto window = r.c.MaybeInt("window_size", 1, 1 << 20);
    if (whole && window) {
      const bool full = std::ranges::find(*whole, r.out.layer) != whole->end();
      r.out.layer_type = full ? kFull : "window_attention";
      if (!full) {
        r.Warn(
            "tokens see those of their own window of {} pixels: give the call "
            "segments",
            *window);
      }
    }
    const int64_t width =
        r.options.grid_width != 0 ? r.options.grid_width : kWidest;
    r.Attend(
        "rope-2d",
        fmt::format("2-D RoPE, halves, all {} channels, base {}, the token "
                    "at row y and column x at position y * {} + x",
                    r.out.head_dim, base, width),
        std::make_shared<Rope2D>(r.out.head_dim, PairLayout::kHalves, width,
                                 base));
    if (row.table != nullptr) SetTable(r, row);
  };
}

// The frequencies of one head: the even ones rotate by row and the odd ones by
// column. Positions are counted in the largest grid.
void Pixtral(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
  r.Ignore({"head_dim"});
  const int64_t width =
      r.c.Int("image_size", 1, 65536) / r.c.Int("patch_size", 1, 65536);
  if (width < 1) {
    Fail("{} is smaller than {}", r.c.Path("image_size"),
         r.c.Path("patch_size"));
  }
  CheckAxial(r);
  const double base = Base(r);
  r.Warn("patches of other images are masked by the call's segments");
  r.Attend("rope-2d",
           fmt::format("2-D RoPE, halves, all {} channels, base {}, rows and "
                       "columns take frequencies alternately; position y * {} "
                       "+ x",
                       r.out.head_dim, base, width),
           std::make_shared<Rope2D>(r.out.head_dim, PairLayout::kHalves, width,
                                    base, AxialFrequencies::kAlternating));
  r.out.trained_length = width * width;
}

}  // namespace

std::vector<Family> AxialFamilies() {
  const SizeKeys clip = {.kv_heads = {}, .head_dim = {}, .length = {}};
  std::vector<Family> families = {
      {{"Qwen2-VL vision",
        {"qwen2_vl_vision"},
        "2-D RoPE, halves",
        "`embed_dim` is its width, `hidden_size` that of the text model"},
       Tower({.sizes = {.model_dim = {"embed_dim"},
                        .q_heads = {"num_heads"},
                        .kv_heads = {},
                        .head_dim = {},
                        .layers = {"depth"},
                        .length = {}},
              .ignored = {"hidden_size"}})},
      {{"Qwen2.5-VL vision, Ernie 4.5 VL vision",
        {"qwen2_5_vl_vision", "qwen2_5_omni_vision_encoder",
         "ernie4_5_vl_moe_vision", "glm_ocr_vision", "glm5_next_vision"},
        "2-D RoPE, halves",
        "Qwen2.5-VL attends in windows in all but `fullatt_block_indexes`"},
       Tower({})},
      {{"EXAONE 4.5 vision",
        {"exaone4_5_vision"},
        "2-D RoPE, halves",
        "fewer key heads than query heads"},
       Tower({.sizes = {.q_heads = {"num_heads"},
                        .kv_heads = {"num_key_value_heads"},
                        .head_dim = {},
                        .layers = {"depth"},
                        .length = {}}})},
      {{"Qwen3-VL vision",
        {"qwen3_vl_vision", "qwen3_vl_moe_vision", "qwen3_5_vision",
         "qwen3_5_moe_vision", "qwen3_omni_moe_vision_encoder",
         "cohere_compass_vision", "qwen4_exp_vision"},
        "2-D RoPE, halves, and a learned table",
        "the table is resized to each image"},
       Tower({.table = "pos_embed.weight"})},
      {{"GLM 4.1V vision",
        {"glm4v_vision", "glm4v_moe_vision"},
        "2-D RoPE, halves, and a learned table",
        "the table is resized to each image"},
       Tower({.table = "embeddings.position_embedding.weight",
              .table_by_image = true})},
      {{"VideoLLaMA 3 vision",
        {"video_llama_3_vision"},
        "2-D RoPE, halves",
        ""},
       Tower({.sizes = clip})},
      {{"PaddleOCR-VL vision",
        {"paddleocr_vl_vision"},
        "2-D RoPE, halves, and a learned table",
        "the table is resized to each image"},
       Tower({.sizes = clip,
              .table = "embeddings.position_embedding.weight",
              .table_by_image = true})},
      {{"Pixtral",
        {"pixtral"},
        "2-D RoPE, halves, frequencies dealt alternately",
        "rows take the even frequencies of the head and columns the odd ones"},
       Pixtral},
  };
  for (Family& family : families) family.class_defaults = true;
  return families;
}

}  // namespace locus::models
