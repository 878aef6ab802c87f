// Families with the same rotation in every layer.
//
// An entry has what a config does not say: the pair layout (never in a config),
// defaults for the base and the share of channels, and old spellings.
#include <cmath>

#include "locus/encodings/xpos.h"
#include "models/families.h"

namespace locus::models {

// The flag alone changes the layer but not its mask: eager attention remains
// causal, and fused attention does not. With is_causal = false both are
// bidirectional.
void ReadGemmaDirection(Reader& r) {
  const char* key = "use_bidirectional_attention";
  const bool both_ways = r.c.FlagOr(key, false);
  if (!both_ways || !r.c.FlagOr("is_causal", true)) return;
  if (!r.c.Path("").empty()) {
    // PaliGemma and similar models build a mask for their own prefix.
    r.Warn(
        "tokens of the prefix, image and prompt, see each other: give the call "
        "prefix_lengths");
  } else {
    r.Refuse("{} = true leaves the mask of {} causal without is_causal = false",
             r.c.Path(key), r.out.family);
  }
}

namespace {

constexpr auto kInterleaved = PairLayout::kInterleaved;

// LLaMA and models with the same config.
void Llama(Reader& r) {
  r.Sizes();
  r.Expect("rope_interleaved", false);  // in SmolLM 2's config
  r.Rope({});
}

// A window in every layer, if the config has one.
void Sliding(Reader& r, const SizeKeys& sizes, std::optional<int64_t> usual,
             const RopeDefaults& rope) {
  r.Sizes(sizes);
  if (const auto window = r.SlidingWindow(usual)) r.CausalWindow(*window);
  r.Rope(rope);
}

void Mistral(Reader& r) {
  constexpr int64_t kUsual = 4096;
  if (r.c.Absent("sliding_window")) {
    r.Warn(
        "{} is absent, for which the model's own code takes {}; null is none",
        r.c.Path("sliding_window"), kUsual);
  }
  Sliding(r, {.default_kv_heads = 8}, kUsual, {});
}

void Mixtral(Reader& r) {
  Sliding(r, {.default_kv_heads = 8}, {}, {.base = 1e6});
}

void Starcoder2(Reader& r) { Sliding(r, {.default_kv_heads = 2}, {}, {}); }

void Gemma(Reader& r) {
  r.Sizes({.default_kv_heads = 16, .default_head_dim = 256});
  ReadGemmaDirection(r);
  r.Rope({});
}

void Phi2(Reader& r) {
  r.Sizes();
  // Older configs give the channels (rotary_dim 32), newer ones the share.
  const auto channels = r.c.MaybeInt("rotary_dim", 2, r.out.head_dim);
  r.Rope({.partial = 0.5, .rotary_dim = channels.value_or(0)});
}

void Phi3(Reader& r) {
  // Present at the top level even without a scaling.
  r.Ignore({"original_max_position_embeddings"});
  Sliding(r, {}, {}, {.yarn_means_longrope = true});
}

void StableLm(Reader& r) {
  r.Sizes({.default_kv_heads = 32});
  r.Rope(
      {.partial = 0.25, .partial_keys = {"partial_rotary_factor", "rope_pct"}});
}

void Cohere(Reader& r) {
  r.Sizes();
  // 8192 in Command-R's config, without effect: the length has its own key.
  r.IgnoredUpstream("model_max_length");
  r.Rope({.layout = kInterleaved, .base = 500000.0});
}

void Glm(Reader& r) {
  r.Sizes({.default_kv_heads = 2, .default_head_dim = 128});
  r.Rope({.layout = kInterleaved, .partial = 0.5});
}

void Glm4Moe(Reader& r) {
  r.Sizes({.default_kv_heads = 8});
  r.Rope({.partial = 0.5});
}

void Nemotron(Reader& r) {
  r.Sizes();
  r.Rope({.partial = 0.5});
}

// Without grouped heads.
void Persimmon(Reader& r) {
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  r.Rope({.partial = 0.5});
}

// ChatGLM2, ChatGLM3 and GLM-4 with the config of their own code.
void ChatGlm(Reader& r) {
  const int64_t heads = r.c.Int("num_attention_heads", 1, kMostHeads);
  const bool grouped = r.c.FlagOr("multi_query_attention", false);
  const int64_t kv =
      grouped ? r.c.Int("multi_query_group_num", 1, kMostHeads) : heads;
  r.Heads(r.c.Int("hidden_size", 1, kMostWidth), heads, kv,
          r.c.Int("kv_channels", 1, kMostWidth));
  r.Layers(r.c.IntOf({"num_layers", "num_hidden_layers"}, 1, kMostLayers));
  r.out.trained_length = r.c.Int("seq_length", 1, kMostLength);
  r.Expect("original_rope", true);
  // Half of each head, in adjacent pairs, and a base that longer versions
  // multiply.
  r.Rope({.layout = kInterleaved,
          .base = 10000.0 * r.c.NumberOr("rope_ratio", 1.0, 1e-9, 1e9),
          .partial = 0.5});
}

void GptJ(Reader& r) {
  r.Sizes(Gpt2Sizes());
  r.IgnoredUpstream("n_ctx");
  r.Expect("rotary", true);
  r.Expect("scale_attn_weights", true);
  r.Rope({.layout = kInterleaved,
          .rotary_dim = r.c.Int("rotary_dim", 2, r.out.head_dim)});
}

void GptNeoX(Reader& r) {
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  r.Rope({.partial = r.out.model_type == "gpt_neox" ? 0.25 : 1.0,
          .base_keys = {"rotary_emb_base", "rope_theta"},
          .partial_keys = {"rotary_pct", "partial_rotary_factor"}});
}

void RoFormer(Reader& r) {
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  const bool decoder = r.c.FlagOr("is_decoder", false);
  r.out.part = decoder ? "decoder" : "encoder";
  r.out.causal = decoder;
  const bool values = r.c.FlagOr("rotary_value", false);
  r.Rope({.layout = kInterleaved,
          .values = values ? RotaryValues::kAbsolute : RotaryValues::kNone});
}

// PaLM as built by public code: one key head, halves, optionally xPos.
void Palm(Reader& r) {
  const int64_t heads =
      r.c.IntOf({"heads", "num_attention_heads"}, 1, kMostHeads);
  r.Heads(r.c.IntOf({"dim", "hidden_size"}, 1, kMostWidth), heads,
          /*kv_heads=*/1, r.c.IntOf({"dim_head", "head_dim"}, 1, kMostWidth));
  r.Layers(r.c.IntOf({"depth", "num_hidden_layers"}, 1, kMostLayers));
  r.out.trained_length =
      r.c.MaybeIntOf({"max_seq_len", "max_position_embeddings"}, 1, kMostLength)
          .value_or(0);
  const bool decays = r.c.FlagOr("use_xpos", false);
  const double span = r.c.NumberOr("xpos_scale_base", 512.0, 1e-3, 1e9);
  if (decays) {
    r.Attend("xpos", fmt::format("xPos, halves, decay over {} tokens", span),
             std::make_shared<XPos>(r.out.head_dim, PairLayout::kHalves,
                                    XPosOptions{.scale_base = span}));
    return;
  }
  r.Rope({});
}

void Baichuan7(Reader& r) {
  r.Sizes({.length = {"max_position_embeddings"}});
  r.Ignore({"model_max_length"});
  r.Rope({});
}

void Ernie(Reader& r) {
  r.Sizes({.default_kv_heads = 2, .default_head_dim = 128});
  r.Rope({.layout = kInterleaved, .base = 500000.0});
}

void Helium(Reader& r) {
  r.Sizes({.default_kv_heads = 20, .default_head_dim = 128});
  r.Rope({.layout = kInterleaved, .base = 100000.0});
}

void Granite(Reader& r) {
  r.Sizes();
  r.out.scale = r.c.NumberOr("attention_multiplier", 1.0, 1e-9, 1e9);
  r.Rope({});
}

// The config of the published code, or that of the Hugging Face code.
void Nomic(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.model_dim = {"n_embd", "hidden_size"},
           .q_heads = {"n_head", "num_attention_heads"},
           .kv_heads = {},
           .layers = {"n_layer", "num_hidden_layers"},
           .length = {"max_trained_positions", "max_position_embeddings"},
           .length_required = false});
  // The length to which its authors extend the model, by other means.
  const auto longest = r.c.MaybeInt("n_positions", 1, kMostLength);
  if (longest && r.out.trained_length == 0) r.out.trained_length = *longest;
  if (r.out.trained_length == 0) {
    Fail("{} is missing", r.c.Path("max_position_embeddings"));
  }
  r.Expect("scale_attn_weights", true);
  r.Expect("scale_attn_by_inverse_layer_idx", false);
  const bool interleaved = r.c.FlagOr("rotary_emb_interleaved", false);
  r.Rope({.layout = interleaved ? kInterleaved : PairLayout::kHalves,
          .base = 1000.0,
          .base_keys = {"rotary_emb_base", "rope_theta"},
          .partial_keys = {"rotary_emb_fraction", "partial_rotary_factor"}});
}

}  // namespace

void ReadBaichuanRope(Reader& r) { Baichuan7(r); }
void ReadFalconRope(Reader& r) { r.Rope({}); }

std::vector<Family> RotaryFamilies() {
  return {
      {{"RoFormer",
        {"roformer"},
        "RoPE, interleaved, whole head",
        "`rotary_value` rotates v as well, and outputs are not rotated back"},
       RoFormer},
      {{"GPT-J, CodeGen",
        {"gptj", "codegen"},
        "RoPE, interleaved, first `rotary_dim` channels, base 10000",
        "pairs are adjacent, unlike NeoX; `n_ctx` is ignored"},
       GptJ},
      {{"GPT-NeoX",
        {"gpt_neox", "gpt_neox_japanese"},
        "RoPE, halves, first quarter of the head",
        "`rotary_pct` and `rotary_emb_base` instead of the usual names; the "
        "Japanese one turns the whole head where `rotary_pct` is absent"},
       GptNeoX},
      {{"PaLM-style",
        {"palm"},
        "RoPE, halves, one key head",
        "one key head for all query heads"},
       Palm},
      {{"LLaMA",
        {"llama", "aquila", "internlm", "internlm2", "Yi"},
        "RoPE, halves; 3.1 and later with llama3 scaling",
        "halves in Hugging Face weights, interleaved in Meta's and GGUF's; "
        "`head_dim` may differ from hidden / heads"},
       Llama},
      {{"Mistral",
        {"mistral"},
        "RoPE, halves, sliding window",
        "a window of W sees W keys, the query's own among them; an absent "
        "`sliding_window` is 4096, null is none"},
       Mistral},
      {{"Mixtral",
        {"mixtral"},
        "RoPE, halves, base 1000000, sliding window where set",
        "the base is not 10000 where `rope_theta` is absent"},
       Mixtral},
      {{"StarCoder 2",
        {"starcoder2"},
        "RoPE, halves, sliding window where set",
        ""},
       Starcoder2},
      {{"Gemma",
        {"gemma"},
        "RoPE, halves, head_dim 256",
        "`head_dim` is not hidden / heads"},
       Gemma},
      {{"Phi 1, 2",
        {"phi", "phi-msft"},
        "RoPE, halves, 0.4 or 0.5 of the head",
        "`rotary_dim` in old configs, `partial_rotary_factor` in new ones"},
       Phi2},
      {{"Phi 3, 4",
        {"phi3"},
        "RoPE, halves, LongRoPE for long versions",
        "`su` and `yarn` both mean LongRoPE; the factors change past the "
        "original length; the gain comes from the ratio of the lengths"},
       Phi3},
      {{"StableLM",
        {"stablelm", "stablelm_epoch"},
        "RoPE, halves, quarter of the head",
        "`rope_pct` in old configs"},
       StableLm},
      {{"OLMo 1, 2", {"olmo", "olmo2", "olmoe"}, "RoPE, halves", ""}, Llama},
      {{"Persimmon",
        {"persimmon"},
        "RoPE, halves, half of the head",
        "q, k and v of a head stand together in one weight"},
       Persimmon},
      {{"Nemotron", {"nemotron"}, "RoPE, halves, half of the head", ""},
       Nemotron},
      {{"Cohere",
        {"cohere"},
        "RoPE, interleaved",
        "pairs are adjacent although the code looks like LLaMA's; "
        "`model_max_length` is ignored"},
       Cohere},
      {{"GLM 4",
        {"glm", "glm4"},
        "RoPE, interleaved, half of the head",
        "interleaved, and only half of the channels"},
       Glm},
      {{"GLM 4.5",
        {"glm4_moe"},
        "RoPE, halves, half of the head",
        "halves, unlike GLM 4"},
       Glm4Moe},
      {{"ChatGLM",
        {"chatglm"},
        "RoPE, interleaved, half of the head",
        "`rope_ratio` multiplies the base; `kv_channels` is the head"},
       ChatGlm},
      {{"Ernie 4.5", {"ernie4_5"}, "RoPE, interleaved, base 500000", ""},
       Ernie},
      {{"Helium", {"helium"}, "RoPE, interleaved, base 100000", ""}, Helium},
      {{"Granite",
        {"granite"},
        "RoPE, halves, its own scale",
        "`attention_multiplier` is the scale, not 1/sqrt(d)"},
       Granite},
      {{"HunYuan",
        {"hunyuan_v1_dense"},
        "RoPE, halves, NTK by alpha",
        "`dynamic` with `alpha` is a fixed base"},
       Llama},
      {{"Nomic",
        {"nomic_bert"},
        "RoPE, halves, base 1000, bidirectional",
        "two spellings of the whole config; trained on 2048, not n_positions"},
       Nomic},
  };
}

}  // namespace locus::models
