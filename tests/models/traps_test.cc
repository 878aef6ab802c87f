// Common mistakes with models of 2025 and 2026, one test each: facts that no
// config says, at positions above 0 and past the trained length.
#include <gtest/gtest.h>

#include <cmath>

#include "models/published.h"

namespace locus::models {
namespace {

// Terms of a layer for causal self-attention over positions 0 .. length - 1.
Terms TermsOf(const LayerPosition& p, int64_t length) {
  return p.attention.encoding
      ->Lower(Shape::SelfAttention(p.q_heads, p.head_dim, length, p.causal))
      .terms;
}

// The angle of a pair at a position, from its cosine and sine.
double Angle(const LayerPosition& p, int64_t position, size_t pair) {
  const Rotation rotation = *TermsOf(p, position + 1).rotate;
  std::vector<double> cos(static_cast<size_t>(rotation.NumPairs()));
  std::vector<double> sin(cos.size());
  rotation.CosSin(position, cos.data(), sin.data());
  return std::atan2(sin[pair], cos[pair]);
}

LayerPosition Layer(const std::string& json, int64_t layer = 0) {
  return FromConfig(json, layer);
}

// What most small configs have in common: 4 heads of 32, 12 layers, 64
// positions.
std::string Small(const std::string& type, const std::string& rest = "") {
  return R"({"model_type": ")" + type +
         R"(", "hidden_size": 128, "num_attention_heads": 4, )" +
         R"("num_key_value_heads": 4, "head_dim": 32, "num_hidden_layers": 12,)" +
         R"( "max_position_embeddings": 64)" + (rest.empty() ? "" : ", ") +
         rest + "}";
}

constexpr int64_t kPast = 200;  // past every trained length here

TEST(TrapsTest, PairLayoutFollowsTheModelType) {
  const std::string rest = R"("rope_theta": 10000.0)";
  EXPECT_EQ(Layer(Small("ernie4_5", rest)).rotary->layout,
            PairLayout::kInterleaved);
  EXPECT_EQ(Layer(Small("llama", rest)).rotary->layout, PairLayout::kHalves);
  EXPECT_EQ(Layer(Small("seed_oss", rest)).rotary->layout, PairLayout::kHalves);
  EXPECT_EQ(Layer(Small("cohere2_moe", rest)).rotary->layout,
            PairLayout::kInterleaved);
}

TEST(TrapsTest, OneInNoRopeLayersMeansRope) {
  const std::string rest =
      R"("no_rope_layers": [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0])";
  EXPECT_TRUE(Layer(Small("smollm3", rest), 0).rotary);
  EXPECT_FALSE(Layer(Small("smollm3", rest), 1).rotary);
}

TEST(TrapsTest, NanochatRotatesBackwards) {
  const LayerPosition back = Layer(Small("nanochat"));
  const LayerPosition forth = Layer(Small("llama"));
  for (int64_t m : {int64_t{1}, int64_t{5}, kPast}) {
    EXPECT_NEAR(Angle(back, m, 3), -Angle(forth, m, 3), 1e-12) << m;
  }
}

TEST(TrapsTest, BambaRotatesHalfOfTheHead) {
  std::string types;
  for (int i = 0; i < 12; ++i) {
    types += std::string(i == 0 ? "" : ", ") + R"("attention")";
  }
  const LayerPosition p =
      Layer(Small("bamba", R"("layer_types": [)" + types + "]"));
  EXPECT_EQ(p.rotary->rotary_dim, 16);
}

TEST(TrapsTest, MiMoTruncatesTheShare) {
  const LayerPosition p = Layer(R"({"model_type": "mimo_v2_flash",
      "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4,
      "head_dim": 192, "v_head_dim": 128, "num_hidden_layers": 1,
      "max_position_embeddings": 64, "layer_types": ["full_attention"],
      "rope_theta": 10000.0, "partial_rotary_factor": 0.334})");
  EXPECT_EQ(p.rotary->rotary_dim, 64);
  EXPECT_EQ(p.value_dim, 128);
}

TEST(TrapsTest, BeamNullMeansNoRotationButAFactor) {
  const LayerPosition full = Layer(Small("beam"), 5);
  EXPECT_FALSE(full.rotary);
  const Scale scale = TermsOf(full, 4 * kPast).scale;
  for (int64_t m : {int64_t{0}, int64_t{1}, kPast, 4 * kPast - 1}) {
    EXPECT_NEAR(scale.At(0, m),
                std::pow(1.0 + static_cast<double>(m + 1) / 2048.0, 0.1) /
                    std::sqrt(32.0),
                1e-14)
        << m;
  }
  // The last layer is full whatever the period is.
  EXPECT_FALSE(Layer(Small("beam"), 11).window);
  EXPECT_EQ(Layer(Small("beam"), 0).window->left, 511);
}

TEST(TrapsTest, DeepSeekV4HasTwoRotations) {
  const std::string config = R"({"model_type": "deepseek_v4",
      "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 1,
      "head_dim": 512, "num_hidden_layers": 3, "sliding_window": 128,
      "max_position_embeddings": 1048576, "qk_rope_head_dim": 64,
      "rope_theta": 10000, "compress_rope_theta": 160000,
      "compress_ratios": [0, 4, 128], "rope_scaling": {"type": "yarn",
      "factor": 16, "original_max_position_embeddings": 65536,
      "beta_fast": 32, "beta_slow": 1}})";
  const LayerPosition main = Layer(config, 0), compressed = Layer(config, 1);
  EXPECT_EQ(PositionFacts(main),
            "rope interleaved 64 of 512 base 10000 from 448");
  EXPECT_EQ(compressed.rotary->base, 160000.0);
  EXPECT_EQ(compressed.rotary->scaling, "yarn");
  EXPECT_EQ(compressed.rotary->gain, 1.0);  // cos and sin are unchanged
  EXPECT_FALSE(main.sinks.empty());
  const Terms terms = TermsOf(main, 8);
  ASSERT_TRUE(terms.rotate_values);
  EXPECT_TRUE(terms.rotate_values->relative);
}

TEST(TrapsTest, InklingScalesByTheHeadItself) {
  const LayerPosition p = Layer(R"({"model_type": "inkling_text",
      "hidden_size": 128, "num_hidden_layers": 6, "head_dim": 64,
      "num_attention_heads": 2, "num_key_value_heads": 1, "rel_extent": 10,
      "sliding_window_size": 4, "d_rel": 3})",
                                5);
  EXPECT_EQ(p.scale, 1.0 / 64.0);
  EXPECT_EQ(p.attention.tensors.at(0).shape, (std::vector<int64_t>{3, 10}));
  EXPECT_FALSE(p.window);
}

TEST(TrapsTest, ErnieVlDealsHeightAndWidthAlternately) {
  const LayerPosition p = Layer(R"({"model_type": "ernie4_5_vl_moe_text",
      "hidden_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4,
      "head_dim": 128, "num_hidden_layers": 1, "max_position_embeddings": 64,
      "rope_theta": 10000.0})");
  const Rotation rotation = *TermsOf(p, kPast).rotate;
  EXPECT_EQ(rotation.axis[0], 1);
  EXPECT_EQ(rotation.axis[1], 2);
  EXPECT_EQ(rotation.axis[43], 2);
  EXPECT_EQ(rotation.axis[44], 0);
  EXPECT_EQ(rotation.layout, PairLayout::kInterleaved);
}

TEST(TrapsTest, ExaoneFullLayersRotateUnlessThereIsAWindow) {
  const std::string windows = R"("sliding_window": 16,
      "layer_types": ["sliding_attention", "full_attention",
      "sliding_attention", "full_attention", "sliding_attention",
      "full_attention", "sliding_attention", "full_attention",
      "sliding_attention", "full_attention", "sliding_attention",
      "full_attention"])";
  EXPECT_TRUE(Layer(Small("exaone4", windows), 0).rotary);
  EXPECT_FALSE(Layer(Small("exaone4", windows), 1).rotary);
  std::string all_full = R"("sliding_window": null, "layer_types": [)";
  for (int n = 0; n < 12; ++n) {
    all_full += n == 0 ? R"("full_attention")" : R"(, "full_attention")";
  }
  EXPECT_TRUE(Layer(Small("exaone4", all_full + "]"), 1).rotary);
}

TEST(TrapsTest, KimiLinearNeverRotates) {
  const std::string type = R"("qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
      "v_head_dim": 16, "layer_types": ["full_attention", "linear_attention",
      "linear_attention", "linear_attention", "full_attention",
      "linear_attention", "linear_attention", "linear_attention",
      "full_attention", "linear_attention", "linear_attention",
      "linear_attention"])";
  const LayerPosition p = Layer(Small("kimi_linear", type), 0);
  EXPECT_TRUE(p.attends);
  EXPECT_FALSE(p.rotary);
  EXPECT_FALSE(Layer(Small("kimi_linear", type), 1).attends);
}

TEST(TrapsTest, StateSpacesAreNoPosition) {
  const LayerPosition p = Layer(R"({"model_type": "mamba2", "num_heads": 8,
      "head_dim": 64, "hidden_size": 128, "num_hidden_layers": 4,
      "time_step_limit": [0.0, Infinity]})",
                                3);
  EXPECT_FALSE(p.attends);
  EXPECT_THROW(p.CallOptions(), std::exception);
}

TEST(TrapsTest, Gemma4LastLayerIsFull) {
  const std::string rest = R"("sliding_window": 16, "global_head_dim": 64)";
  for (int64_t layer : {5, 11}) {
    EXPECT_EQ(Layer(Small("gemma4_text", rest), layer).layer_type,
              "full_attention")
        << layer;
  }
  EXPECT_EQ(Layer(Small("gemma4_text", rest), 0).scale, 1.0);
}

TEST(TrapsTest, AnUnknownKeyIsAnError) {
  EXPECT_THROW(Layer(Small("llama", R"("rope_magic": 3)")), std::exception);
  const LayerPosition p = FromConfig(Small("llama", R"("rope_magic": 3)"),
                                     ReadOptions{.lenient = true});
  ASSERT_FALSE(p.warnings.empty());
  EXPECT_NE(p.warnings.back().find("rope_magic"), std::string::npos);
}

}  // namespace
}  // namespace locus::models
