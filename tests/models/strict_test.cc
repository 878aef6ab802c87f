// Errors in a config are reported in one sentence with the key and the value.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "locus/error.h"
#include "locus/models.h"

namespace locus::models {
namespace {

// A LLaMA config with additional fields.
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
            "\"rope_ratio\" is neither used by LLaMA nor known to be harmless "
            "to positions");
  EXPECT_EQ(Refusal(Llama(R"("alibi": true, "sliding_window": 4096)")),
            "\"alibi\", \"sliding_window\" are neither used by LLaMA nor known "
            "to be harmless to positions");
  // Within the scaling, every key counts.
  EXPECT_EQ(
      Refusal(Llama(
          R"("rope_scaling": {"type": "linear", "factor": 2, "beta": 1})")),
      "\"rope_scaling.beta\" is neither used by LLaMA nor known to be "
      "harmless to positions");
  // Absent and null are the same; keys unrelated to positions do not matter.
  EXPECT_EQ(Refusal(Llama(R"("rope_ratio": null, "hidden_act": "silu")")),
            "accepted");
}

// A class may fix the number of heads, so there is no key to name.
TEST(StrictTest, AWidthThatHeadsOfTheClassDoNotDivide) {
  EXPECT_EQ(Refusal(R"({"model_type": "bridgetower_vision_model",
      "hidden_size": 769, "image_size": 288, "num_hidden_layers": 12,
      "patch_size": 16})"),
            "hidden_size = 769 is not a multiple of the model's 12 heads, and "
            "no head_dim is given");
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
            "model_type must be a string, got 7");
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
            "rope_scaling.type = 'cubic' is not a known scaling; known values: "
            "default, linear, dynamic, yarn, longrope, llama3, proportional");
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

// Numbers that Python's json writes beyond JSON: accepted in unrelated fields
// (time_step_limit), and rejected by name in a field that matters.
TEST(StrictTest, NumbersThatAreNotFinite) {
  EXPECT_EQ(Refusal(Llama(R"("time_step_limit": [0.0, Infinity],
                "initializer_range": -Infinity,
                "id2label": {"c": NaN , "d": [NaN]})")),
            "accepted");
  EXPECT_EQ(Refusal(Llama(R"("rope_theta": Infinity)")),
            "rope_theta must be a number, got \"Infinity\"");
  EXPECT_EQ(Refusal(Llama(R"("rope_scaling": {"type": "linear",
                "factor": -Infinity})")),
            "rope_scaling.factor must be a number, got \"-Infinity\"");
  EXPECT_EQ(Refusal(Llama(R"("rope_scaling": {"type": "longrope",
                "short_factor": [NaN], "long_factor": [1]})")),
            "an entry of rope_scaling.short_factor must be a number, got "
            "\"NaN\"");
  EXPECT_EQ(Refusal(Llama(R"("head_dim": NaN)")),
            "head_dim must be a whole number, got \"NaN\"");
  // In strings and as keys they are unchanged.
  EXPECT_EQ(Refusal(Llama(
                R"("id2label": {"a": "NaN, \", Infinity]", "Infinity": 1})")),
            "accepted");
  for (const char* more :
       {"NaN: 1", "\"a\": Infinit", "\"a\": +Infinity", "\"a\": NaNa",
        "\"a\": [Infinity: 1]", "\"a\": --Infinity"}) {
    EXPECT_EQ(Refusal(Llama(more)).find("the config is not valid JSON: "), 0u)
        << more;
  }
}

// Keys that change positions or visibility are read or rejected, never ignored,
// whatever they are called.
TEST(StrictTest, KeysOfPositionWithOtherNames) {
  for (const char* key :
       {"use_bidirectional_attention", "mla_use_nope", "attention_sinks",
        "full_attention_interval", "log_scaling_n_floor", "qk_scale_factor",
        "no_rope_layers", "layer_types", "prefix_lm", "index_topk",
        "attention_causal_mask", "use_rope", "use_mrope"}) {
    EXPECT_EQ(Refusal(Llama(fmt::format("\"{}\": true", key))),
              fmt::format("\"{}\" is neither used by LLaMA nor known to be "
                          "harmless to positions",
                          key));
  }
  EXPECT_EQ(Refusal(Llama(R"("rope_interleaved": true)")),
            "rope_interleaved = true is not what LLaMA does");
  EXPECT_EQ(Refusal(Llama(R"("dual_chunk_attention_config":
                {"chunk_size": 262144, "local_size": 8192})")),
            "dual_chunk_attention_config gives keys positions that differ from "
            "chunk to chunk of the context, which one rotation cannot; null "
            "stands for plain RoPE");
  EXPECT_EQ(Refusal(Llama(R"("dual_chunk_attention_config": null)")),
            "accepted");
}

// In transformers, masks of every decoder honour is_causal.
TEST(StrictTest, Causality) {
  EXPECT_TRUE(FromConfig(Llama(R"("is_causal": true)")).causal);
  EXPECT_TRUE(FromConfig(Llama(R"("is_causal": null)")).causal);
  EXPECT_FALSE(FromConfig(Llama(R"("is_causal": false)")).causal);
  EXPECT_FALSE(FromConfig(Llama(R"("is_causal": false)")).CallOptions().causal);
  EXPECT_EQ(Refusal(Llama(R"("is_causal": 0)")),
            "is_causal must be true or false, got 0");
  const auto bert = [](const char* more) {
    return Refusal(std::string(R"({"model_type": "bert", "hidden_size": 64,
        "num_attention_heads": 4, "num_hidden_layers": 2,
        "max_position_embeddings": 32, )") +
                   more + "}");
  };
  EXPECT_EQ(bert(R"("is_causal": false)"), "accepted");
  EXPECT_EQ(bert(R"("is_causal": true)"),
            "is_causal = true, but bert is an encoder, which some "
            "implementations of its attention then mask and others do not");
  EXPECT_EQ(bert(R"("is_causal": true, "is_decoder": true)"), "accepted");
  EXPECT_EQ(Refusal(R"({"model_type": "bloom", "hidden_size": 64, "n_head": 4,
                "n_layer": 2, "is_causal": false})"),
            "is_causal = false is not read for BLOOM: its ALiBi then favours "
            "later keys the more the farther they are");
  const char* llama4 = R"({"model_type": "llama4_text", "hidden_size": 64,
      "num_attention_heads": 8, "num_hidden_layers": 4,
      "max_position_embeddings": 64, "is_causal": false})";
  EXPECT_EQ(Refusal(llama4),
            "is_causal = false is not read for Llama 4: some implementations "
            "mask its chunks all the same");
  EXPECT_FALSE(FromConfig(llama4, /*layer=*/3).causal);
  const std::string inner = Llama("");
  EXPECT_EQ(Refusal(R"({"is_causal": false, "text_config": )" + inner + "}"),
            "is_causal = false stands beside text_config instead of in it");
  EXPECT_EQ(Refusal(R"({"is_causal": true, "text_config": )" + inner + "}"),
            "accepted");
  // The flag of Gemma's layers differs from that of its mask.
  EXPECT_EQ(Refusal(R"({"model_type": "gemma2", "hidden_size": 64,
                "num_attention_heads": 4, "num_hidden_layers": 2,
                "max_position_embeddings": 32,
                "use_bidirectional_attention": true})"),
            "use_bidirectional_attention = true leaves the mask of Gemma 2 "
            "causal without is_causal = false");
}

// Chunks are a mask by position, which options without the tokens would lose.
TEST(StrictTest, ChunksNeedTheTokensOfACall) {
  const LayerPosition p = FromConfig(R"({"model_type": "llama4_text",
      "hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 4,
      "max_position_embeddings": 64, "attention_chunk_size": 4})");
  try {
    p.CallOptions();
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "layer 0 of Llama 4 attends in chunks of 4 positions, so its "
                 "options need the lengths or the positions of the call's "
                 "tokens");
  }
  using Ids = std::vector<int64_t>;
  const TokenOptions prefill = p.CallOptions({.q_len = 5, .k_len = 6});
  EXPECT_TRUE(prefill.options.causal);
  EXPECT_EQ(prefill.q_segments, (Ids{0, 0, 0, 1, 1}));
  EXPECT_EQ(prefill.k_segments, (Ids{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(prefill.options.q_segments.data(), prefill.q_segments.data());
  const TokenOptions decode = p.CallOptions({.q_len = 1, .k_len = 7});
  EXPECT_TRUE(decode.q_segments.empty());
  EXPECT_EQ(decode.options.window->left, 2);
  EXPECT_EQ(decode.options.window->right, 0);
  // Chunks of positions below 0 end at -1.
  const Ids at = {-5, -4, -1, 0};
  const TokenOptions padded = p.CallOptions(
      {.q_len = 4, .k_len = 4, .q_positions = at, .k_positions = at});
  EXPECT_EQ(padded.q_segments, (Ids{-2, -1, -1, 0}));
  EXPECT_EQ(padded.options.q_positions.data(), at.data());
  EXPECT_THROW(p.CallOptions({.q_len = 3, .k_len = 4, .q_positions = at}),
               Error);
  EXPECT_THROW(p.CallOptions(CallTokens{}), Error);
  // A layer without chunks needs no tokens.
  EXPECT_NO_THROW(FromConfig(Llama("")).CallOptions());
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

// Every field of a valid config, replaced by an impossible value, is rejected
// or leads to a valid result, without crashing.
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
  int refused = 0;
  std::vector<std::string> accepted;
  for (const FamilyInfo& family : Families()) {
    for (std::string_view type : family.model_types) {
      // If the class has a default for everything, its name alone is a model.
      const std::string alone =
          "{\"model_type\": \"" + std::string(type) + "\"}";
      const bool whole = Refusal(alone) == "accepted";
      for (const std::string& field : fields) {
        for (const char* value : values) {
          const std::string json = "{\"model_type\": \"" + std::string(type) +
                                   "\", \"" + field + "\": " + value + "}";
          if (whole) continue;
          if (Refusal(json) == "accepted") {
            accepted.push_back(json);
          } else {
            ++refused;
          }
        }
      }
    }
  }
  // Otherwise a single field is never a model, except where only pad_token_id
  // is required.
  EXPECT_EQ(accepted, (std::vector<std::string>{
                          R"({"model_type": "esm", "pad_token_id": 0})",
                          R"({"model_type": "markuplm", "pad_token_id": 0})"}));
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
