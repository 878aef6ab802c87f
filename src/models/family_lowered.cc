// Families with terms that no encoding has: query factors by position, tables
// multiplied with a separate projection, and values that rotate.
#include <algorithm>
#include <cmath>

#include "models/lowering.h"
#include "models/rotary_rules.h"

namespace locus::models {

void ReadLatentRow(Reader& r, PairLayout layout, bool still);  // latent

namespace {

// ----------------------------------------------------------------- Beam

// A factor of (1 + (m + 1) / 2048)^0.1 of the query in layers that do not
// rotate.
constexpr double kBeamSpan = 2048.0;
constexpr double kBeamPower = 0.1;

void Beam(Reader& r) {
  ReadByRules(r, {.slides = SlideRule::kNotEveryN,
                  .every = 6,
                  .last_full = true,
                  .still = StillRule::kNullTheta});
  if (r.out.rotary) return;
  r.Attend("none", "no position, but the query times (1 + (m + 1) / 2048)^0.1",
           WithQueryRows(r.out.attention.encoding, /*heads=*/1,
                         [](int64_t, int64_t m) {
                           return std::pow(
                               1.0 + (static_cast<double>(m) + 1.0) / kBeamSpan,
                               kBeamPower);
                         }));
}

// -------------------------------------------------------------- Inkling

// r_i.P[:, m - n] for 0 <= m - n < extent, where r is a separate projection.
struct InklingTable {
  NeededTensor tensor;
  int64_t width = 0, extent = 0;
  double floor = 0.0;  // of the factor 1 + alpha ln(max(1, (m + 1) / floor))
  double alpha = 0.0;
};

// Every offset in the table has its own bucket; all others share the last one.
BucketMap ExtentBuckets(int64_t extent) {
  const auto none = static_cast<int32_t>(extent);
  BucketMap map;
  map.count = none + 1;
  map.pieces = {
      {.start = BucketMap::kLowest, .first_bucket = none, .step = 0},
      {.start = 0, .first_bucket = 0, .step = 1},
      {.start = extent, .first_bucket = none, .step = 0},
  };
  return map;
}

std::shared_ptr<const Encoding> InklingEncoding(const InklingTable& t,
                                                const Tensor& stored) {
  const std::vector<double> columns = stored.ToVector();
  return std::make_shared<Lowering>("terms", [t, columns](const Shape& shape) {
    Terms terms;
    terms.scale.scale = shape.ScaleOr();
    // The bias is not scaled, while a query table is.
    Tensor rows = Tensor::Zeros(DType::kF64, {1, t.extent + 1, t.width});
    double* to = rows.MutableData<double>();
    for (int64_t offset = 0; offset < t.extent; ++offset) {
      for (int64_t c = 0; c < t.width; ++c) {
        to[offset * t.width + c] =
            columns[static_cast<size_t>(c * t.extent + offset)] /
            terms.scale.scale;
      }
    }
    terms.q_table = {.rows = rows, .buckets = ExtentBuckets(t.extent)};
    if (t.floor > 0.0) {
      SetQueryRows(
          shape, /*heads=*/1, /*lowest=*/0,
          [&](int64_t, int64_t m) {
            return 1.0 + t.alpha * std::log(std::max(
                                       1.0, (static_cast<double>(m) + 1.0) /
                                                t.floor));
          },
          terms.scale);
    }
    return terms;
  });
}

void Inkling(Reader& r) {
  const int64_t layers = r.c.Int("num_hidden_layers", 1, kMostLayers);
  r.Layers(layers);
  r.out.trained_length =
      r.c.IntOr("max_position_embeddings", 0, 1, kMostLength);
  std::string type = r.LayerType({"hybrid", "hybrid_sliding"});
  const auto local =
      r.c.MaybeInts("local_layer_ids", static_cast<size_t>(kMostLayers));
  if (type.empty()) {
    const bool slides =
        local ? std::ranges::find(*local, r.out.layer) != local->end()
              : (r.out.layer + 1) % 6 != 0;
    type = slides ? "hybrid_sliding" : "hybrid";
  }
  r.out.layer_type = type;
  const bool slides = type == "hybrid_sliding";
  const auto size = [&](const char* whole, const char* sliding, int64_t most) {
    const int64_t sizes[2] = {r.c.Int(whole, 1, most),
                              r.c.Int(sliding, 1, most)};
    return sizes[slides ? 1 : 0];
  };
  const int64_t heads =
      size("num_attention_heads", "swa_num_attention_heads", kMostHeads);
  const int64_t kv =
      size("num_key_value_heads", "swa_num_key_value_heads", kMostHeads);
  const int64_t dim = size("head_dim", "swa_head_dim", kMostHeadDim);
  r.Heads(r.c.Int("hidden_size", 1, kMostWidth), heads, kv, dim);
  r.out.scale = 1.0 / static_cast<double>(dim);
  const int64_t window = r.c.Int("sliding_window_size", 1, 1 << 20);
  const int64_t extent = r.c.Int("rel_extent", 1, 1 << 20);
  if (slides) r.CausalWindow(window);
  InklingTable table;
  table.width = r.c.Int("d_rel", 1, kMostHeadDim);
  table.extent = slides ? window : extent;
  const auto floor = r.c.MaybeInt("log_scaling_n_floor", 1, kMostLength);
  table.alpha = r.c.NumberOr("log_scaling_alpha", 0.1, 0.0, 1e6);
  if (floor && !slides) table.floor = static_cast<double>(*floor);
  r.Ignore({"mtp_local_layer_ids"});
  table.tensor = {.name = fmt::format(
                      "layers.{}.self_attn.rel_logits_proj.proj", r.out.layer),
                  .shape = {table.width, table.extent},
                  .use = "bias by offset"};
  r.Warn(
      "the table meets a projection of its own (r_proj), {} channels per head, "
      "and not q: give the call table_queries",
      table.width);
  r.Warn("keys and values pass a short convolution before attention");
  r.out.attention = TensorScheme(
      "terms",
      fmt::format("r.P[m - n] for offsets below {}{}", table.extent,
                  table.floor > 0.0
                      ? fmt::format(", logits times 1 + {} ln((m + 1) / {})",
                                    table.alpha, *floor)
                      : ""),
      table.tensor,
      [table](const Tensor& stored) { return InklingEncoding(table, stored); });
}

// ------------------------------------------------------ Mistral Large 4

// Latent attention with frequencies times exp(alpha), alpha trained, and the
// query of head h times s_h ln(m + 1) + b_h.
void MistralLarge4(Reader& r) {
  const auto rotates =
      r.c.MaybeInts("no_rope_layers", static_cast<size_t>(kMostLayers));
  const int64_t interval =
      r.c.IntOr("no_rope_layer_interval", 4, 1, kMostLayers);
  r.Ignore({"kv_source_layers"});
  const int64_t layers = r.c.Int("num_hidden_layers", 1, kMostLayers);
  if (rotates && static_cast<int64_t>(rotates->size()) < layers) {
    Fail("{} has {} entries for {} layers", r.c.Path("no_rope_layers"),
         rotates->size(), layers);
  }
  r.Layers(layers);
  // 1 means that the layer rotates.
  const bool rotary = rotates
                          ? (*rotates)[static_cast<size_t>(r.out.layer)] != 0
                          : (r.out.layer + 1) % interval != 0;
  ReadLatentRow(r, PairLayout::kInterleaved, /*still=*/false);
  const int64_t heads = r.out.q_heads, pairs = r.out.rotary->rotary_dim / 2;
  const auto base = r.out.attention.encoding;
  const std::string at =
      fmt::format("layers.{}.self_attn.softmax_scaling.", r.out.layer);
  const NeededTensor slope = {at + "scale", {heads}, "factor of the query"};
  const NeededTensor start = {at + "bias", {heads}, "factor of the query"};
  const NeededTensor alpha = {"rotary_emb.alpha", {pairs}, "frequencies"};
  if (!rotary) {
    r.out.rotary.reset();
    r.out.softmax_factor = 1.0;
  }
  Scheme scheme;
  scheme.name = rotary ? "rope" : "none";
  scheme.words = fmt::format(
      "{}, and the query of head h times s_h ln(m + 1) + b_h",
      rotary ? r.out.attention.words + ", frequencies times a learned exp(a)"
             : std::string("no rotation"));
  scheme.tensors = {slope, start};
  if (rotary) scheme.tensors.push_back(alpha);
  scheme.build = [=](const TensorLookup& find) {
    const std::vector<double> s = find(slope).ToVector();
    const std::vector<double> b = find(start).ToVector();
    std::vector<double> a(static_cast<size_t>(pairs), 0.0);
    if (rotary) a = find(alpha).ToVector();
    return std::make_shared<Lowering>(scheme.name, [=](const Shape& shape) {
      Terms terms = base->Lower(shape).terms;
      if (rotary) {
        for (size_t p = 0; p < a.size(); ++p) {
          terms.rotate->theta[p] *= std::exp(a[p]);
        }
      } else {
        terms.rotate.reset();
      }
      SetQueryRows(
          shape, heads, /*lowest=*/0,
          [&](int64_t h, int64_t m) {
            const auto at = static_cast<size_t>(h);
            return s[at] * std::log1p(static_cast<double>(m)) + b[at];
          },
          terms.scale);
      return terms;
    });
  };
  r.out.attention = std::move(scheme);
}

// ---------------------------------------------------------- DeepSeek V4

// Keys are also the values: the last channels of both rotate, and those of the
// output rotate back. Layers with a compressor have keys besides those of the
// window.
void DeepSeekV4(Reader& r) {
  constexpr const char* kSparse = "compressed_sparse_attention";
  constexpr const char* kHeavy = "heavily_compressed_attention";
  r.Layers(r.c.Int("num_hidden_layers", 1, kMostLayers));
  r.out.trained_length =
      r.c.IntOr("max_position_embeddings", 0, 1, kMostLength);
  const int64_t heads = r.c.Int("num_attention_heads", 1, kMostHeads);
  const int64_t dim = r.c.Int("head_dim", 2, kMostHeadDim);
  r.Heads(r.c.Int("hidden_size", 1, kMostWidth), heads,
          r.c.IntOr("num_key_value_heads", 1, 1, kMostHeads), dim);
  std::string type = r.LayerType({kSliding, kSparse, kHeavy});
  // The older spelling: 0, 4 or 128 tokens per key, with one entry per layer.
  const auto rates =
      r.c.MaybeInts("compress_ratios", static_cast<size_t>(kMostLayers) + 1);
  if (type.empty() && rates) {
    if (static_cast<int64_t>(rates->size()) < r.out.layers) {
      Fail("{} has {} entries for {} layers", r.c.Path("compress_ratios"),
           rates->size(), r.out.layers);
    }
    const int64_t rate = (*rates)[static_cast<size_t>(r.out.layer)];
    if (rate != 0 && rate != 4 && rate != 128) {
      Fail("an entry of {} must be 0, 4 or 128, got {}",
           r.c.Path("compress_ratios"), rate);
    }
    type = rate == 0 ? kSliding : rate == 4 ? kSparse : kHeavy;
  }
  if (type.empty()) {
    type = r.out.layer >= 2 && r.out.layer % 2 == 1 ? kSparse : kHeavy;
  }
  r.out.layer_type = type;
  r.CausalWindow(r.c.Int("sliding_window", 1, kMostLength));
  r.Ignore({"compress_rates", "index_topk", "compress_rate_csa",
            "compress_rate_hca", "rope_theta", "compress_rope_theta"});
  const bool main = type == kSliding;
  const auto tail = r.c.MaybeInt("qk_rope_head_dim", 2, dim);
  const bool nested = r.c.Has("rope_parameters");
  r.Rope({.layout = PairLayout::kInterleaved,
          .base = main ? 10000.0 : 160000.0,
          .partial = 64.0 / 512.0,
          .base_keys = {main ? "rope_theta" : "compress_rope_theta"},
          .rotary_dim = tail.value_or(0),
          .place = RotaryPlace::kTrailing,
          .values = RotaryValues::kRelative,
          .unscaled = main && !nested,
          .layer_type = nested ? (main ? "main" : "compress") : "",
          .yarn_gain = nested ? std::nullopt : std::optional<double>(1.0)});
  r.Sinks();
  if (!main) {
    r.Warn(
        "beside the keys of the window stand keys that each sum up several "
        "tokens: the call must bring them, rotated, with their mask");
  }
}

}  // namespace

std::vector<Family> LoweredFamilies() {
  std::vector<Family> families = {
      {{"Beam",
        {"beam"},
        "RoPE, halves, in sliding layers; none in full ones",
        "a null entry of `rope_parameters` means no rotation; full layers "
        "scale the query by (1 + (m + 1) / 2048)^0.1"},
       Beam},
      {{"Inkling",
        {"inkling_text"},
        "a projection of its own times a table by offset",
        "scale 1/d; the bias is not scaled; `log_scaling_n_floor` concerns "
        "full layers only; full layers have heads of their own"},
       Inkling},
      {{"Mistral Large 4",
        {"mistral_large4_text"},
        "RoPE, interleaved, last 64 channels, YaRN, learned frequencies",
        "1 in `no_rope_layers` means RoPE; every query is scaled by a learned "
        "s_h ln(m + 1) + b_h"},
       MistralLarge4},
      {{"DeepSeek V4",
        {"deepseek_v4"},
        "RoPE, interleaved, last 64 of 512 channels, values too",
        "`rope_parameters` has main and compress: base 10000 without YaRN in "
        "layers that only slide; YaRN leaves cos and sin alone; sinks"},
       DeepSeekV4},
  };
  for (Family& family : families) family.class_defaults = true;
  return families;
}

}  // namespace locus::models
