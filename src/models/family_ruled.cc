// Families described by RotaryRules.
#include <cmath>

#include "models/rotary_rules.h"

namespace locus::models {

void ReadLatentRow(Reader& r, PairLayout layout, bool still);  // latent

namespace {

constexpr auto kRuledInterleaved = PairLayout::kInterleaved;
const SizeKeys kFree = {.length_required = false};
const SizeKeys kNoGroups = {.kv_heads = {}, .length_required = false};

// Encoder and decoder share a config, each with its own number of heads.
void Moonshine(Reader& r) {
  const bool encoder = r.IsEncoder(true, true);
  const char* part = encoder ? "encoder" : "decoder";
  for (const char* other : {"encoder", "decoder"}) {
    for (const char* key :
         {"num_attention_heads", "num_key_value_heads", "num_hidden_layers"}) {
      r.c.Find(fmt::format("{}_{}", other, key).c_str());
    }
  }
  const auto size = [&](const char* key, int64_t most) {
    return r.c.MaybeInt(fmt::format("{}_{}", part, key).c_str(), 1, most);
  };
  const int64_t width = r.c.Int("hidden_size", 1, kMostWidth);
  const int64_t heads = size("num_attention_heads", kMostHeads).value_or(8);
  if (width % heads != 0) {
    Fail("{} = {} is not a multiple of {} heads", r.c.Path("hidden_size"),
         width, heads);
  }
  r.Heads(width, heads, size("num_key_value_heads", kMostHeads).value_or(heads),
          width / heads);
  r.Layers(size("num_hidden_layers", kMostLayers).value_or(6));
  r.out.trained_length = r.c.Int("max_position_embeddings", 1, kMostLength);
  // Zero padding of heads, which changes nothing.
  r.Ignore({"pad_head_dim_to_multiple_of"});
  r.Rope({.layout = kRuledInterleaved});
}

// Full layers have a different head width, given under per_layer_config or, in
// older files, by separate keys.
void Gemma4(Reader& r) {
  const auto both = r.c.MaybeText("use_bidirectional_attention");
  if (both && *both != "vision") {
    Fail("{} = '{}' is not read: the class halves its window at every load",
         r.c.Path("use_bidirectional_attention"), Printable(*both));
  }
  if (both) {
    r.Warn("tokens of one image see each other: the call must bring that mask");
  }
  const bool shared = r.c.FlagOr("attention_k_eq_v", false);
  const auto wide = r.c.MaybeInt("global_head_dim", 1, kMostHeadDim);
  const auto few = r.c.MaybeInt("num_global_key_value_heads", 1, kMostHeads);
  ReadByRules(r, {.scale = ScaleRule::kOne,
                  .slides = SlideRule::kNotEveryN,
                  .every = 6,
                  .last_full = true,
                  .ignored = {"num_kv_shared_layers"}});
  if (r.out.layer + 1 == r.out.layers && r.out.layer_type != kFull) {
    Fail("{} says that the last layer slides, which {} never does",
         r.c.Path("layer_types"), r.out.family);
  }
  if (r.out.layer_type == kFull && !r.c.Has("per_layer_config")) {
    r.Heads(r.out.model_dim, r.out.q_heads,
            shared ? few.value_or(r.out.kv_heads) : r.out.kv_heads,
            wide.value_or(512));
    r.out.scale = 1.0;
    r.Rope({.layer_type = kFull});
  }
}

// As in Gemma 3, the old spelling scales only the full layers.
void Gemma3n(Reader& r) {
  r.Sizes(kFree);
  std::string type = r.LayerType({kFull, kSliding});
  if (type.empty()) type = (r.out.layer + 1) % 5 == 0 ? kFull : kSliding;
  r.out.layer_type = type;
  const int64_t width = r.c.Int("sliding_window", 1, kMostLength);
  r.out.scale = 1.0;
  r.Ignore({"num_kv_shared_layers", "rope_theta", "rope_local_base_freq"});
  if (type == kSliding) {
    r.CausalWindow(width);
    r.Rope({.base_keys = {"rope_local_base_freq"},
            .unscaled = true,
            .layer_type = kSliding});
  } else {
    r.Rope({.base = 1e6, .layer_type = kFull});
  }
}

// The window is half of `local_attention`, and causal.
void ModernBertDecoder(Reader& r) {
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  const int64_t every =
      r.c.IntOr("global_attn_every_n_layers", 3, 1, kMostLayers);
  std::string type = r.LayerType({kFull, kSliding});
  if (type.empty()) type = r.out.layer % every == 0 ? kFull : kSliding;
  r.out.layer_type = type;
  const int64_t width = r.c.Int("local_attention", 2, kMostLength) / 2;
  const auto given = r.c.MaybeInt("sliding_window", 1, kMostLength);
  if (given && *given != width) {
    r.Refuse("{} = {} is not half of {}", r.c.Path("sliding_window"), *given,
             r.c.Path("local_attention"));
  }
  r.Ignore({"global_rope_theta", "local_rope_theta"});
  if (type == kSliding) {
    r.CausalWindow(width);
    r.Rope({.base_keys = {"local_rope_theta"}, .layer_type = kSliding});
  } else {
    r.Rope({.base = 160000.0,
            .base_keys = {"global_rope_theta"},
            .layer_type = kFull});
  }
}

// The number of query heads differs by layer.
void Laguna(Reader& r) {
  ReadByRules(r, {});
  const auto list = r.c.MaybeInts("num_attention_heads_per_layer",
                                  static_cast<size_t>(kMostLayers));
  if (!list) return;
  if (static_cast<int64_t>(list->size()) != r.out.layers) {
    Fail("{} has {} entries for {} layers",
         r.c.Path("num_attention_heads_per_layer"), list->size(), r.out.layers);
  }
  const int64_t heads = (*list)[static_cast<size_t>(r.out.layer)];
  if (heads < 1 || heads > kMostHeads) {
    Fail("an entry of {} must lie in 1 .. {}, got {}",
         r.c.Path("num_attention_heads_per_layer"), kMostHeads, heads);
  }
  r.Heads(r.out.model_dim, heads, r.out.kv_heads, r.out.head_dim);
}

// Old configs have lists of bases and shares, with one entry per layer.
void Step(Reader& r) {
  for (const char* key : {"rope_theta", "partial_rotary_factors"}) {
    const Json* value = r.c.Find(key);
    if (value != nullptr && value->is_array()) {
      Fail(
          "{} is a list by layer, which this reader takes from "
          "rope_parameters by type of layer only",
          r.c.Path(key));
    }
  }
  const auto heads = r.c.MaybeInt("num_sliding_attention_heads", 1, kMostHeads);
  ReadByRules(r, {.scale = ScaleRule::kQueryScalar});
  if (r.out.layer_type == kSliding && heads && !r.c.Has("per_layer_config")) {
    const double scale = r.out.scale;
    r.Heads(r.out.model_dim, *heads, r.out.kv_heads, r.out.head_dim);
    r.out.scale = scale;
  }
}

// int(0.334 * 192) channels rotate; sliding layers have sinks and windows.
void MiMo(Reader& r) {
  const auto old = r.c.MaybeInt("sliding_window_size", 0, kMostLength);
  const int64_t values = r.c.Int("v_head_dim", 1, kMostWidth);
  if (r.c.Absent("layer_types") && r.out.layer == 0) {
    r.Warn("{} is absent; layer 0 and every sixth have full attention",
           r.c.Path("layer_types"));
  }
  ReadByRules(r, {.slides = SlideRule::kUnknown, .sinks_sliding = true});
  if (old && r.out.window) r.CausalWindow(*old + 1);
  // Sliding layers have twice as many key heads.
  if (r.out.window) {
    r.Heads(r.out.model_dim, r.out.q_heads, 2 * r.out.kv_heads, r.out.head_dim);
  }
  r.out.value_dim = values;
}

// Dense layers at the front may rotate whatever their type is.
void Cohere2Moe(Reader& r) {
  const auto kinds =
      r.c.MaybeTexts("mlp_layer_types", static_cast<size_t>(kMostLayers));
  const int64_t pattern =
      r.c.IntOr("prefix_dense_sliding_window_pattern", 1, 1, kMostLayers);
  ReadByRules(r, {.layout = kRuledInterleaved,
                  .slides = SlideRule::kNotEveryN,
                  .every = 4,
                  .every_keys = {"sliding_window_pattern"}});
  if (r.out.window) return;
  const auto at = static_cast<size_t>(r.out.layer);
  const bool dense = kinds && at < kinds->size() && (*kinds)[at] == "dense";
  if (dense && pattern == 1) return;
  r.out.rotary.reset();
  r.NoPosition("no position: layers with full attention do not rotate");
}

// Heads come from experts; keys are repeated as a whole, not head by head.
void JetMoe(Reader& r) {
  const int64_t kv = r.c.Int("num_key_value_heads", 1, kMostHeads);
  const int64_t each = r.c.IntOr("num_experts_per_tok", 2, 1, 256);
  const auto heads = r.c.MaybeInt("num_attention_heads", 1, kMostHeads);
  if (heads && *heads != kv * each) {
    r.Refuse("{} = {} is not {} key heads times {} experts",
             r.c.Path("num_attention_heads"), *heads, kv, each);
  }
  r.Heads(r.c.Int("hidden_size", 1, kMostWidth), kv * each, kv * each,
          r.c.Int("kv_channels", 1, kMostHeadDim));
  r.Layers(r.c.Int("num_hidden_layers", 1, kMostLayers));
  r.out.trained_length = r.c.Int("max_position_embeddings", 1, kMostLength);
  r.Warn(
      "keys and values of {} heads are repeated {} times as a whole before "
      "attention: query head h meets key head h mod {}",
      kv, each, kv);
  r.Rope({});
}

// The number of rotating channels may be given directly.
void MiniMaxM2(Reader& r) {
  r.Sizes(kFree);
  const auto channels = r.c.MaybeInt("rotary_dim", 2, r.out.head_dim);
  r.Rope({.rotary_dim = channels.value_or(0)});
}

// Some layers attend only to the image.
void Mllama(Reader& r) {
  const auto cross =
      r.c.MaybeInts("cross_attention_layers", static_cast<size_t>(kMostLayers));
  ReadByRules(r, {});
  if (!cross) {
    Fail("{} is missing: the layers that attend to the image",
         r.c.Path("cross_attention_layers"));
  }
  for (int64_t layer : *cross) {
    if (layer != r.out.layer) continue;
    r.NoAttention(
        "no self-attention: cross-attention to the image, which has no "
        "positions");
  }
}

// Not supported: normalisation after the rotation, which does not commute.
void Idefics(Reader& r) {
  r.Expect("qk_layer_norms", false);
  r.Ignore({"cross_layer_interval"});
  ReadByRules(r, {.sizes = {.kv_heads = {}, .head_dim = {}}});
}

// Learned rows or a rotation; ESM scales the query before it rotates.
void Esm(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  r.Expect("is_folding_model", false);
  r.Expect("is_decoder", false);
  const std::string kind =
      r.c.MaybeText("position_embedding_type").value_or("absolute");
  if (kind == "rotary") {
    r.Rope({});
    return;
  }
  r.Ignore({"rope_theta", "rope_parameters"});
  if (kind != "absolute") {
    Fail("{} = '{}' is not known; known values: absolute, rotary",
         r.c.Path("position_embedding_type"), Printable(kind));
  }
  const auto pad = r.c.MaybeInt("pad_token_id", 0, kMostLength);
  if (!pad) {
    Fail("{} is null: its rows of positions start after it",
         r.c.Path("pad_token_id"));
  }
  r.NoPosition("plain attention: position is in the input");
  r.Learned("esm.embeddings.position_embeddings.weight", r.out.trained_length,
            r.out.model_dim, *pad + 1);
}

// One stack of T5Gemma; that of the decoder is causal.
void T5Gemma(Reader& r) {
  const bool decoder = r.c.FlagOr("is_decoder", false);
  ReadByRules(r, {.encoder = !decoder,
                  .scale = ScaleRule::kQueryScalar,
                  .slides = SlideRule::kNotEveryN,
                  .every = 2,
                  .softcap = true});
}

// If the width is even, the window has one more key on the right.
void T5Gemma2(Reader& r) {
  ReadByRules(r, {.encoder = true,
                  .scale = ScaleRule::kQueryScalar,
                  .slides = SlideRule::kNotEveryN,
                  .every = 6,
                  .softcap = true});
  if (!r.out.window) return;
  const int64_t width = r.out.window->left;
  r.out.window = Window{.left = (width + 1) / 2 - 1, .right = width / 2};
}

// Height and width alternate, followed by time; pairs are interleaved.
void ErnieVl(Reader& r) {
  r.Sizes(kFree);
  r.Rope({.layout = kRuledInterleaved});
  std::array<int64_t, 3> sections = {22, 22, 20};
  if (const auto object = r.c.MaybeObject("rope_parameters")) {
    if (const auto list = object->MaybeInts("mrope_section", 8)) {
      if (list->size() != 3) {
        Fail("{} must have 3 entries, got {}", object->Path("mrope_section"),
             list->size());
      }
      sections = {(*list)[0], (*list)[1], (*list)[2]};
    }
  }
  const auto [h, w, t] = sections;
  const int64_t pairs = r.out.rotary->rotary_dim / 2;
  if (h != w || h + w + t != pairs) {
    Fail("mrope_section must be h, h, t that sum to {} pairs, got {}, {}, {}",
         pairs, h, w, t);
  }
  std::vector<int32_t> axis;
  for (int64_t p = 0; p < pairs; ++p) {
    axis.push_back(p >= h + w ? 0 : p % 2 == 0 ? 1 : 2);
  }
  r.Sections(axis, fmt::format("M-RoPE {}+{} alternating, then {}", h, w, t));
}

void LatentInterleaved(Reader& r) {
  ReadLatentRow(r,
                r.c.FlagOr("rope_interleave", true) ? kRuledInterleaved
                                                    : PairLayout::kHalves,
                /*still=*/false);
}
void LatentHalves(Reader& r) {
  r.Ignore({"learnable_sink_init"});
  ReadLatentRow(r, PairLayout::kHalves, /*still=*/false);
  r.Sinks();
}

void Mistral4(Reader& r) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto object = r.c.MaybeObject(key);
    if (!object) continue;
    object->Find("max_position_embeddings");
    const auto beta = object->MaybeNumber("llama_4_scaling_beta", 0.0, 1e6);
    const auto span =
        object->MaybeInt("original_max_position_embeddings", 1, kMostLength);
    if (beta && *beta != 0.0 && span) {
      r.out.temperature = {.beta = *beta, .shift = 0, .span = *span};
    }
  }
  LatentInterleaved(r);
}

// A decoder that iterates over codebooks; every step has its own weights.
void MoshiDepth(Reader& r) {
  r.Sizes(kFree);
  r.Ignore({"sliding_window"});
  r.NoPosition(
      "no position: each codebook has weights of its own in every layer");
}

}  // namespace

std::vector<Family> RuledFamilies() {
  std::vector<Family> families = {
      {{"LLaMA's kin",
        {"arcee",
         "aria_text",
         "bitnet",
         "csm",
         "csm_depth_decoder_model",
         "emu3_text_model",
         "jais2",
         "higgs_audio_v2",
         "gradium_phonon_tts",
         "pocket_tts",
         "deepseek_ocr2_text",
         "apertus",
         "hy_v3",
         "seed_oss",
         "solar_open",
         "flex_olmo",
         "chameleon",
         "hunyuan_v1_moe",
         "evolla",
         "EvollaModel"},
        "RoPE, halves; the base, the share and the scaling by config",
        "bases from 10000 to 12000000 and shares of the head differ by class, "
        "and hold where a config is silent"},
       ByRules({.ignored = {"cross_attention_layers"}})},
      {{"Granite MoE, HyperCLOVA X",
        {"granitemoe", "granitemoeshared", "granite4_vision_text",
         "hyperclovax"},
        "RoPE, halves, its own scale",
        "`attention_multiplier` is the scale, not 1/sqrt(d)"},
       ByRules({.scale = ScaleRule::kMultiplier})},
      {{"DiffLLaMA",
        {"diffllama"},
        "RoPE, halves",
        "each layer attends twice and subtracts"},
       ByRules({.warning = "the output is a difference of two attentions over "
                           "the same rotated keys, with values of half the "
                           "heads each"})},
      {{"Moshi",
        {"moshi", "kyutai_speech_to_text"},
        "RoPE, halves",
        "`sliding_window` is about its cache, the mask is plainly causal"},
       ByRules({.window_ignored = true})},
      {{"Moshi depth",
        {"moshi_depth"},
        "no position",
        "order comes from weights by step"},
       MoshiDepth},
      {{"nanochat",
        {"nanochat"},
        "RoPE, halves, backwards",
        "rotates by minus the angle"},
       ByRules({.backwards = true})},
      {{"Phi 3.5 MoE, Phi 4 multimodal",
        {"phimoe", "phi4_multimodal"},
        "RoPE, halves, LongRoPE for long versions, a window where set",
        "`short_mscale` and `long_mscale` of Phi 3.5 MoE differ by length and "
        "are refused"},
       ByRules({.window_everywhere = true,
                .yarn_means_longrope = true,
                .ignored = {"original_max_position_embeddings"}})},
      {{"Voxtral realtime",
        {"voxtral_realtime_text", "voxtral_realtime_encoder"},
        "RoPE, halves, sliding window",
        "the audio encoder is causal too"},
       ByRules({.window_everywhere = true})},
      {{"Mimi's transformers",
        {"mimi", "mimi_encoder", "mimi_decoder", "pocket_tts_audio_tokenizer",
         "pocket_tts_audio_tokenizer_encoder",
         "pocket_tts_audio_tokenizer_decoder"},
        "RoPE, halves, sliding window",
        "causal on both sides of the codec"},
       ByRules({.window_everywhere = true, .ignored = {"use_causal_conv"}})},
      {{"Ministral 3",
        {"ministral3"},
        "RoPE, halves, YaRN, a query temperature",
        "1 + `llama_4_scaling_beta` ln(1 + floor(m / original length)) on the "
        "query of every layer"},
       ByRules({.window_everywhere = true, .temperature = true})},
      {{"Ministral, CWM, Mellum, dots.llm1",
        {"ministral"},
        "RoPE, halves; layers slide by type",
        "without `layer_types` every layer slides"},
       ByRules({.slides = SlideRule::kWindow})},
      {{"CWM",
        {"cwm"},
        "RoPE, halves, llama3 scaling; three layers of four slide",
        "layer 0 is full, unlike in most patterns"},
       ByRules({.slides = SlideRule::kNotNth, .every = 4})},
      {{"Mellum",
        {"mellum"},
        "RoPE, halves, a base per type of layer",
        "`rope_parameters` by type of layer"},
       ByRules({})},
      {{"dots.llm1, Qwen3-Omni code predictor",
        {"dots1", "qwen3_omni_moe_talker_code_predictor"},
        "RoPE, halves; layers from `max_window_layers` on slide",
        "a window in the config may concern no layer at all"},
       ByRules({.slides = SlideRule::kLate})},
      {{"VaultGemma",
        {"vaultgemma"},
        "RoPE, halves; every other layer slides",
        "scale from `query_pre_attn_scalar`, a soft cap"},
       ByRules({.scale = ScaleRule::kQueryScalar,
                .slides = SlideRule::kNotEveryN,
                .every = 2,
                .softcap = true})},
      {{"AFMoE",
        {"afmoe"},
        "RoPE, halves, in sliding layers; none in full ones",
        "every `global_attn_every_n_layers`-th layer has no position"},
       ByRules({.slides = SlideRule::kNotEveryN,
                .every = 4,
                .every_keys = {"global_attn_every_n_layers"},
                .still = StillRule::kFull})},
      {{"EXAONE 4, Kolibri",
        {"exaone4", "exaone_moe"},
        "RoPE, halves; full layers do not rotate where a window is set",
        "without a window every layer rotates"},
       ByRules({.slides = SlideRule::kNotEveryN,
                .every = 4,
                .every_keys = {"sliding_window_pattern"},
                .still = StillRule::kFullIfWindow})},
      {{"Kolibri",
        {"kolibri1"},
        "RoPE, halves; full layers do not rotate where a window is set",
        "every fifth layer is full"},
       ByRules({.slides = SlideRule::kNotEveryN,
                .every = 5,
                .still = StillRule::kFullIfWindow})},
      {{"Flint",
        {"flint"},
        "RoPE, halves, in sliding layers; none in full ones",
        "a learned sink in each softmax"},
       ByRules({.slides = SlideRule::kUnknown,
                .still = StillRule::kFull,
                .sinks = true})},
      {{"Granite SWA",
        {"granite_swa", "granitemoe_swa"},
        "RoPE, halves, a base per layer",
        "0 in `layer_rope_theta` means no rotation; sinks in every layer"},
       ByRules({.scale = ScaleRule::kMultiplier,
                .slides = SlideRule::kNotNth,
                .every = 4,
                .still = StillRule::kZeroTheta,
                .sinks = true})},
      {{"Muse",
        {"muse_glimmer_text", "muse_spark_text"},
        "RoPE, halves, a base per layer",
        "0 in `layer_rope_theta` means no rotation; `qk_scale_factor` is on "
        "the query before attention"},
       ByRules({.slides = SlideRule::kNotLast,
                .every = 4,
                .still = StillRule::kZeroTheta,
                .ignored = {"qk_scale_factor"}})},
      {{"Laguna",
        {"laguna"},
        "RoPE, halves, base and share per type of layer",
        "query heads differ by layer"},
       Laguna},
      {{"Step 3.5",
        {"step3p5"},
        "RoPE, halves, base and share per type of layer",
        "sliding layers may have more heads; scale from "
        "`query_pre_attn_scalar`"},
       Step},
      {{"MiMo V2 Flash",
        {"mimo_v2_flash"},
        "RoPE, halves, first 64 of 192 channels",
        "values of 128 channels; sinks in the sliding layers only; "
        "`sliding_window_size` counts one less"},
       MiMo},
      {{"Cohere 2 MoE",
        {"cohere2_moe"},
        "RoPE, interleaved, in sliding layers; none in full ones",
        "dense layers at the front rotate all the same"},
       Cohere2Moe},
      {{"Ernie 4.5 MoE",
        {"ernie4_5_moe"},
        "RoPE, interleaved, base 500000",
        ""},
       ByRules({.layout = kRuledInterleaved})},
      {{"BLT",
        {"blt_global_transformer", "blt_local_encoder", "blt_local_decoder",
         "blt_patcher"},
        "RoPE, interleaved",
        "patches and bytes are counted apart"},
       ByRules(
           {.layout = kRuledInterleaved,
            .sizes = {.head_dim = {}, .length_required = false},
            .ignored = {"cross_attn_all_layers", "cross_attn_k", "head_dim"}})},
      {{"Moonshine",
        {"moonshine"},
        "RoPE, interleaved, 0.9 of the head",
        "32 of 36 channels rotate: int(0.9 d), made even"},
       Moonshine},
      {{"JetMoE",
        {"jetmoe"},
        "RoPE, halves",
        "keys are repeated as a whole, not head by head"},
       JetMoe},
      {{"MiniMax M2",
        {"minimax_m2"},
        "RoPE, halves, first `rotary_dim` channels, base 5000000",
        ""},
       MiniMaxM2},
      {{"Llama 3.2 Vision",
        {"mllama_text_model"},
        "RoPE, halves; some layers attend to the image only",
        "`cross_attention_layers` have no self-attention"},
       Mllama},
      {{"IDEFICS",
        {"idefics"},
        "RoPE, halves",
        "cross-attention blocks between the layers have no positions"},
       Idefics},
      {{"ESM",
        {"esm"},
        "learned table, or RoPE, halves",
        "`position_embedding_type` decides; rows start after the padding's"},
       Esm},
      {{"EuroBERT, ESM C",
        {"eurobert", "esmc"},
        "RoPE, halves, bidirectional",
        ""},
       ByRules({.encoder = true})},
      {{"GTE, Jina v3",
        {"gte", "jina_embeddings_v3"},
        "RoPE, halves, bidirectional",
        "bases 160000 and 20000 where a config is silent"},
       ByRules({.encoder = true, .sizes = kNoGroups})},
      {{"Perception encoders",
        {"pe_audio_encoder", "pe_video_encoder", "pe_audio_video_encoder"},
        "RoPE, interleaved, base 20000, bidirectional",
        "the [CLS] token is at position 0"},
       ByRules({.layout = kRuledInterleaved, .encoder = true})},
      {{"LASR, GLM-ASR encoders",
        {"lasr_encoder", "glmasr_encoder"},
        "RoPE, halves, bidirectional",
        "GLM-ASR rotates half of the head"},
       ByRules({.encoder = true, .ignored = {"dropout_positions"}})},
      {{"Molmo 2",
        {"molmo2_text"},
        "RoPE, halves",
        "`rope_scaling_layers` alone are scaled"},
       [](Reader& r) {
         const auto scaled = r.c.MaybeInts("rope_scaling_layers",
                                           static_cast<size_t>(kMostLayers));
         ReadByRules(r, {.warning = "tokens of one image see each other: the "
                                    "call must bring that mask"});
         if (scaled && r.out.rotary->scaling != "none") {
           Fail("{} with a scaling is not read: layers would differ",
                r.c.Path("rope_scaling_layers"));
         }
       }},
      {{"UltraBERT",
        {"ultrabert"},
        "RoPE, halves, bidirectional, a base per type of layer",
        "`sliding_window` is a radius"},
       ByRules({.encoder = true, .slides = SlideRule::kNotEveryN, .every = 3})},
      {{"Privacy filter",
        {"openai_privacy_filter"},
        "RoPE, interleaved, YaRN without rounding, bidirectional",
        "gpt-oss's code, but pairs are interleaved and the window is a radius"},
       ByRules({.layout = kRuledInterleaved,
                .encoder = true,
                .window_everywhere = true,
                .sinks = true})},
      {{"EmbeddingGemma 2",
        {"embedding_gemma2_text"},
        "RoPE, halves, bidirectional, a base per type of layer",
        "scale 1; full layers have wider heads; `sliding_window` is a radius"},
       ByRules({.encoder = true,
                .scale = ScaleRule::kOne,
                .slides = SlideRule::kNotEveryN,
                .every = 6})},
      {{"Gemma 3n",
        {"gemma3n_text"},
        "RoPE, halves, base 1e6 in full layers and 1e4 in sliding ones",
        "scale 1; the last layers share the keys of earlier ones"},
       Gemma3n},
      {{"Gemma 4",
        {"gemma4_text", "gemma4_unified_text"},
        "RoPE, halves; full layers proportional, a quarter of 512 channels",
        "scale 1; heads of 256 and 512; zero frequencies pair across the whole "
        "head"},
       Gemma4},
      {{"ModernBERT decoder",
        {"modernbert-decoder"},
        "RoPE, halves, base 160000 in full layers and 10000 in local ones",
        "causal; the window is half of `local_attention`"},
       ModernBertDecoder},
      {{"T5Gemma",
        {"t5_gemma_module"},
        "RoPE, halves; every other layer slides",
        "the encoder's window is a radius; scale from "
        "`query_pre_attn_scalar`"},
       T5Gemma},
      {{"T5Gemma 2 encoder",
        {"t5gemma2_text"},
        "RoPE, halves, base 1e6 in full layers and 1e4 in sliding ones",
        "bidirectional; a window of W sees (W - 1) / 2 keys back and W / 2 "
        "ahead"},
       T5Gemma2},
      {{"Dia",
        {"dia_encoder", "dia_decoder"},
        "RoPE, halves",
        "scale 1, not 1/sqrt(d)"},
       [](Reader& r) {
         r.Ignore({"cross_num_attention_heads", "cross_head_dim",
                   "cross_num_key_value_heads"});
         ReadByRules(r, {.encoder = r.out.model_type == "dia_encoder",
                         .scale = ScaleRule::kOne});
       }},
      {{"GLM 4.1V, GLM-OCR",
        {"glm4v_text", "glm_ocr_text"},
        "M-RoPE, interleaved pairs, sections in chunks",
        "interleaved pairs, unlike Qwen's; `mrope_interleaved` is another "
        "thing"},
       ByRules({.layout = kRuledInterleaved,
                .dealing = MRopeSections::kChunked,
                .sections = {8, 12, 12}})},
      {{"GLM 4.5V, GLM-Image",
        {"glm4v_moe_text", "glm_image_text"},
        "M-RoPE, halves, half of the head, sections in chunks",
        "halves, unlike GLM 4.1V"},
       ByRules({.dealing = MRopeSections::kChunked, .sections = {8, 12, 12}})},
      {{"Ernie 4.5 VL",
        {"ernie4_5_vl_moe_text"},
        "M-RoPE, interleaved pairs, height and width alternate, then time",
        "sections are h, w, t"},
       ErnieVl},
      {{"Qwen-Omni, PaddleOCR-VL",
        {"qwen2_5_omni_text", "qwen2_5_omni_talker", "paddleocr_vl_text"},
        "M-RoPE, halves, sections 16+24+24 in chunks",
        "as Qwen2-VL"},
       ByRules({.slides = SlideRule::kLate,
                .dealing = MRopeSections::kChunked,
                .sections = {16, 24, 24},
                .ignored = {"position_id_per_seconds"}})},
      {{"Qwen3-Omni, Cosmos 3",
        {"qwen3_omni_moe_text", "qwen3_omni_moe_talker_text",
         "cosmos3_edge_text"},
        "M-RoPE, halves, sections 24+20+20 interleaved",
        "as Qwen3-VL"},
       ByRules({.slides = SlideRule::kLate,
                .dealing = MRopeSections::kInterleaved,
                .sections = {24, 20, 20}})},
      {{"GLM 4.7 Flash, Youtu, A.X, LongCat",
        {"glm4_moe_lite", "youtu", "axk1", "longcat_flash", "deepseek_v32",
         "glm_moe_dsa", "axk2"},
        "RoPE, interleaved, the last channels of the head",
        "as DeepSeek V3; an indexer, where there is one, rotates halves and "
        "picks the keys"},
       LatentInterleaved},
      {{"HunYuan V4",
        {"hy_v4"},
        "RoPE, halves, the last channels of the head",
        "halves, unlike DeepSeek; a learned sink in each softmax"},
       LatentHalves},
      {{"Mistral 4",
        {"mistral4"},
        "RoPE, interleaved, the last channels of the head, YaRN",
        "latent attention and a query temperature"},
       Mistral4},
  };
  for (Family& family : families) family.class_defaults = true;
  return families;
}

}  // namespace locus::models
