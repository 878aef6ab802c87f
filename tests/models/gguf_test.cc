// GGUF metadata resolves to the positions of the config it was made from.
#include <gtest/gtest.h>

#include <cmath>

#include "locus/error.h"
#include "models/files.h"
#include "models/published.h"

namespace locus::models {
namespace {

// Llama 3.1 8B as converted files describe it.
GgufFile Llama31() {
  GgufFile file;
  file.Str("general.architecture", "llama")
      .U32("llama.block_count", 32)
      .U32("llama.context_length", 131072)
      .U32("llama.embedding_length", 4096)
      .U32("llama.attention.head_count", 32)
      .U32("llama.attention.head_count_kv", 8)
      .F32("llama.rope.freq_base", 500000.0F)
      .U32("llama.rope.dimension_count", 128);
  return file;
}

LayerPosition Read(const GgufFile& file, const ReadOptions& options = {}) {
  const std::string bytes = file.Bytes();
  return FromGguf(AsBytes(bytes), "f", options);
}

TEST(GgufTest, LlamaIsInterleavedHere) {
  const LayerPosition p = Read(Llama31());
  EXPECT_EQ(PositionFacts(p), "rope interleaved 128 of 128 base 500000");
  EXPECT_EQ(CallFacts(p), "32/8 heads, d 128, causal, length 131072");
}

// Converters store llama3 scaling as one divisor a pair: the frequencies are
// then those of the config.
TEST(GgufTest, TableOfDivisors) {
  const LayerPosition config = FromConfig(R"({"model_type": "llama",
      "hidden_size": 4096, "num_attention_heads": 32,
      "num_key_value_heads": 8, "num_hidden_layers": 32,
      "max_position_embeddings": 131072, "rope_theta": 500000.0,
      "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
      "rope_type": "llama3"}})");
  std::vector<float> divisors;
  for (size_t i = 0; i < 64; ++i) {
    const double plain =
        std::pow(500000.0, -2.0 * static_cast<double>(i) / 128.0);
    divisors.push_back(static_cast<float>(plain / config.rotary->theta[i]));
  }
  GgufFile file = Llama31();
  file.Floats("rope_freqs.weight", {64}, divisors);
  const LayerPosition p = Read(file);
  ASSERT_EQ(p.rotary->theta.size(), 64u);
  for (size_t i = 0; i < 64; ++i) {
    // The divisors are float32.
    EXPECT_NEAR(p.rotary->theta[i], config.rotary->theta[i],
                0x1p-23 * config.rotary->theta[i]);
  }
  const Terms terms =
      Build(p.attention)->Lower(Shape::SelfAttention(32, 128, 16)).terms;
  EXPECT_EQ(terms.rotate->theta, p.rotary->theta);
  file = Llama31();
  file.Floats("rope_freqs.weight", {32}, std::vector<float>(32, 1.0F));
  EXPECT_THROW(Read(file), Error);
}

TEST(GgufTest, OtherArchitectures) {
  GgufFile gemma3;
  gemma3.Str("general.architecture", "gemma3")
      .U32("gemma3.block_count", 34)
      .U32("gemma3.context_length", 131072)
      .U32("gemma3.embedding_length", 2560)
      .U32("gemma3.attention.head_count", 8)
      .U32("gemma3.attention.head_count_kv", 4)
      .U32("gemma3.attention.key_length", 256)
      .U32("gemma3.attention.value_length", 256)
      .U32("gemma3.attention.sliding_window", 1024)
      .F32("gemma3.rope.freq_base", 1e6F)
      .Str("gemma3.rope.scaling.type", "linear")
      .F32("gemma3.rope.scaling.factor", 8.0F);
  EXPECT_EQ(PositionFacts(Read(gemma3, {.layer = 5})),
            "rope halves 256 of 256 base 1000000 linear 8");
  EXPECT_EQ(PositionFacts(Read(gemma3, {.layer = 0})),
            "rope halves 256 of 256 base 10000");
  EXPECT_EQ(CallFacts(Read(gemma3, {.layer = 0})),
            "8/4 heads, d 256, causal, length 131072, window 1023+0");

  GgufFile deepseek;
  deepseek.Str("general.architecture", "deepseek2")
      .U32("deepseek2.block_count", 27)
      .U32("deepseek2.context_length", 163840)
      .U32("deepseek2.embedding_length", 2048)
      .U32("deepseek2.attention.head_count", 16)
      .U32("deepseek2.attention.head_count_kv", 1)
      .U32("deepseek2.attention.key_length", 576)
      .U32("deepseek2.attention.value_length", 512)
      .U32("deepseek2.attention.key_length_mla", 192)
      .U32("deepseek2.attention.value_length_mla", 128)
      .F32("deepseek2.rope.freq_base", 10000.0F)
      .U32("deepseek2.rope.dimension_count", 64)
      .Str("deepseek2.rope.scaling.type", "yarn")
      .F32("deepseek2.rope.scaling.factor", 40.0F)
      .U32("deepseek2.rope.scaling.original_context_length", 4096)
      .F32("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707F);
  EXPECT_EQ(PositionFacts(Read(deepseek)),
            "rope interleaved 64 of 192 base 10000 from 128 yarn 40 of 4096");
  EXPECT_EQ(CallFacts(Read(deepseek)),
            "16/16 heads, d 192, causal, length 163840, softmax 1.589626");

  GgufFile phi2;
  phi2.Str("general.architecture", "phi2")
      .U32("phi2.block_count", 32)
      .U32("phi2.context_length", 2048)
      .U32("phi2.embedding_length", 2560)
      .U32("phi2.attention.head_count", 32)
      .U32("phi2.attention.head_count_kv", 32)
      .U32("phi2.rope.dimension_count", 32);
  EXPECT_EQ(PositionFacts(Read(phi2)), "rope halves 32 of 80 base 10000");

  GgufFile bloom;
  bloom.Str("general.architecture", "bloom")
      .U32("bloom.block_count", 24)
      .U32("bloom.context_length", 2048)
      .U32("bloom.embedding_length", 1024)
      .U32("bloom.attention.head_count", 16);
  EXPECT_EQ(PositionFacts(Read(bloom)), "alibi");
}

TEST(GgufTest, UnreadKeysAreNamed) {
  GgufFile file = Llama31();
  file.F32("llama.rope.scaling.strange", 1.0F);
  try {
    Read(file);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "llama.rope.scaling.strange bears on positions, but nothing "
                 "reads it");
  }
  EXPECT_EQ(Read(file, {.lenient = true}).warnings.size(), 1u);
  GgufFile unknown;
  unknown.Str("general.architecture", "rwkv7");
  EXPECT_THROW(Read(unknown), Error);
}

}  // namespace
}  // namespace locus::models
