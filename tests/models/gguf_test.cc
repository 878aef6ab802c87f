// GGUF metadata resolves to the positions of the config it was made from.
#include <gtest/gtest.h>

#include <cmath>

#include "locus/error.h"
#include "models/files.h"
#include "models/published.h"

namespace locus::models {
namespace {

// Llama 3.1 8B as described in converted files.
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

// Converters store llama3 scaling as one divisor per pair: the frequencies
// equal those of the config.
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

std::string Refusal(const GgufFile& file) {
  try {
    Read(file);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

// llama.cpp's defaults for absent keys: linear scaling, a gain of 1.
TEST(GgufTest, ScalingAsLlamaCpp) {
  GgufFile file = Llama31();
  file.F32("llama.rope.scaling.factor", 4.0F);
  EXPECT_EQ(PositionFacts(Read(file)),
            "rope interleaved 128 of 128 base 500000 linear 4");
  file = Llama31();
  file.F32("llama.rope.scale_linear", 4.0F);
  EXPECT_EQ(PositionFacts(Read(file)),
            "rope interleaved 128 of 128 base 500000 linear 4");
  // 0 means 1, and with "none" nothing is scaled whatever the factor is.
  file = Llama31();
  file.F32("llama.rope.scaling.factor", 0.0F);
  EXPECT_EQ(PositionFacts(Read(file)),
            "rope interleaved 128 of 128 base 500000");
  file = Llama31();
  file.Str("llama.rope.scaling.type", "none")
      .F32("llama.rope.scaling.factor", 4.0F);
  EXPECT_EQ(Refusal(file),
            "llama.rope.scaling.factor bears on positions, but nothing reads "
            "it");
  file = Llama31();
  file.Str("llama.rope.scaling.type", "dynamic");
  EXPECT_EQ(Refusal(file),
            "llama.rope.scaling.type = 'dynamic' is not a known scaling; known "
            "values: none, linear, yarn, longrope");
  file = Llama31();
  file.U32("llama.rope.scaling.original_context_length", 8192);
  EXPECT_EQ(Refusal(file),
            "llama.rope.scaling.original_context_length bears on positions, "
            "but nothing reads it");
  file = Llama31();
  file.U32("llama.rope.scaling.original_context_length", 131072);
  EXPECT_EQ(Refusal(file), "accepted");
}

// cos and sin are multiplied by attn_factor, with or without a scaling, and in
// addition by YaRN's own 1 + 0.1 ln(factor).
TEST(GgufTest, GainAsLlamaCpp) {
  GgufFile file = Llama31();
  file.F32("llama.rope.scaling.attn_factor", 1.5F);
  LayerPosition p = Read(file);
  EXPECT_EQ(PositionFacts(p),
            "rope interleaved 128 of 128 base 500000 gain 1.5");
  const Shape shape = Shape::SelfAttention(32, 128, 16);
  EXPECT_EQ(Build(p.attention)->Lower(shape).terms.rotate->gain, 1.5);
  file.F32("llama.rope.scaling.factor", 4.0F);
  p = Read(file);
  EXPECT_EQ(PositionFacts(p),
            "rope interleaved 128 of 128 base 500000 linear 4 gain 1.5");
  EXPECT_DOUBLE_EQ(p.rotary->theta[1], std::pow(500000.0, -1.0 / 64.0) / 4.0);
  EXPECT_EQ(Build(p.attention)->Lower(shape).terms.rotate->theta,
            p.rotary->theta);
  file.Str("llama.rope.scaling.type", "yarn")
      .U32("llama.rope.scaling.original_context_length", 32768);
  EXPECT_NEAR(Read(file).rotary->gain, 1.5 * (1.0 + 0.1 * std::log(4.0)),
              1e-12);
  file = Llama31();
  file.F32("llama.rope.scaling.attn_factor", 0.0F);
  EXPECT_EQ(Refusal(file),
            "llama.rope.scaling.attn_factor must be above 0, got 0");
}

// Phi-3-mini-128k and Phi-4-mini as converted: the lists are tensors, the gain
// is attn_factor, there is no scaling.type, and a window of 0 means none.
TEST(GgufTest, LongRopeOfPhi) {
  const auto phi = [](uint32_t rotary) {
    GgufFile file;
    file.Str("general.architecture", "phi3")
        .U32("phi3.block_count", 32)
        .U32("phi3.context_length", 131072)
        .U32("phi3.rope.scaling.original_context_length", 4096)
        .U32("phi3.embedding_length", 3072)
        .U32("phi3.attention.head_count", 24)
        .U32("phi3.attention.head_count_kv", 8)
        .U32("phi3.rope.dimension_count", rotary)
        .F32("phi3.rope.freq_base", 10000.0F)
        .U32("phi3.attention.sliding_window", 0);
    return file;
  };
  GgufFile file = phi(96);
  file.F32("phi3.rope.scaling.attn_factor", 1.190238F)
      .Floats("rope_factors_short.weight", {48}, std::vector<float>(48, 1.0F))
      .Floats("rope_factors_long.weight", {48}, std::vector<float>(48, 2.0F));
  const LayerPosition p = Read(file);
  EXPECT_EQ(PositionFacts(p),
            "rope halves 96 of 128 base 10000 longrope 32 of 4096 gain "
            "1.190238");
  EXPECT_EQ(CallFacts(p), "24/8 heads, d 128, causal, length 131072");
  ASSERT_EQ(p.warnings.size(), 1u);
  EXPECT_NE(p.warnings[0].find("past 4096 tokens"), std::string::npos);
  const auto theta = [&](int64_t length) {
    return Build(p.attention)
        ->Lower(Shape::SelfAttention(24, 128, length))
        .terms.rotate->theta[0];
  };
  EXPECT_EQ(theta(4096), 1.0);
  EXPECT_EQ(theta(4097), 0.5);
  // The converter of Phi-3 writes the length even without a scaling.
  EXPECT_EQ(Refusal(phi(128)),
            "phi3.rope.scaling.original_context_length bears on positions, but "
            "nothing reads it");
  file = phi(128);
  file.Str("phi3.rope.scaling.type", "longrope");
  EXPECT_EQ(Refusal(file),
            "phi3.rope.scaling.type = 'longrope' needs the tensor "
            "rope_factors_long.weight");
  file = phi(128);
  file.Floats("rope_factors_long.weight", {64}, std::vector<float>(64, 2.0F));
  EXPECT_EQ(Refusal(file),
            "of the tensors rope_factors_short.weight and "
            "rope_factors_long.weight there is only one");
}

// Divisors and a linear factor act together; YaRN and divisors do not.
TEST(GgufTest, TableBesideAFactor) {
  GgufFile file = Llama31();
  file.F32("llama.rope.scaling.factor", 4.0F)
      .Floats("rope_freqs.weight", {64}, std::vector<float>(64, 2.0F));
  EXPECT_DOUBLE_EQ(Read(file).rotary->theta[0], 1.0 / 8.0);
  file.Str("llama.rope.scaling.type", "yarn");
  EXPECT_EQ(Refusal(file),
            "rope.scaling.type = 'yarn' and a table of divisors exclude each "
            "other");
}

TEST(GgufTest, Causality) {
  GgufFile file = Llama31();
  file.Bool("llama.attention.causal", false);
  EXPECT_FALSE(Read(file).causal);
}

TEST(GgufTest, UnreadKeysAreNamed) {
  for (const char* key :
       {"llama.attention.sliding_window", "llama.attn_logit_softcapping",
        "llama.rope.freq_base_swa", "llama.rope.scaling.yarn_beta_fast",
        "llama.rope.scaling.yarn_log_multiplier", "llama.rope.scaling.alpha",
        "llama.attention.key_length_swa", "llama.attention.indexer.top_k"}) {
    GgufFile other = Llama31();
    other.F32(key, 7.0F);
    EXPECT_EQ(Refusal(other),
              std::string(key) + " bears on positions, but nothing reads it");
  }
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
