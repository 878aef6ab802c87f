// DeepSeek: latent attention, whose heads are a still part and a rotated tail.
#include <cmath>

#include "models/families.h"

namespace locus::models {
namespace {

void DeepSeek(Reader& r, bool interleaved) {
  const int64_t heads = r.c.Int("num_attention_heads", 1, kMostHeads);
  const int64_t still = r.c.IntOr("qk_nope_head_dim", 128, 1, kMostWidth);
  const int64_t turning = r.c.IntOr("qk_rope_head_dim", 64, 2, kMostWidth);
  r.Heads(r.c.Int("hidden_size", 1, kMostWidth), heads,
          r.c.IntOr("num_key_value_heads", heads, 1, kMostHeads),
          still + turning);
  r.out.value_dim = r.c.IntOr("v_head_dim", 128, 1, kMostWidth);
  r.Layers(r.c.Int("num_hidden_layers", 1, kMostLayers));
  r.out.trained_length = r.c.Int("max_position_embeddings", 1, kMostLength);
  // What newer configs repeat; anything else would contradict them.
  const auto head = r.c.MaybeIntOf({"head_dim"}, 1, kMostWidth);
  if (head && *head != turning) {
    r.Refuse("{} = {} contradicts {} = {}", r.c.Path("head_dim"), *head,
             r.c.Path("qk_rope_head_dim"), turning);
  }
  r.c.MaybeInt("qk_head_dim", 1, kMostWidth);
  r.Rope(
      {.layout = interleaved ? PairLayout::kInterleaved : PairLayout::kHalves,
       .rotary_dim = turning,
       .place = RotaryPlace::kTrailing,
       .mscale_squared = true});
}

void DeepSeekV2(Reader& r) { DeepSeek(r, /*interleaved=*/true); }

void DeepSeekV3(Reader& r) { DeepSeek(r, r.c.FlagOr("rope_interleave", true)); }

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
  };
}

}  // namespace locus::models
