// Published fields of models whose layers differ, or whose heads are split.
#include "models/published.h"

namespace locus::models {
namespace {

// Windows and bases by layer.
TEST(LayeredConfigsTest, QwenAndGemma) {
  const char* qwen2 = R"({"model_type": "qwen2", "hidden_size": 3584,
      "num_attention_heads": 28, "num_key_value_heads": 4,
      "num_hidden_layers": 28, "max_position_embeddings": 32768,
      "max_window_layers": 28, "rope_theta": 1000000.0,
      "sliding_window": 131072, "use_sliding_window": false})";
  const char* gemma2 = R"({"model_type": "gemma2", "hidden_size": 3584,
      "head_dim": 256, "num_attention_heads": 16, "num_key_value_heads": 8,
      "num_hidden_layers": 42, "max_position_embeddings": 8192,
      "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
      "final_logit_softcapping": 30.0, "sliding_window": 4096,
      "sliding_window_size": 4096, "rope_theta": 10000.0})";
  const char* gemma2_27b = R"({"model_type": "gemma2", "hidden_size": 4608,
      "head_dim": 128, "num_attention_heads": 32, "num_key_value_heads": 16,
      "num_hidden_layers": 46, "max_position_embeddings": 8192,
      "query_pre_attn_scalar": 144, "attn_logit_softcapping": 50.0,
      "sliding_window": 4096, "rope_theta": 10000.0})";
  const char* gemma3_4b = R"({"model_type": "gemma3", "text_config": {
      "hidden_size": 2560, "intermediate_size": 10240,
      "model_type": "gemma3_text", "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
      "sliding_window": 1024}, "vision_config": {"image_size": 896,
      "num_attention_heads": 16}})";
  const char* gemma3_1b = R"({"model_type": "gemma3_text", "hidden_size": 1152,
      "head_dim": 256, "num_attention_heads": 4, "num_key_value_heads": 1,
      "num_hidden_layers": 26, "max_position_embeddings": 32768,
      "query_pre_attn_scalar": 256, "rope_local_base_freq": 10000,
      "rope_theta": 1000000, "rope_scaling": null, "sliding_window": 512,
      "sliding_window_pattern": 6, "attn_logit_softcapping": null})";
  CheckPublished({
      {"Qwen2 7B", qwen2, 27, "", "rope halves 128 of 128 base 1000000",
       "28/4 heads, d 128, causal, length 32768"},
      {"Qwen2.5 7B with the card's YaRN", R"({"model_type": "qwen2",
        "hidden_size": 3584, "num_attention_heads": 28,
        "num_key_value_heads": 4, "num_hidden_layers": 28,
        "max_position_embeddings": 32768, "max_window_layers": 28,
        "rope_theta": 1000000.0, "sliding_window": 131072,
        "use_sliding_window": false, "rope_scaling": {"factor": 4.0,
        "original_max_position_embeddings": 32768, "type": "yarn"}})",
       0, "",
       "rope halves 128 of 128 base 1000000 yarn 4 of 32768 gain 1.138629",
       "28/4 heads, d 128, causal, length 32768"},
      {"Qwen3 8B", R"({"model_type": "qwen3", "hidden_size": 4096,
        "head_dim": 128, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_hidden_layers": 36, "max_position_embeddings": 40960,
        "max_window_layers": 36, "rope_theta": 1000000, "rope_scaling": null,
        "sliding_window": null, "use_sliding_window": false})",
       35, "", "rope halves 128 of 128 base 1000000",
       "32/8 heads, d 128, causal, length 40960"},
      {"Qwen3 0.6B", R"({"model_type": "qwen3", "hidden_size": 1024,
        "head_dim": 128, "num_attention_heads": 16, "num_key_value_heads": 8,
        "num_hidden_layers": 28, "max_position_embeddings": 40960,
        "max_window_layers": 28, "rope_theta": 1000000,
        "use_sliding_window": false})",
       0, "", "rope halves 128 of 128 base 1000000",
       "16/8 heads, d 128, causal, length 40960"},
      {"Gemma 2 9B", gemma2, 0, "", "rope halves 256 of 256 base 10000",
       "16/8 heads, d 256, causal, length 8192, window 4095+0, cap 50"},
      {"Gemma 2 9B", gemma2, 1, "", "rope halves 256 of 256 base 10000",
       "16/8 heads, d 256, causal, length 8192, cap 50"},
      {"Gemma 2 27B", gemma2_27b, 0, "", "rope halves 128 of 128 base 10000",
       "32/16 heads, d 144, causal, length 8192, window 4095+0, cap 50"},
      {"Gemma 3 4B", gemma3_4b, 0, "", "rope halves 256 of 256 base 10000",
       "8/4 heads, d 256, causal, length 131072, window 1023+0"},
      {"Gemma 3 4B", gemma3_4b, 5, "",
       "rope halves 256 of 256 base 1000000 linear 8",
       "8/4 heads, d 256, causal, length 131072"},
      {"Gemma 3 1B", gemma3_1b, 4, "", "rope halves 256 of 256 base 10000",
       "4/1 heads, d 256, causal, length 32768, window 511+0"},
      {"Gemma 3 1B", gemma3_1b, 23, "", "rope halves 256 of 256 base 1000000",
       "4/1 heads, d 256, causal, length 32768"},
  });
}

// Layers without positions, temperatures, chunks.
TEST(LayeredConfigsTest, NoRotationInSomeLayers) {
  const char* llama4 = R"({"model_type": "llama4", "text_config": {
      "model_type": "llama4_text", "hidden_size": 5120, "head_dim": 128,
      "num_attention_heads": 40, "num_key_value_heads": 8,
      "num_hidden_layers": 48, "max_position_embeddings": 10485760,
      "attention_chunk_size": 8192, "attn_temperature_tuning": true,
      "attn_scale": 0.1, "floor_scale": 8192, "no_rope_layers": [],
      "rope_theta": 500000.0, "rope_scaling": {"factor": 16.0,
      "high_freq_factor": 1.0, "low_freq_factor": 1.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"}}})";
  const char* smollm3 = R"({"model_type": "smollm3", "hidden_size": 2048,
      "num_attention_heads": 16, "num_key_value_heads": 4,
      "num_hidden_layers": 36, "max_position_embeddings": 65536,
      "max_window_layers": 28, "no_rope_layer_interval": 4,
      "no_rope_layers": [1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,
                         1,1,1,0,1,1,1,0,1,1,1,0],
      "rope_theta": 5000000.0, "rope_scaling": null, "sliding_window": null,
      "use_sliding_window": false})";
  const char* command_r7b = R"({"model_type": "cohere2", "hidden_size": 4096,
      "head_dim": 128, "num_attention_heads": 32, "num_key_value_heads": 8,
      "num_hidden_layers": 32, "max_position_embeddings": 8192,
      "layer_switch": 4, "order_of_interleaved_layers": "local_attn_first",
      "position_embedding_type": "rope_gptj", "rotary_pct": 1.0,
      "rope_scaling": null, "rope_theta": 50000, "sliding_window": 4096,
      "sliding_window_pattern": 4})";
  CheckPublished({
      {"Llama 4 Scout", llama4, 0, "",
       "rope interleaved 128 of 128 base 500000 llama3 16 of 8192",
       "40/8 heads, d 128, causal, length 10485760, chunk 8192"},
      {"Llama 4 Scout", llama4, 3, "", "none",
       "40/8 heads, d 128, causal, length 10485760, temperature 0.1 1 8192"},
      {"SmolLM3 3B", smollm3, 0, "", "rope halves 128 of 128 base 5000000",
       "16/4 heads, d 128, causal, length 65536"},
      {"SmolLM3 3B", smollm3, 3, "", "none",
       "16/4 heads, d 128, causal, length 65536"},
      {"Command R7B", command_r7b, 0, "",
       "rope interleaved 128 of 128 base 50000",
       "32/8 heads, d 128, causal, length 8192, window 4095+0"},
      {"Command R7B", command_r7b, 3, "", "none",
       "32/8 heads, d 128, causal, length 8192"},
  });
}

TEST(LayeredConfigsTest, WindowsAndScalings) {
  const char* olmo3 = R"({"model_type": "olmo3", "hidden_size": 4096,
      "num_attention_heads": 32, "num_key_value_heads": 32,
      "num_hidden_layers": 32, "max_position_embeddings": 65536,
      "rope_theta": 500000, "rope_scaling": {"rope_type": "yarn",
      "factor": 8.0, "original_max_position_embeddings": 8192,
      "attention_factor": 1.2079441541679836, "beta_fast": 32.0,
      "beta_slow": 1.0}, "sliding_window": 4096})";
  const char* gpt_oss = R"({"model_type": "gpt_oss", "hidden_size": 2880,
      "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
      "num_hidden_layers": 24, "max_position_embeddings": 131072,
      "initial_context_length": 4096, "rope_theta": 150000,
      "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
      "original_max_position_embeddings": 4096, "rope_type": "yarn",
      "truncate": false}, "sliding_window": 128})";
  const char* modernbert = R"({"model_type": "modernbert", "hidden_size": 768,
      "num_attention_heads": 12, "num_hidden_layers": 22,
      "max_position_embeddings": 8192, "global_attn_every_n_layers": 3,
      "global_rope_theta": 160000.0, "local_attention": 128,
      "local_rope_theta": 10000.0, "position_embedding_type": "absolute"})";
  CheckPublished({
      {"OLMo 3 7B", olmo3, 0, "", "rope halves 128 of 128 base 500000",
       "32/32 heads, d 128, causal, length 65536, window 4095+0"},
      {"OLMo 3 7B", olmo3, 3, "",
       "rope halves 128 of 128 base 500000 yarn 8 of 8192 gain 1.207944",
       "32/32 heads, d 128, causal, length 65536"},
      {"gpt-oss 20B", gpt_oss, 0, "",
       "rope halves 64 of 64 base 150000 yarn 32 of 4096 gain 1.346574",
       "64/8 heads, d 64, causal, length 131072, window 127+0"},
      {"gpt-oss 20B", gpt_oss, 1, "",
       "rope halves 64 of 64 base 150000 yarn 32 of 4096 gain 1.346574",
       "64/8 heads, d 64, causal, length 131072"},
      {"ModernBERT base", modernbert, 0, "", "rope halves 64 of 64 base 160000",
       "12/12 heads, d 64, both ways, length 8192"},
      {"ModernBERT base", modernbert, 1, "", "rope halves 64 of 64 base 10000",
       "12/12 heads, d 64, both ways, length 8192, window 64+64"},
  });
}

TEST(LayeredConfigsTest, LatentHeads) {
  // mscale = mscale_all_dim: cos and sin are unchanged, and the softmax scale
  // is multiplied by (0.1 mscale ln 40 + 1)^2.
  CheckPublished({
      {"DeepSeek V2 Lite", R"({"model_type": "deepseek_v2",
        "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 16, "num_hidden_layers": 27,
        "max_position_embeddings": 163840, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "kv_lora_rank": 512,
        "rope_theta": 10000, "rope_scaling": {"beta_fast": 32, "beta_slow": 1,
        "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096, "type": "yarn"}})",
       0, "", "rope interleaved 64 of 192 base 10000 from 128 yarn 40 of 4096",
       "16/16 heads, d 192, causal, length 163840, softmax 1.589626"},
      {"DeepSeek V3", R"({"model_type": "deepseek_v3", "hidden_size": 7168,
        "num_attention_heads": 128, "num_key_value_heads": 128,
        "num_hidden_layers": 61, "max_position_embeddings": 163840,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "rope_theta": 10000, "rope_scaling": {"beta_fast": 32, "beta_slow": 1,
        "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096, "type": "yarn"}})",
       60, "", "rope interleaved 64 of 192 base 10000 from 128 yarn 40 of 4096",
       "128/128 heads, d 192, causal, length 163840, softmax 1.873854"},
  });
}

// Redundant fields, as published or as saved by transformers.
TEST(LayeredConfigsTest, FieldsThatSayWhatIsSo) {
  CheckPublished({
      {"Qwen2.5 1.5B", R"({"model_type": "qwen2", "hidden_size": 1536,
        "num_attention_heads": 12, "num_key_value_heads": 2,
        "num_hidden_layers": 28, "max_position_embeddings": 131072,
        "max_window_layers": 28, "rope_theta": 1000000.0,
        "sliding_window": 131072, "use_mrope": false,
        "use_sliding_window": false})",
       0, "", "rope halves 128 of 128 base 1000000",
       "12/2 heads, d 128, causal, length 131072"},
      {"R1-Distill-Qwen 1.5B", R"({"model_type": "qwen2", "hidden_size": 1536,
        "num_attention_heads": 12, "num_key_value_heads": 2,
        "num_hidden_layers": 28, "max_position_embeddings": 131072,
        "max_window_layers": 21, "rope_theta": 10000, "sliding_window": 4096,
        "use_mrope": false, "use_sliding_window": false})",
       27, "", "rope halves 128 of 128 base 10000",
       "12/2 heads, d 128, causal, length 131072"},
      {"SmolLM2 1.7B", R"({"model_type": "llama", "hidden_size": 2048,
        "num_attention_heads": 32, "num_key_value_heads": 32,
        "num_hidden_layers": 24, "max_position_embeddings": 8192,
        "rope_interleaved": false, "rope_scaling": null,
        "rope_theta": 130000})",
       0, "", "rope halves 64 of 64 base 130000",
       "32/32 heads, d 64, causal, length 8192"},
      {"Qwen1.5 MoE, saved again", R"({"model_type": "qwen2_moe",
        "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 16, "num_hidden_layers": 2,
        "max_position_embeddings": 8192, "max_window_layers": 21,
        "layer_types": ["full_attention", "full_attention"],
        "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
        "sliding_window": 0, "use_sliding_window": false})",
       0, "", "rope halves 128 of 128 base 1000000",
       "16/16 heads, d 128, causal, length 8192"},
  });
}

constexpr const char* kQwen35 = R"({"model_type": "qwen3_5_text",
    "hidden_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 2,
    "head_dim": 256, "num_hidden_layers": 32, "full_attention_interval": 4,
    "max_position_embeddings": 262144, "rope_parameters": {
    "rope_type": "default", "rope_theta": 10000000, "mrope_interleaved": true,
    "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]}})";

TEST(LayeredConfigsTest, TimeHeightAndWidth) {
  CheckPublished({
      {"Qwen2-VL without sections", R"({"model_type": "qwen2_vl_text",
        "hidden_size": 8192, "num_attention_heads": 64,
        "num_key_value_heads": 8, "num_hidden_layers": 80,
        "max_position_embeddings": 32768, "max_window_layers": 80,
        "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
        "sliding_window": null, "use_sliding_window": false})",
       0, "", "mrope halves 128 of 128 base 1000000",
       "64/8 heads, d 128, causal, length 32768"},
      {"Qwen2-VL 7B", R"({"model_type": "qwen2_vl", "hidden_size": 3584,
        "num_attention_heads": 28, "num_key_value_heads": 4,
        "num_hidden_layers": 28, "max_position_embeddings": 32768,
        "max_window_layers": 28, "rope_theta": 1000000.0,
        "sliding_window": 32768, "use_sliding_window": false,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "vision_config": {"depth": 32, "spatial_patch_size": 14}})",
       0, "", "mrope halves 128 of 128 base 1000000",
       "28/4 heads, d 128, causal, length 32768"},
      {"Qwen2.5-VL 7B", R"({"model_type": "qwen2_5_vl", "hidden_size": 3584,
        "num_attention_heads": 28, "num_key_value_heads": 4,
        "num_hidden_layers": 28, "max_position_embeddings": 128000,
        "max_window_layers": 28, "rope_theta": 1000000.0,
        "sliding_window": 32768, "use_sliding_window": false,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}})",
       0, "", "mrope halves 128 of 128 base 1000000",
       "28/4 heads, d 128, causal, length 128000"},
      {"Qwen3-VL 8B", R"({"model_type": "qwen3_vl", "text_config": {
        "model_type": "qwen3_vl_text", "hidden_size": 4096, "head_dim": 128,
        "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_hidden_layers": 36, "max_position_embeddings": 262144,
        "rope_theta": 5000000, "rope_scaling": {"mrope_interleaved": true,
        "mrope_section": [24, 20, 20], "rope_type": "default"}}})",
       0, "", "mrope halves 128 of 128 base 5000000",
       "32/8 heads, d 128, causal, length 262144"},
      // Its linear layers read the sections as well, or they would count as
      // unused.
      {"Qwen 3.5, a linear layer", kQwen35, 0, "", "none",
       "16/2 heads, d 256, causal, length 262144"},
      {"Qwen 3.5, a full layer", kQwen35, 3, "",
       "mrope halves 64 of 256 base 10000000",
       "16/2 heads, d 256, causal, length 262144"},
  });
  // The class of Qwen2-VL has default sections.
  const LayerPosition p = FromConfig(R"({"model_type": "qwen2_vl",
      "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
      "num_hidden_layers": 28, "max_position_embeddings": 32768})");
  const Terms terms =
      Build(p.attention)->Lower(Shape::SelfAttention(28, 128, 2)).terms;
  std::vector<int32_t> axes(16, 0);
  axes.insert(axes.end(), 24, 1);
  axes.insert(axes.end(), 24, 2);
  EXPECT_EQ(terms.rotate->axis, axes);
}

}  // namespace
}  // namespace locus::models
