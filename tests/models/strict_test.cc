// What is wrong in a config is said in one sentence with the key and the value.
#include <gtest/gtest.h>

#include <string>

#include "locus/error.h"
#include "locus/models.h"

namespace locus::models {
namespace {

// A LLaMA config with more fields.
std::string Llama(const std::string& more) {
  return R"({"model_type": "llama", "hidden_size": 4096,
      "num_attention_heads": 32, "num_key_value_heads": 8,
      "num_hidden_layers": 32, "max_position_embeddings": 8192)" +
         (more.empty() ? "" : ", " + more) + "}";
}

std::string Refusal(const std::string& json, const ReadOptions& options = {}) {
  try {
    FromConfig(json, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(StrictTest, UnusedPositionKeysAreNamed) {
  EXPECT_EQ(Refusal(Llama(R"("rope_ratio": 4)")),
            "\"rope_ratio\" bears on positions, but nothing of LLaMA uses it");
  EXPECT_EQ(Refusal(Llama(R"("alibi": true, "sliding_window": 4096)")),
            "\"alibi\", \"sliding_window\" bear on positions, but nothing of "
            "LLaMA uses them");
  // Inside of the scaling every key counts.
  EXPECT_EQ(
      Refusal(Llama(
          R"("rope_scaling": {"type": "linear", "factor": 2, "beta": 1})")),
      "\"rope_scaling.beta\" bears on positions, but nothing of LLaMA "
      "uses it");
  // Absent and null are the same; keys about other things do not matter.
  EXPECT_EQ(Refusal(Llama(R"("rope_ratio": null, "hidden_act": "silu")")),
            "accepted");
}

TEST(StrictTest, LenientWarnsInstead) {
  const LayerPosition p =
      FromConfig(Llama(R"("rope_ratio": 4)"), ReadOptions{.lenient = true});
  ASSERT_EQ(p.warnings.size(), 1u);
  EXPECT_NE(p.warnings[0].find("rope_ratio"), std::string::npos);
}

TEST(StrictTest, UnknownTypes) {
  EXPECT_NE(Refusal(R"({"model_type": "retnet"})")
                .find("model_type 'retnet' is not known; it needs a reader"),
            std::string::npos);
  EXPECT_EQ(Refusal(R"({"hidden_size": 1})"),
            "model_type is missing: it says which model's code is meant");
  EXPECT_EQ(Refusal(R"({"model_type": 7})"),
            "model_type must be a text, got 7");
}

TEST(StrictTest, WrongTypesAndRanges) {
  const auto with = [](const char* field) {
    return Refusal(std::string(R"({"model_type": "llama", )") + field + "}");
  };
  EXPECT_EQ(with(R"("hidden_size": "4096")"),
            "hidden_size must be a whole number, got \"4096\"");
  EXPECT_EQ(with(R"("hidden_size": 4096.5)"),
            "hidden_size must be a whole number, got 4096.5");
  EXPECT_EQ(with(R"("hidden_size": -1)"),
            "hidden_size must lie in 1 .. 1048576, got -1");
  EXPECT_EQ(with(R"("hidden_size": 18446744073709551615)"),
            "hidden_size must lie in 1 .. 1048576, got 18446744073709551615");
  EXPECT_EQ(with(R"("hidden_size": [4096])"),
            "hidden_size must be a whole number, got a list of 1 entry");
  EXPECT_EQ(with(R"("num_attention_heads": 32)"), "hidden_size is missing");
  EXPECT_EQ(Refusal(Llama(R"("rope_theta": -1)")),
            "rope_theta must lie in 1.0001 .. 1e+18, got -1");
  EXPECT_EQ(Refusal(Llama(R"("rope_theta": true)")),
            "rope_theta must be a number, got true");
  EXPECT_EQ(Refusal(Llama(R"("head_dim": 0)")),
            "head_dim must lie in 1 .. 1048576, got 0");
  EXPECT_EQ(Refusal(Llama(R"("head_dim": 127)")),
            "127 of 127 channels would rotate; they must be even, at least 2 "
            "and at most the head");
  EXPECT_EQ(Refusal(Llama(R"("rope_scaling": "linear")")),
            "rope_scaling must be an object, got \"linear\"");
  EXPECT_EQ(Refusal(Llama(R"("rope_scaling": {"type": "cubic"})")),
            "rope_scaling.type = 'cubic' is not a known scaling; known are "
            "default, linear, dynamic, yarn, longrope, llama3");
  EXPECT_EQ(Refusal(Llama(R"("rope_scaling": {"type": "linear"})")),
            "rope_scaling.factor is missing");
  EXPECT_EQ(Refusal(Llama(R"("rope_scaling": {"type": "linear",
                             "factor": 0.5})")),
            "rope_scaling.factor must be at least 1, got 0.5");
  EXPECT_EQ(Refusal(Llama(R"("rope_scaling": {"type": "longrope",
                "short_factor": [1, 2], "long_factor": [1, 2]})")),
            "rope_scaling.short_factor must have 64 entries, one a pair, got "
            "2");
  EXPECT_EQ(Refusal(Llama(""), ReadOptions{.layer = 32}),
            "llama has layers 0 .. 31, got layer 32");
  EXPECT_EQ(Refusal(Llama(""), ReadOptions{.layer = -1}),
            "llama has layers 0 .. 31, got layer -1");
  EXPECT_EQ(Refusal(Llama(""), ReadOptions{.part = "encoder"}),
            "llama has no part 'encoder'");
}

TEST(StrictTest, Contradictions) {
  EXPECT_EQ(Refusal(Llama(R"("rope_theta": 10000.0, "rope_parameters":
                {"rope_type": "default", "rope_theta": 500000.0})")),
            "rope_parameters.rope_theta = 500000 contradicts rope_theta = "
            "10000");
  EXPECT_EQ(Refusal(Llama(R"("rope_scaling": {"type": "linear", "factor": 2},
                "rope_parameters": {"type": "linear", "factor": 4})")),
            "rope_scaling and rope_parameters are both there and differ");
  EXPECT_EQ(Refusal(Llama(R"("rope_scaling": {"type": "linear",
                "rope_type": "yarn", "factor": 2})")),
            "rope_scaling.rope_type = 'yarn' contradicts rope_scaling.type = "
            "'linear'");
  EXPECT_EQ(Refusal(R"({"model_type": "llama", "hidden_size": 4096,
                "num_attention_heads": 32, "num_key_value_heads": 5,
                "num_hidden_layers": 1, "max_position_embeddings": 9})"),
            "32 query heads are not a multiple of 5 key heads");
  // The same value twice is no contradiction.
  EXPECT_EQ(Refusal(Llama(R"("rope_theta": 500000, "rope_parameters":
                {"rope_type": "default", "rope_theta": 500000.0})")),
            "accepted");
}

TEST(StrictTest, FactorsThatDoNotMatchTheLengthsAreWarnedOf) {
  const LayerPosition p = FromConfig(Llama(R"("rope_scaling": {"type": "yarn",
      "factor": 4, "original_max_position_embeddings": 4096})"));
  ASSERT_EQ(p.warnings.size(), 1u);
  EXPECT_EQ(p.warnings[0],
            "rope_scaling.factor = 4 is not the ratio of the lengths, 8192 / "
            "4096 = 2");
}

TEST(StrictTest, TablesThatChangeWithLengthAreWarnedOf) {
  const LayerPosition p =
      FromConfig(Llama(R"("rope_scaling": {"type": "dynamic", "factor": 2})"));
  ASSERT_EQ(p.warnings.size(), 1u);
  EXPECT_TRUE(p.rotary->changes_with_length);
}

TEST(StrictTest, HostileText) {
  EXPECT_EQ(Refusal(Llama(R"("hidden_size": 8192)")),
            "the config has the key \"hidden_size\" twice in one object");
  EXPECT_EQ(Refusal("[1, 2]"),
            "the config must be a JSON object, got a list of 2 entries");
  EXPECT_EQ(Refusal(std::string(100000, '[')),
            "the config is nested deeper than 32 levels");
  for (const char* text :
       {"", "{", "{\"a\": }", "{\"a\": 1e999}", "{\"\xff\": 1}",
        "{\"a\": \"\xc3\x28\"}", "{\"a\": 1} trailing", "nul"}) {
    const std::string said = Refusal(text);
    EXPECT_EQ(said.find("the config is not valid JSON: "), 0u) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    EXPECT_LT(said.size(), 300u);
  }
}

// Every field of a config that works, replaced by what cannot be right, is
// refused or changes nothing silently: an error, or a valid result.
TEST(StrictTest, ReplacedFieldsNeverCrash) {
  const char* values[] = {
      "null",  "-1",   "0",     "1e308", "9223372036854775807",
      "\"x\"", "[]",   "{}",    "true",  "[[1]]",
      "0.5",   "[-1]", "[\"\"]"};
  const std::string fields[] = {"hidden_size",
                                "num_attention_heads",
                                "num_key_value_heads",
                                "head_dim",
                                "num_hidden_layers",
                                "max_position_embeddings",
                                "rope_theta",
                                "rope_scaling",
                                "rope_parameters",
                                "layer_types",
                                "sliding_window",
                                "no_rope_layers",
                                "attention_chunk_size",
                                "relative_attention",
                                "pos_att_type",
                                "position_buckets",
                                "mrope_section",
                                "image_size",
                                "patch_size",
                                "depths",
                                "num_heads",
                                "d_kv",
                                "d_model",
                                "pad_token_id",
                                "attn_config",
                                "max_relative_positions",
                                "qk_rope_head_dim"};
  int refused = 0, accepted = 0;
  for (const FamilyInfo& family : Families()) {
    for (std::string_view type : family.model_types) {
      for (const std::string& field : fields) {
        for (const char* value : values) {
          const std::string json = "{\"model_type\": \"" + std::string(type) +
                                   "\", \"" + field + "\": " + value + "}";
          (Refusal(json) == "accepted" ? accepted : refused) += 1;
        }
      }
    }
  }
  // One field alone is never a model.
  EXPECT_EQ(accepted, 0);
  EXPECT_GT(refused, 10000);
}

TEST(StrictTest, FamiliesAreDistinct) {
  std::vector<std::string_view> seen;
  for (const FamilyInfo& family : Families()) {
    EXPECT_FALSE(family.scheme.empty()) << family.name;
    for (std::string_view type : family.model_types) {
      EXPECT_EQ(std::count(seen.begin(), seen.end(), type), 0) << type;
      seen.push_back(type);
    }
  }
  EXPECT_GT(seen.size(), 60u);
}

}  // namespace
}  // namespace locus::models
