// Families with attention in some layers only. The others are state spaces,
// linear attention, convolutions or feed-forward layers, and are reported as
// such.
#include <algorithm>
#include <cmath>

#include "models/rotary_rules.h"

namespace locus::models {

void ReadLatentRow(Reader& r, PairLayout layout, bool still);  // latent

namespace {

constexpr const char* kStateSpace = "no attention: a state space (Mamba)";
constexpr const char* kLinearWords =
    "no attention: linear attention, which has no positions of its own";
constexpr const char* kOrder =
    "no position: order comes from the layers beside it";

// Every n-th layer attends if `layer_types` is absent.
void EveryNth(Reader& r, const RotaryRules& rules) {
  const int64_t every = r.c.IntOr("full_attention_interval", 4, 1, kMostLayers);
  const bool listed = r.c.Has("layer_types");
  ReadByRules(r, rules);
  if (!listed && (r.out.layer + 1) % every != 0) {
    r.out.layer_type = kLinear;
    r.NoAttention(kLinearWords);
  }
}

void Qwen3Next(Reader& r) { EveryNth(r, {}); }

void Qwen35(Reader& r) {
  EveryNth(r,
           {.dealing = MRopeSections::kInterleaved, .sections = {11, 11, 10}});
}

// In old configs, `full_attn_idxs` lists the layers that attend.
void Lfm2(Reader& r) {
  const auto listed =
      r.c.MaybeInts("full_attn_idxs", static_cast<size_t>(kMostLayers));
  const bool typed = r.c.Has("layer_types");
  ReadByRules(r, {});
  if (!typed && listed &&
      std::ranges::find(*listed, r.out.layer) == listed->end()) {
    r.out.layer_type = "conv";
    r.NoAttention("no attention: a short convolution");
  }
}

// `attn_layer_indices` lists the layers that attend; the rotated share of a
// head is fixed in the code.
void Bamba(Reader& r) {
  r.Sizes({.length_required = false});
  const auto listed =
      r.c.MaybeInts("attn_layer_indices", static_cast<size_t>(kMostLayers));
  const auto types =
      r.c.MaybeTexts("layers_block_type", static_cast<size_t>(kMostLayers));
  r.Rope({.partial = 0.5});
  if (r.out.rotary->rotary_dim * 2 != r.out.head_dim) {
    r.Refuse("{} of {} channels would rotate, but the code rotates half",
             r.out.rotary->rotary_dim, r.out.head_dim);
  }
  const bool attends =
      listed && std::ranges::find(*listed, r.out.layer) != listed->end();
  r.out.layer_type = attends ? kFull : kLinear;
  if (!attends) r.NoAttention(kStateSpace);
}

// Attention and a state space in parallel in every layer; `key_multiplier`
// scales the keys before they rotate.
void FalconH1(Reader& r) {
  r.Ignore({"layers_block_type"});
  ReadByRules(r, {});
}

void GraniteHybrid(Reader& r) {
  const std::string kind =
      r.c.MaybeText("position_embedding_type").value_or("nope");
  const bool typed = r.c.Has("layer_types");
  ReadByRules(r, {.scale = ScaleRule::kMultiplier});
  if (!typed) {
    r.out.layer_type = kLinear;
    r.NoAttention(kStateSpace);
  }
  if (!r.out.attends || kind == "rope") return;
  if (kind != "nope") {
    Fail("{} = '{}' is not known; known values: rope, nope, null",
         r.c.Path("position_embedding_type"), Printable(kind));
  }
  r.out.rotary.reset();
  r.NoPosition(kOrder);
}

// Layers with layer % period = offset attend; nothing rotates.
void Jamba(Reader& r) {
  r.Sizes({.length_required = false});
  const int64_t period = r.c.IntOr("attn_layer_period", 8, 1, kMostLayers);
  const int64_t offset = r.c.IntOr("attn_layer_offset", 4, 0, kMostLayers);
  r.Ignore({"layers_block_type"});
  const bool attends = r.out.layer % period == offset;
  r.out.layer_type = attends ? kFull : kLinear;
  if (attends) {
    r.NoPosition(kOrder);
  } else {
    r.NoAttention(kStateSpace);
  }
}

// The length of the list is the number of layers.
void NemotronH(Reader& r) {
  const auto types =
      r.c.MaybeTexts("layers_block_type", static_cast<size_t>(kMostLayers));
  if (r.c.Has("hybrid_override_pattern") && !types) {
    Fail("{} is a pattern of letters; give layers_block_type instead",
         r.c.Path("hybrid_override_pattern"));
  }
  // `chunk_size` belongs to the kernel of the state spaces.
  r.Ignore({"hybrid_override_pattern", "num_hidden_layers",
            "mtp_layers_block_type", "chunk_size"});
  if (!types || types->empty()) {
    Fail("{} is missing: the type of each layer",
         r.c.Path("layers_block_type"));
  }
  const int64_t heads = r.c.Int("num_attention_heads", 1, kMostHeads);
  const int64_t width = r.c.Int("hidden_size", 1, kMostWidth);
  const auto dim = r.c.MaybeInt("head_dim", 1, kMostHeadDim);
  r.Heads(width, heads, r.c.IntOr("num_key_value_heads", heads, 1, kMostHeads),
          dim.value_or(std::max<int64_t>(width / heads, 1)));
  r.Layers(static_cast<int64_t>(types->size()));
  r.out.trained_length =
      r.c.IntOr("max_position_embeddings", 0, 1, kMostLength);
  if (r.c.Has("sliding_window")) r.IgnoredUpstream("sliding_window");
  const std::string& type = (*types)[static_cast<size_t>(r.out.layer)];
  r.out.layer_type = type;
  if (type == "attention" || type == kFull) {
    r.NoPosition(kOrder);
  } else if (type == "mamba" || type == kLinear) {
    r.NoAttention(kStateSpace);
  } else if (type == "mlp" || type == "moe") {
    r.NoAttention("no attention: a feed-forward layer");
  } else {
    Fail("{} has the entry '{}', known values: attention, mamba, mlp, moe",
         r.c.Path("layers_block_type"), Printable(type));
  }
}

// One shared attention block over [x, embeddings], twice as wide as the model.
// Only Zamba 2 may rotate.
void Zamba(Reader& r) {
  const int64_t heads = r.c.Int("num_attention_heads", 1, kMostHeads);
  const int64_t width = r.c.Int("hidden_size", 1, kMostWidth);
  const auto dim = r.c.MaybeInt("attention_head_dim", 1, kMostHeadDim);
  r.Heads(width, heads, r.c.IntOr("num_key_value_heads", heads, 1, kMostHeads),
          dim.value_or(std::max<int64_t>(2 * width / heads, 1)));
  r.out.scale = std::sqrt(2.0) * r.out.scale;
  r.Layers(r.c.Int("num_hidden_layers", 1, kMostLayers));
  r.out.trained_length =
      r.c.IntOr("max_position_embeddings", 0, 1, kMostLength);
  r.Ignore({"attention_hidden_size", "attn_layer_period", "attn_layer_offset",
            "kv_channels", "num_query_groups", "chunk_size"});
  const auto types =
      r.c.MaybeTexts("layers_block_type", static_cast<size_t>(kMostLayers));
  if (!types || static_cast<int64_t>(types->size()) != r.out.layers) {
    Fail("{} must have an entry for each of {} layers",
         r.c.Path("layers_block_type"), r.out.layers);
  }
  const bool rotates = r.c.FlagOr("use_mem_rope", false);
  if (r.c.FlagOr("use_long_context", false)) {
    Fail("{} = true rescales the base by a rule that is not read",
         r.c.Path("use_long_context"));
  }
  r.Ignore({"rope_theta", "rope_parameters"});
  const std::string& type = (*types)[static_cast<size_t>(r.out.layer)];
  r.out.layer_type = type;
  if (type != "hybrid") {
    r.NoAttention(kStateSpace);
  } else if (rotates) {
    r.Rope({});
  } else {
    r.NoPosition(kOrder);
  }
}

// `block_types` is repeated over the layers.
void RecurrentGemma(Reader& r) {
  const auto blocks = r.c.MaybeTexts("block_types", 256);
  r.Sizes({.length = {}});
  if (!blocks || blocks->empty()) {
    Fail("{} is missing: the pattern of the layers", r.c.Path("block_types"));
  }
  r.CausalWindow(r.c.IntOf({"attention_window_size"}, 1, kMostLength));
  r.Rope({});
  const std::string& type =
      (*blocks)[static_cast<size_t>(r.out.layer) % blocks->size()];
  r.out.layer_type = type;
  if (type != "attention" && type != "recurrent") {
    Fail("{} has the entry '{}', known values: attention, recurrent",
         r.c.Path("block_types"), Printable(type));
  }
  if (type == "recurrent") r.NoAttention("no attention: a recurrent block");
}

// Every layer attends, in addition to convolutions, hence the names of its
// types.
void Zaya(Reader& r) {
  r.Sizes({.length_required = false});
  std::string type = r.LayerType({"hybrid", "hybrid_sliding"});
  if (type.empty()) type = "hybrid";
  r.out.layer_type = type;
  const auto width = r.c.MaybeInt("sliding_window", 1, kMostLength);
  if (type == "hybrid_sliding") {
    if (!width) Fail("{} is missing", r.c.Path("sliding_window"));
    r.CausalWindow(*width);
  }
  r.Rope({.layer_type = type});
}

// The other layers have linear attention, with a decay instead of positions.
void MiniMax(Reader& r) {
  const bool typed = r.c.Has("layer_types");
  const auto channels = r.c.MaybeInt("rotary_dim", 2, kMostHeadDim);
  if (channels) {
    Fail("{} is not read for MiniMax-01: its code rotates the whole head",
         r.c.Path("rotary_dim"));
  }
  ReadByRules(r, {.window_everywhere = true});
  if (!typed && r.out.layer % 2 != 0) {
    r.out.layer_type = kLinear;
    r.NoAttention(kLinearWords);
  }
}

// Full layers read only the keys that an indexer selects.
void WarnOfBlocks(Reader& r) {
  if (r.out.layer_type != "indexed_attention") return;
  r.Warn(
      "an indexer picks blocks of keys by their content: past as many blocks "
      "as it keeps, the call must bring that mask");
}

void Qwen4(Reader& r) {
  ReadByRules(r, {.dealing = MRopeSections::kInterleaved,
                  .sections = {11, 11, 10},
                  .time_takes_rest = true});
  WarnOfBlocks(r);
}

void MiniMaxM3(Reader& r) {
  r.IgnoredUpstream("rotary_dim");
  ReadByRules(r, {.ignored = {"index_topk_blocks"}});
  WarnOfBlocks(r);
}

void OlmoHybrid(Reader& r) {
  const Json* rope = r.c.Find("rope_parameters");
  const bool still = rope == nullptr || !rope->is_object() ||
                     !rope->contains("rope_theta") ||
                     (*rope)["rope_theta"].is_null();
  if (!r.c.Has("layer_types")) {
    Fail("{} is missing: the type of each layer", r.c.Path("layer_types"));
  }
  ReadByRules(r, {});
  if (still && r.out.attends) {
    r.out.rotary.reset();
    r.NoPosition(kOrder);
  }
}

// Latent attention in some layers, linear attention in the others.
void LatentHybrid(Reader& r, PairLayout layout, bool still) {
  if (!r.c.Has("layer_types")) {
    Fail("{} is missing: the type of each layer", r.c.Path("layer_types"));
  }
  r.Ignore({"layer_group_size", "indexer_types", "index_kpool",
            "index_kpool_always_select_tail"});
  ReadLatentRow(r, layout, still);
  if (r.out.layer_type == kLinear) r.NoAttention(kLinearWords);
}

void Bailing(Reader& r) {
  r.Ignore({"model_max_length"});
  LatentHybrid(r, PairLayout::kInterleaved, /*still=*/false);
}
void Kimi(Reader& r) {
  r.Expect("mla_use_nope", true);
  r.Ignore({"model_max_length", "linear_attn_config"});
  LatentHybrid(r, PairLayout::kInterleaved, /*still=*/true);
}

// No layer attends.
void NoAttentionAtAll(Reader& r) {
  r.out.model_dim = r.c.Int("hidden_size", 1, kMostWidth);
  r.Layers(r.c.Int("num_hidden_layers", 1, kMostLayers));
  r.Ignore({"num_heads", "head_dim", "chunk_size", "context_length",
            "attention_hidden_size", "max_inference_chunksize"});
  const bool recurrent =
      r.out.model_type == "rwkv" || r.out.model_type == "xlstm";
  r.out.layer_type = recurrent ? "recurrent" : "mamba";
  r.NoAttention(recurrent ? "no attention: a recurrent block" : kStateSpace);
}

}  // namespace

std::vector<Family> HybridFamilies() {
  std::vector<Family> families = {
      {{"Qwen3-Next",
        {"qwen3_next"},
        "RoPE, halves, a quarter of the head; every fourth layer attends",
        "the other layers are linear; 64 of 256 channels rotate"},
       Qwen3Next},
      {{"Qwen 3.5",
        {"qwen3_5_text", "qwen3_5_moe_text"},
        "M-RoPE, halves, a quarter of the head, sections 11+11+10 interleaved",
        "every fourth layer attends, the others are linear"},
       Qwen35},
      {{"LFM 2",
        {"lfm2", "lfm2_moe"},
        "RoPE, halves; convolutions between",
        "`full_attn_idxs` in old configs"},
       Lfm2},
      {{"Bamba",
        {"bamba"},
        "RoPE, halves, half of the head; state spaces between",
        "the share is in the code, not in the config"},
       Bamba},
      {{"Falcon-H1",
        {"falcon_h1"},
        "RoPE, halves, beside a state space in every layer",
        "`key_multiplier` is on the keys before they rotate"},
       FalconH1},
      {{"Granite 4 hybrid",
        {"granitemoehybrid"},
        "RoPE, halves, or none; state spaces between",
        "`position_embedding_type` null or nope means no rotation"},
       GraniteHybrid},
      {{"Jamba",
        {"jamba"},
        "no position; state spaces between",
        "layers attend where layer % `attn_layer_period` = "
        "`attn_layer_offset`"},
       Jamba},
      {{"Nemotron-H",
        {"nemotron_h"},
        "no position; state spaces and feed-forward layers between",
        "a feed-forward layer counts as a layer"},
       NemotronH},
      {{"Zamba",
        {"zamba", "zamba2"},
        "no position, or RoPE, halves, with `use_mem_rope`",
        "heads are twice as wide, and the scale is sqrt(2/d)"},
       Zamba},
      {{"RecurrentGemma",
        {"recurrent_gemma"},
        "RoPE, halves, half of the head; every third layer attends",
        "`block_types` repeats through the layers"},
       RecurrentGemma},
      {{"ZAYA",
        {"zaya"},
        "RoPE, halves, base and share per type of layer",
        "types of layers are hybrid and hybrid_sliding"},
       Zaya},
      {{"MiniMax-01",
        {"minimax"},
        "RoPE, halves; linear attention between",
        ""},
       MiniMax},
      {{"Qwen 4",
        {"qwen4_exp_text"},
        "M-RoPE, halves, sections 11+11 interleaved, time takes the rest",
        "every fourth layer attends, to blocks that an indexer picks"},
       Qwen4},
      {{"MiniMax M3",
        {"minimax_m3_vl_text"},
        "RoPE, halves, base 5e6",
        "`partial_rotary_factor` in `rope_parameters` counts, `rotary_dim` "
        "does not"},
       MiniMaxM3},
      {{"OLMo hybrid",
        {"olmo_hybrid"},
        "RoPE, halves, or none; linear attention between",
        "a null `rope_theta` means no rotation"},
       OlmoHybrid},
      {{"Ling 2.5 hybrid",
        {"bailing_hybrid"},
        "RoPE, interleaved, the last channels of the head",
        "latent attention in some layers, linear in the others"},
       Bailing},
      {{"Kimi Linear, GLM 5 Next",
        {"kimi_linear", "glm5_next_text"},
        "no position; linear attention between",
        "`qk_rope_head_dim` channels are there and never rotate"},
       Kimi},
      {{"Mamba, RWKV, xLSTM",
        {"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"},
        "no attention in any layer",
        "`num_heads` and `head_dim` of Mamba 2 are of its state spaces"},
       NoAttentionAtAll},
  };
  for (Family& family : families) family.class_defaults = true;
  return families;
}

}  // namespace locus::models
