// Families whose layers differ: in windows, bases or whether they rotate.
#include <cmath>

#include "locus/encodings/none.h"
#include "models/families.h"
#include "models/tuned.h"

namespace locus::models {

void ReadGemmaDirection(Reader& r);  // family_rotary.cc

namespace {

// Layer types from the config; otherwise every `pattern`-th layer is full.
std::string FullOrSliding(Reader& r, int64_t pattern) {
  std::string type = r.LayerType({kFull, kSliding});
  if (type.empty()) {
    type = (r.out.layer + 1) % pattern == 0 ? kFull : kSliding;
  }
  r.out.layer_type = type;
  return type;
}

// Which layers of a Qwen model use a window if its config has no `layer_types`.
enum class QwenSlides { kLast, kFirstEven, kAll };

// Qwen 2, 2.5 and 3: the last layers, if any. Qwen 2 MoE: every other one of
// the first layers. Qwen 3 MoE: all.
void QwenWindow(Reader& r, QwenSlides which) {
  const bool use = r.c.FlagOr("use_sliding_window", false);
  // Qwen 2 MoE's own code writes 0 for a window that is not in use.
  std::optional<int64_t> width;
  if (use) {
    width = r.SlidingWindow(4096);
  } else {
    r.c.MaybeInt("sliding_window", 0, kMostLength);
  }
  const int64_t border = r.c.IntOr("max_window_layers", 28, 0, kMostLayers);
  std::string type = r.LayerType({kFull, kSliding});
  if (type.empty()) {
    const bool here = which == QwenSlides::kAll ? true
                      : which == QwenSlides::kLast
                          ? r.out.layer >= border
                          : r.out.layer % 2 == 0 && r.out.layer < border;
    type = width && here ? kSliding : kFull;
  }
  r.out.layer_type = type;
  if (type == kSliding) {
    if (!width) {
      Fail("{} says that layer {} slides, but no window is in use",
           r.c.Path("layer_types"), r.out.layer);
    }
    r.CausalWindow(*width);
  }
}

void Qwen(Reader& r, const SizeKeys& sizes, QwenSlides which) {
  r.Sizes(sizes);
  r.Expect("use_mrope", false);
  QwenWindow(r, which);
  r.Rope({});
}

void Qwen2(Reader& r) { Qwen(r, {.default_kv_heads = 32}, QwenSlides::kLast); }

void Qwen3(Reader& r) {
  Qwen(r, {.default_kv_heads = 32, .default_head_dim = 128}, QwenSlides::kLast);
}

void Qwen2Moe(Reader& r) {
  Qwen(r, {.default_kv_heads = 16}, QwenSlides::kFirstEven);
}

void Qwen3Moe(Reader& r) { Qwen(r, {.default_kv_heads = 4}, QwenSlides::kAll); }

void Gemma2(Reader& r) {
  r.Sizes({.default_kv_heads = 4, .default_head_dim = 256});
  if (FullOrSliding(r, 2) == kSliding) {
    r.CausalWindow(r.c.IntOr("sliding_window", 4096, 1, kMostLength));
  }
  r.Ignore({"sliding_window", "sliding_window_size"});
  r.out.scale =
      1.0 / std::sqrt(r.c.NumberOr("query_pre_attn_scalar", 256.0, 1e-9, 1e9));
  r.out.softcap = r.c.NumberOr("attn_logit_softcapping", 50.0, 1e-9, 1e9);
  ReadGemmaDirection(r);
  r.Rope({});
}

void Gemma3(Reader& r) {
  // Published configs of the larger models omit most sizes.
  r.Sizes({.default_heads = 8,
           .default_kv_heads = 4,
           .default_head_dim = 256,
           .default_length = 131072});
  const bool sliding =
      FullOrSliding(r, r.c.MaybeIntOf({"sliding_window_pattern",
                                       "_sliding_window_pattern"},
                                      1, kMostLayers)
                           .value_or(6)) == kSliding;
  const bool both_ways = r.c.FlagOr("use_bidirectional_attention", false);
  const int64_t width = r.c.IntOr("sliding_window", 4096, 1, kMostLength);
  if (both_ways) r.out.causal = false;
  if (sliding && both_ways) {
    // The config's width covers both sides: distances below width / 2 + 1.
    r.out.window = Window{.left = width / 2, .right = width / 2};
  } else if (sliding) {
    r.CausalWindow(width);
  }
  r.out.scale =
      1.0 / std::sqrt(r.c.NumberOr("query_pre_attn_scalar", 256.0, 1e-9, 1e9));
  const double cap = r.c.NumberOr("attn_logit_softcapping", 0.0, 0.0, 1e9);
  if (cap > 0.0) r.out.softcap = cap;
  r.Ignore({"rope_theta", "rope_local_base_freq"});
  if (sliding) {
    r.Rope({.base = 1e4,
            .base_keys = {"rope_local_base_freq"},
            .unscaled = true,
            .layer_type = kSliding});
  } else {
    r.Rope({.base = 1e6, .layer_type = kFull});
  }
}

void Olmo3(Reader& r) {
  r.Sizes();
  const bool sliding = FullOrSliding(r, 4) == kSliding;
  const int64_t width = r.c.IntOr("sliding_window", 4096, 1, kMostLength);
  if (sliding) r.CausalWindow(width);
  r.Rope(
      {.base = 500000.0, .unscaled = sliding, .layer_type = r.out.layer_type});
}

void Cohere2(Reader& r) {
  r.Sizes();
  const auto pattern = r.c.MaybeIntOf(
      {"sliding_window_pattern", "_sliding_window_pattern", "layer_switch"}, 1,
      kMostLayers);
  const bool sliding = FullOrSliding(r, pattern.value_or(4)) == kSliding;
  const int64_t width = r.c.IntOr("sliding_window", 4096, 1, kMostLength);
  const std::string kind =
      r.c.MaybeText("position_embedding_type").value_or("rope_gptj");
  if (kind != "rope_gptj") {
    r.Refuse("{} = '{}' is not what Cohere 2 rotates by, rope_gptj",
             r.c.Path("position_embedding_type"), Printable(kind));
  }
  r.IgnoredUpstream("model_max_length");
  r.Ignore({"order_of_interleaved_layers"});  // repeats the pattern
  if (sliding) r.CausalWindow(width);
  // Read in every layer, so that its fields count as used.
  r.Rope({.layout = PairLayout::kInterleaved,
          .partial_keys = {"rotary_pct", "partial_rotary_factor"}});
  if (!sliding) {
    r.out.rotary.reset();
    r.NoPosition("no position: layers with full attention do not rotate");
  }
}

void GptOss(Reader& r) {
  r.Sizes({.default_kv_heads = 8, .default_head_dim = 64});
  if (FullOrSliding(r, 2) == kSliding) {
    r.CausalWindow(r.c.IntOr("sliding_window", 128, 1, kMostLength));
  }
  r.Ignore({"sliding_window"});
  r.IgnoredUpstream("initial_context_length");
  r.Sinks();
  if (!r.c.Has("rope_scaling") && !r.c.Has("rope_parameters")) {
    r.Refuse("{} is missing: every gpt-oss scales by YaRN",
             r.c.Path("rope_scaling"));
  }
  r.Rope({.base = 150000.0});
}

void ModernBert(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.kv_heads = {}});
  const int64_t every =
      r.c.IntOr("global_attn_every_n_layers", 3, 1, kMostLayers);
  std::string type = r.LayerType({kFull, kSliding});
  if (type.empty()) type = r.out.layer % every == 0 ? kFull : kSliding;
  r.out.layer_type = type;
  // The total width of both sides; `sliding_window` is one side.
  const auto width = r.c.MaybeInt("local_attention", 1, kMostLength);
  const auto side = r.c.MaybeInt("sliding_window", 0, kMostLength);
  if (width && side && *width / 2 != *side) {
    r.Refuse("{} = {} is not half of {} = {}", r.c.Path("sliding_window"),
             *side, r.c.Path("local_attention"), *width);
  }
  const int64_t reach = side.value_or(width.value_or(128) / 2);
  r.IgnoredUpstream("position_embedding_type");
  r.Ignore({"global_rope_theta", "local_rope_theta"});
  if (type == kSliding) {
    r.out.window = Window{.left = reach, .right = reach};
    r.Rope({.base = 1e4,
            .base_keys = {"local_rope_theta"},
            .layer_type = kSliding});
  } else {
    r.Rope({.base = 160000.0,
            .base_keys = {"global_rope_theta"},
            .layer_type = kFull});
  }
}

// Whether this layer rotates: 1 in `no_rope_layers` means that it does.
bool HasRope(Reader& r) {
  const int64_t every = r.c.IntOr("no_rope_layer_interval", 4, 1, kMostLayers);
  const auto list =
      r.c.MaybeInts("no_rope_layers", static_cast<size_t>(kMostLayers));
  if (!list || list->empty()) return (r.out.layer + 1) % every != 0;
  if (static_cast<int64_t>(list->size()) < r.out.layers) {
    Fail("{} has {} entries for {} layers", r.c.Path("no_rope_layers"),
         list->size(), r.out.layers);
  }
  for (int64_t entry : *list) {
    if (entry != 0 && entry != 1) {
      Fail("an entry of {} must be 0 or 1, got {}", r.c.Path("no_rope_layers"),
           entry);
    }
  }
  return (*list)[static_cast<size_t>(r.out.layer)] == 1;
}

void SmolLm3(Reader& r) {
  r.Sizes({.default_kv_heads = 4});
  const bool rope = HasRope(r);
  const bool use = r.c.FlagOr("use_sliding_window", false);
  const auto width = r.c.MaybeInt("sliding_window", 1, kMostLength);
  r.Ignore({"max_window_layers"});
  std::string type = r.LayerType({kFull, kSliding});
  if (type.empty()) type = use && width && !rope ? kSliding : kFull;
  r.out.layer_type = type;
  if (type == kSliding) {
    if (!width) {
      Fail("{} says that layer {} slides, but {} is missing",
           r.c.Path("layer_types"), r.out.layer, r.c.Path("sliding_window"));
    }
    r.CausalWindow(*width);
  }
  r.Rope({.base = 2000000.0});
  if (!rope) {
    r.out.rotary.reset();
    r.NoPosition("no position in this layer (0 in no_rope_layers)");
  }
}

void Llama4(Reader& r) {
  r.Sizes(
      {.default_heads = 40, .default_kv_heads = 8, .default_head_dim = 128});
  const bool rope = HasRope(r);
  std::string type = r.LayerType({kFull, "chunked_attention"});
  if (type.empty()) type = rope ? "chunked_attention" : kFull;
  r.out.layer_type = type;
  const int64_t chunk = r.c.IntOr("attention_chunk_size", 8192, 1, kMostLength);
  if (type != kFull) r.out.chunk = chunk;
  // A flag, or the number 4 in the first published configs.
  const Json* tuning = r.c.Find("attn_temperature_tuning");
  bool tuned = true;
  if (tuning != nullptr) {
    if (!tuning->is_boolean() && !tuning->is_number_integer()) {
      Fail("{} must be true or false, got {}",
           r.c.Path("attn_temperature_tuning"), Shown(*tuning));
    }
    tuned = tuning->is_boolean() ? tuning->get<bool>()
                                 : tuning->get<int64_t>() != 0;
  }
  const double strength = r.c.NumberOr("attn_scale", 0.1, 0.0, 1e6);
  const int64_t span = r.c.IntOr("floor_scale", 8192, 1, kMostLength);
  r.Rope({.layout = PairLayout::kInterleaved, .base = 500000.0});
  if (rope) return;
  r.out.rotary.reset();
  if (tuned) r.out.temperature = {.beta = strength, .shift = 1, .span = span};
  r.Attend("none", "no position in this layer, a query temperature instead",
           std::make_shared<Tuned>(std::make_shared<locus::NoPosition>(),
                                   r.out.temperature));
}

}  // namespace

void ReadQwenWindow(Reader& r) { QwenWindow(r, QwenSlides::kLast); }

std::vector<Family> LayeredFamilies() {
  return {
      {{"Qwen 2, 2.5",
        {"qwen2"},
        "RoPE, halves, base 1000000; YaRN where configured",
        "`sliding_window` counts only with `use_sliding_window`, and only from "
        "layer `max_window_layers` on"},
       Qwen2},
      {{"Qwen 2 MoE",
        {"qwen2_moe"},
        "RoPE, halves, base 1000000",
        "with `use_sliding_window` the even layers below `max_window_layers` "
        "slide"},
       Qwen2Moe},
      {{"Qwen 3",
        {"qwen3"},
        "RoPE, halves, base 1000000; YaRN where configured",
        "`head_dim` is not hidden / heads; q and k are normalised first"},
       Qwen3},
      {{"Qwen 3 MoE",
        {"qwen3_moe"},
        "RoPE, halves, base 1000000",
        "with `use_sliding_window` every layer slides"},
       Qwen3Moe},
      {{"Gemma 2",
        {"gemma2"},
        "RoPE, halves; every other layer slides",
        "scale from `query_pre_attn_scalar`; soft cap of 50 on the logits"},
       Gemma2},
      {{"Gemma 3",
        {"gemma3_text", "gemma3"},
        "RoPE, halves, base 1e6 in full layers and 1e4 in sliding ones",
        "`rope_scaling` concerns the full layers only; most sizes may be left "
        "out of the config"},
       Gemma3},
      {{"OLMo 3",
        {"olmo3"},
        "RoPE, halves; YaRN in the full layers only",
        "scaling skips the sliding layers"},
       Olmo3},
      {{"Cohere 2",
        {"cohere2"},
        "RoPE, interleaved, in sliding layers; none in full ones",
        "every fourth layer has no position at all"},
       Cohere2},
      {{"gpt-oss",
        {"gpt_oss"},
        "RoPE, halves, YaRN without rounding",
        "`truncate: false`; a learned sink in each softmax; "
        "`initial_context_length` is ignored"},
       GptOss},
      {{"SmolLM 3",
        {"smollm3"},
        "RoPE, halves; every fourth layer none",
        "1 in `no_rope_layers` means that the layer HAS RoPE"},
       SmolLm3},
      {{"Llama 4",
        {"llama4_text", "llama4"},
        "RoPE, interleaved, in chunks of 8192; every fourth layer none",
        "1 in `no_rope_layers` means RoPE; layers without it scale the query "
        "by its position"},
       Llama4},
      {{"ModernBERT",
        {"modernbert"},
        "RoPE, halves, base 160000 in full layers and 10000 in local ones",
        "`local_attention` is the width of both sides together; bidirectional"},
       ModernBert},
  };
}

}  // namespace locus::models
