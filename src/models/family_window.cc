// Vision models with windows of patches: SAM and ViTDet, with query tables by
// height and by width, and Swin V2, whose bias is a small network of the
// offset.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "locus/encodings/learned.h"
#include "models/families.h"
#include "models/images.h"
#include "models/lowering.h"
#include "models/project.h"

namespace locus::models {
namespace {

// -------------------------------------------------- rows by both axes

// q.(H[y_m - y_n] + W[x_m - x_n]), without the scale. Positions are y * width +
// x within the window, or in the whole image.
std::shared_ptr<const Encoding> AxisRows(Sides window, int64_t dim,
                                         const Tensor& by_height,
                                         const Tensor& by_width) {
  const std::vector<double> h = by_height.ToVector(), w = by_width.ToVector();
  return std::make_shared<Lowering>("terms", [=](const Shape& shape) {
    Terms terms;
    terms.scale.scale = shape.ScaleOr();
    const int64_t tall = 2 * window.height - 1, wide = 2 * window.width - 1;
    Tensor rows = Tensor::Zeros(DType::kF64, {1, tall * wide, dim});
    double* to = rows.MutableData<double>();
    for (int64_t y = 0; y < tall; ++y) {
      for (int64_t x = 0; x < wide; ++x) {
        for (int64_t c = 0; c < dim; ++c) {
          *to++ = (h[static_cast<size_t>(y * dim + c)] +
                   w[static_cast<size_t>(x * dim + c)]) /
                  terms.scale.scale;
        }
      }
    }
    terms.q_table = {
        .rows = rows,
        .buckets = BucketMap::Window2D(window.height, window.width)};
    return terms;
  });
}

void SetAxisRows(Reader& r, const std::string& at, Sides window) {
  const int64_t dim = r.out.head_dim;
  // The table has a row for every offset in the window.
  constexpr int64_t kMostNumbers = int64_t{1} << 28;
  if ((2 * window.height - 1) * (2 * window.width - 1) > kMostNumbers / dim) {
    Fail("relative rows of a window of {} x {} are too many", window.height,
         window.width);
  }
  const NeededTensor tall = {
      at + "rel_pos_h", {2 * window.height - 1, dim}, "rows by height"};
  const NeededTensor wide = {
      at + "rel_pos_w", {2 * window.width - 1, dim}, "rows by width"};
  Scheme& scheme = r.out.attention;
  scheme.encoding = nullptr;  // until there are tensors
  scheme.name = "terms";
  scheme.words =
      fmt::format("q.(H[dy] + W[dx]) over {} x {} patches, beside the scale",
                  window.height, window.width);
  scheme.tensors = {tall, wide};
  scheme.build = [=](const TensorLookup& find) {
    return AxisRows(window, dim, find(tall), find(wide));
  };
}

// The prefix of a type's tensors in its own model.
std::string SamPrefix(const Reader& r) {
  return r.out.model_type.starts_with("sam_") ? "vision_encoder." : "";
}

void Sam(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
  r.Ignore({"scale"});  // applies to the features of the prompt
  const Sides grid = ReadPatches(r);
  const int64_t side = r.c.IntOr("window_size", 14, 0, 65536);
  const auto whole =
      r.c.MaybeInts("global_attn_indexes", static_cast<size_t>(kMostLayers));
  if (!whole) Fail("{} is missing", r.c.Path("global_attn_indexes"));
  const bool global =
      side == 0 || std::ranges::find(*whole, r.out.layer) != whole->end();
  r.out.layer_type = global ? kFull : "window_attention";
  const Sides window = global ? grid : Sides{side, side};
  r.out.trained_length = grid.height * grid.width;
  if (!global) {
    r.Warn(
        "the image is padded and cut into windows of {} x {} patches: give the "
        "call one window at a time",
        side, side);
  }
  r.NoPosition("plain attention without relative rows");
  const std::string prefix = SamPrefix(r);
  if (r.c.FlagOr("use_rel_pos", true)) {
    SetAxisRows(r, fmt::format("{}layers.{}.attn.", prefix, r.out.layer),
                window);
  }
  if (!r.c.FlagOr("use_abs_pos", true)) return;
  const int64_t rows = grid.height * grid.width, width = r.out.model_dim;
  r.out.input = TensorScheme(
      "learned",
      fmt::format("learned table, {} x {} rows", grid.height, grid.width),
      {.name = prefix + "pos_embed",
       .shape = {1, grid.height, grid.width, width},
       .use = "learned positions"},
      [rows, width](const Tensor& table) {
        return std::make_shared<Learned>(WithShape(table, {rows, width}));
      });
}

void VitDet(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
  const Sides grid = ReadPatches(r);
  const int64_t side = r.c.IntOr("window_size", 0, 0, 65536);
  const auto cut =
      r.c.MaybeInts("window_block_indices", static_cast<size_t>(kMostLayers));
  const bool windowed =
      side != 0 && cut && std::ranges::find(*cut, r.out.layer) != cut->end();
  r.out.layer_type = windowed ? "window_attention" : kFull;
  const Sides window = windowed ? Sides{side, side} : grid;
  r.out.trained_length = grid.height * grid.width;
  if (windowed) {
    r.Warn(
        "the image is padded and cut into windows of {} x {} patches: give the "
        "call one window at a time",
        side, side);
  }
  r.NoPosition("plain attention: position is in the input");
  if (r.c.FlagOr("use_relative_position_embeddings", false)) {
    SetAxisRows(r, fmt::format("encoder.layer.{}.attention.", r.out.layer),
                window);
  }
  const Sides trained = ReadSides(r, "pretrain_image_size");
  const Sides patch = ReadSides(r, "patch_size");
  if (!r.c.FlagOr("use_absolute_position_embeddings", true)) return;
  const int64_t rows =
      (trained.height / patch.height) * (trained.width / patch.width) + 1;
  const int64_t width = r.out.model_dim;
  r.Warn(
      "row 0 of the table is that of a [CLS] token which is not there; the "
      "others are resized to the image by the model's own code");
  r.out.input = TensorScheme(
      "learned",
      fmt::format("learned table of {} rows, the first unused", rows),
      {.name = "embeddings.position_embeddings",
       .shape = {1, rows, width},
       .use = "learned positions"},
      [rows, width](const Tensor& table) {
        return std::make_shared<Learned>(WithShape(table, {rows, width}),
                                         /*offset=*/1);
      });
}

// --------------------------------------------------------------- Swin V2

// B = 16 sigmoid(W2 relu(W1 c + b1)), with c the offset on a log scale: sign(o)
// log2(1 + 8 |o| / (window - 1)) / 3.
struct OffsetNetwork {
  NeededTensor w1, b1, w2, scale;
  int64_t window = 0, heads = 0;
  int64_t trained = 0;  // the window that normalises offsets; 0: its own
};

constexpr int64_t kSwinHidden = 512;

double LogOffset(int64_t offset, int64_t window) {
  double o = static_cast<double>(offset);
  if (window > 1) o /= static_cast<double>(window - 1);
  o *= 8.0;
  return std::copysign(std::log2(std::abs(o) + 1.0) / 3.0, o);
}

std::shared_ptr<const Encoding> SwinV2Encoding(const OffsetNetwork& n,
                                               const TensorLookup& find) {
  const int64_t side = 2 * n.window - 1, rows = side * side;
  std::vector<double> offsets;
  const int64_t in = n.trained > 0 ? n.trained : n.window;
  for (int64_t y = 1 - n.window; y < n.window; ++y) {
    for (int64_t x = 1 - n.window; x < n.window; ++x) {
      offsets.push_back(LogOffset(y, in));
      offsets.push_back(LogOffset(x, in));
    }
  }
  std::vector<double> inner =
      Linear(Tensor::From({rows, 2}, std::move(offsets)), find(n.w1),
             find(n.b1))
          .ToVector();
  for (double& x : inner) x = std::max(x, 0.0);
  const std::vector<double> logits =
      Linear(Tensor::From({rows, kSwinHidden}, std::move(inner)), find(n.w2),
             Tensor())
          .ToVector();
  Tensor values = Tensor::Zeros(DType::kF64, {n.heads, rows});
  double* to = values.MutableData<double>();
  for (int64_t h = 0; h < n.heads; ++h) {
    for (int64_t b = 0; b < rows; ++b) {
      to[h * rows + b] =
          16.0 /
          (1.0 + std::exp(-logits[static_cast<size_t>(b * n.heads + h)]));
    }
  }
  // A temperature per head, at most 100.
  std::vector<double> scales = find(n.scale).ToVector();
  for (double& s : scales) s = std::exp(std::min(s, std::log(100.0)));
  return std::make_shared<Lowering>("terms", [=](const Shape& shape) {
    Terms terms;
    terms.scale.scale = shape.ScaleOr();
    SetQueryRows(
        shape, n.heads, /*lowest=*/0,
        [&](int64_t h, int64_t) { return scales[static_cast<size_t>(h)]; },
        terms.scale);
    terms.bias = BiasTable{.values = values,
                           .buckets = BucketMap::Window2D(n.window, n.window)};
    return terms;
  });
}

void SwinV2(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  const bool flat = r.out.model_type == "swin2sr";  // stages of equal size
  const int64_t embed = r.c.Int("embed_dim", 1, 1 << 14);
  const SwinStage where = ReadSwinStage(r, embed, !flat);
  r.out.scale = 1.0;
  const Sides grid = ReadPatches(r);
  const int64_t side =
      std::min(grid.height, grid.width) >> (flat ? 0 : where.stage);
  int64_t window = r.c.IntOr("window_size", 7, 1, 1024);
  const bool whole = side <= window;
  if (whole) window = std::max<int64_t>(side, 1);
  const auto trained = r.c.MaybeInts("pretrained_window_sizes", 16);
  if (trained && trained->size() != where.stages) {
    Fail("{} has {} entries for {} stages", r.c.Path("pretrained_window_sizes"),
         trained->size(), where.stages);
  }
  r.Ignore({"hidden_size", "num_layers", "num_hidden_layers"});
  r.Expect("use_absolute_embeddings", false);
  r.Warn(
      "q and k are scaled to length 1 first, and each head has a learned "
      "temperature");
  if (where.block % 2 == 1 && !whole) {
    r.Warn(
        "this block shifts the image by {} before it cuts windows, and masks "
        "what was not together",
        window / 2);
  }
  r.out.trained_length = window * window;
  const std::string at = fmt::format("encoder.{}.{}.{}.{}.attention.self.",
                                     flat ? "stages" : "layers", where.stage,
                                     flat ? "layers" : "blocks", where.block);
  const OffsetNetwork network = {
      .w1 = {at + "continuous_position_bias_mlp.0.weight",
             {kSwinHidden, 2},
             "bias by offset"},
      .b1 = {at + "continuous_position_bias_mlp.0.bias",
             {kSwinHidden},
             "bias by offset"},
      .w2 = {at + "continuous_position_bias_mlp.2.weight",
             {where.heads, kSwinHidden},
             "bias by offset"},
      .scale = {at + "logit_scale",
                {where.heads, 1, 1},
                "temperature of the heads"},
      .window = window,
      .heads = where.heads,
      .trained = trained ? (*trained)[where.stage] : 0};
  if (network.trained < 0 || network.trained > 65536) {
    Fail("an entry of {} must lie in 0 .. 65536, got {}",
         r.c.Path("pretrained_window_sizes"), network.trained);
  }
  Scheme& scheme = r.out.attention;
  scheme.encoding = nullptr;  // until there are tensors
  scheme.name = "terms";
  scheme.words =
      fmt::format("bias by a network of the 2-D offset in windows of {} x {}",
                  window, window);
  scheme.tensors = {network.w1, network.b1, network.w2, network.scale};
  scheme.build = [network](const TensorLookup& find) {
    return SwinV2Encoding(network, find);
  };
}

}  // namespace

std::vector<Family> WindowFamilies() {
  std::vector<Family> families = {
      {{"SAM's image encoders",
        {"sam_vision_model", "sam_hq_vision_model",
         "deepseek_ocr2_sam_vision_model", "got_ocr2_vision",
         "pp_formulanet_vision", "slanext_vision",
         "unlimited_ocr_sam_vision_model", "pp_chart2table_vision"},
        "learned table, and rows by height and width times the query",
        "the rows meet the query beside the scale; windows in all but "
        "`global_attn_indexes`"},
       Sam},
      {{"ViTDet",
        {"vitdet"},
        "learned table; rows by height and width where switched on",
        "the table keeps the row of a [CLS] token that is not there"},
       VitDet},
      {{"Swin V2",
        {"swinv2", "swin2sr"},
        "bias by a network of log-spaced 2-D offsets in windows",
        "logits are cosines with a learned temperature per head, at most 100; "
        "`pretrained_window_sizes` sets the unit of offsets"},
       SwinV2},
  };
  for (Family& family : families) family.class_defaults = true;
  return families;
}

}  // namespace locus::models
