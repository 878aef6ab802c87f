// Latent attention, whose heads have an unrotated part and a rotated tail.
#include <algorithm>

#include "models/families.h"

namespace locus::models {

// Latent attention, with class defaults filled in. `still`: the tail exists but
// does not rotate.
void ReadLatentRow(Reader& r, PairLayout layout, bool still) {
  const int64_t heads = r.c.Int("num_attention_heads", 1, kMostHeads);
  const int64_t nope = r.c.Int("qk_nope_head_dim", 1, kMostWidth);
  const int64_t tail = r.c.Int("qk_rope_head_dim", 0, kMostWidth);
  // Keys are computed for every query head, whatever these keys say.
  r.Ignore({"num_key_value_heads", "qk_head_dim", "head_dim"});
  r.Heads(r.c.Int("hidden_size", 1, kMostWidth), heads, heads, nope + tail);
  r.out.value_dim = r.c.Int("v_head_dim", 1, kMostWidth);
  // LongCat has two attention blocks in each of its layers.
  const bool twice = r.out.model_type == "longcat_flash";
  const int64_t layers =
      r.c.IntOf({twice ? "num_layers" : "num_hidden_layers"}, 1, kMostLayers);
  if (twice) r.Ignore({"num_hidden_layers"});
  r.Layers(twice ? 2 * layers : layers);
  r.out.trained_length =
      r.c.IntOr("max_position_embeddings", 0, 1, kMostLength);
  r.out.layer_type = r.LayerType({kFull, kLinear, "indexed_attention"});
  r.Ignore({"indexer_types"});
  const auto most = r.c.MaybeInt("index_topk", 1, kMostLength);
  if (most && r.out.layer_type != kLinear) {
    r.Warn(
        "an indexer keeps the {} best keys of each query: past so many keys "
        "the call must bring that mask",
        *most);
  }
  if (still || tail == 0) {
    r.NoPosition("no position: nothing of the head rotates");
    return;
  }
  // A share of the head that some classes write besides its channels.
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (const auto object = r.c.MaybeObject(key)) {
      object->Find("partial_rotary_factor");
    }
  }
  r.Ignore({"partial_rotary_factor", "default_partial"});
  r.Rope({.layout = layout,
          .rotary_dim = tail,
          .place = RotaryPlace::kTrailing,
          .mscale_squared = true});
}

namespace {

// Defaults of the widths; `value` 0: model_dim / heads.
struct LatentWidths {
  int64_t still = 128;
  int64_t turning = 64;
  int64_t value = 128;
};

void ReadLatent(Reader& r, PairLayout layout, const LatentWidths& usual) {
  const int64_t heads = r.c.Int("num_attention_heads", 1, kMostHeads);
  const int64_t still =
      r.c.IntOr("qk_nope_head_dim", usual.still, 1, kMostWidth);
  const int64_t turning =
      r.c.IntOr("qk_rope_head_dim", usual.turning, 2, kMostWidth);
  const int64_t width = r.c.Int("hidden_size", 1, kMostWidth);
  // Keys are computed for every query head; a number of key heads must agree.
  const auto kv = r.c.MaybeInt("num_key_value_heads", 1, kMostHeads);
  if (kv && *kv != heads) {
    r.Refuse("{} = {} contradicts {} = {}: latent attention does not group",
             r.c.Path("num_key_value_heads"), *kv,
             r.c.Path("num_attention_heads"), heads);
  }
  r.Heads(width, heads, heads, still + turning);
  const int64_t value =
      usual.value != 0 ? usual.value : std::max<int64_t>(width / heads, 1);
  r.out.value_dim = r.c.IntOr("v_head_dim", value, 1, kMostWidth);
  r.Layers(r.c.Int("num_hidden_layers", 1, kMostLayers));
  r.out.trained_length = r.c.Int("max_position_embeddings", 1, kMostLength);
  // Newer configs repeat this; another value would be a contradiction.
  const auto head = r.c.MaybeIntOf({"head_dim"}, 1, kMostWidth);
  if (head && *head != turning) {
    r.Refuse("{} = {} contradicts {} = {}", r.c.Path("head_dim"), *head,
             r.c.Path("qk_rope_head_dim"), turning);
  }
  r.c.MaybeInt("qk_head_dim", 1, kMostWidth);
  r.Rope({.layout = layout,
          .rotary_dim = turning,
          .place = RotaryPlace::kTrailing,
          .mscale_squared = true});
}

void DeepSeekV2(Reader& r) { ReadLatent(r, PairLayout::kInterleaved, {}); }

void DeepSeekV3(Reader& r) {
  ReadLatent(r,
             r.c.FlagOr("rope_interleave", true) ? PairLayout::kInterleaved
                                                 : PairLayout::kHalves,
             {});
}

void MiniCpm3(Reader& r) {
  ReadLatent(r, PairLayout::kHalves, {.still = 64, .turning = 32, .value = 0});
}

}  // namespace

std::vector<Family> LatentFamilies() {
  return {
      {{"DeepSeek V2",
        {"deepseek_v2"},
        "RoPE, interleaved, last 64 of 192 channels, YaRN",
        "the rotated part stands last; the softmax scale gains mscale squared; "
        "mscale = mscale_all_dim leaves cos and sin alone"},
       DeepSeekV2},
      {{"DeepSeek V3, R1",
        {"deepseek_v3"},
        "RoPE, interleaved, last 64 of 192 channels, YaRN",
        "as V2; `rope_interleave` is on unless the config turns it off"},
       DeepSeekV3},
      {{"MiniCPM 3",
        {"minicpm3"},
        "RoPE, halves, last 32 of 96 channels, LongRoPE",
        "latent attention as DeepSeek's, but halves"},
       MiniCpm3},
  };
}

}  // namespace locus::models
