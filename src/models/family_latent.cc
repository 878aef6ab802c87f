// Latent attention, whose heads are a still part and a rotated tail.
#include <algorithm>

#include "models/families.h"

namespace locus::models {
namespace {

// What a config may leave out; `value` 0: model_dim / heads.
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
  // Keys are made for every query head; a number of key heads may only repeat
  // that.
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
  // What newer configs repeat; anything else would contradict them.
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
