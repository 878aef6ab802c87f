// convert-layout on weights that contain q, k and v together, on models in
// several files, and on what cannot be converted.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "locus/error.h"
#include "models/files.h"

namespace locus::models {
namespace {

namespace fs = std::filesystem;

constexpr auto kPairs = PairLayout::kInterleaved;
constexpr auto kHalves = PairLayout::kHalves;

struct Partner {
  std::string name = {};
  size_t rows = 0;
};

// A file of float32 tensors [rows, 1]: optionally a partner of zeros, then one
// with the numbers 0, 1, 2, ...
std::string Numbered(const std::string& name, size_t rows,
                     const Partner& partner = {}) {
  const auto entry = [](const std::string& tensor, size_t count, size_t begin) {
    return "\"" + tensor + R"(": {"dtype": "F32", "shape": [)" +
           std::to_string(count) + R"(, 1], "data_offsets": [)" +
           std::to_string(begin) + ", " + std::to_string(begin + 4 * count) +
           "]}";
  };
  std::string data(4 * partner.rows, '\0');
  const std::string beside =
      partner.rows == 0 ? "" : entry(partner.name, partner.rows, 0) + ", ";
  const std::string header =
      "{" + beside + entry(name, rows, data.size()) + "}";
  for (size_t r = 0; r < rows; ++r) Append(data, static_cast<float>(r));
  return Safetensors(header, data);
}

class FusedTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::temp_directory_path() / ("locus_fused_" + std::to_string(getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Path(const std::string& name) const {
    return (folder_ / name).string();
  }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  // The numbers of a converted tensor.
  std::vector<float> Convert(const std::string& name, size_t rows,
                             const std::string& config, PairLayout to,
                             const Partner& partner = {}) const {
    ConvertLayoutFile(Write("in", Numbered(name, rows, partner)), Path("out"),
                      ModelConfig::Parse(config), to);
    const std::string bytes = Slurp(Path("out"));
    std::vector<float> numbers(rows);
    std::memcpy(numbers.data(), bytes.data() + bytes.size() - 4 * rows,
                4 * rows);
    return numbers;
  }
  std::string Refusal(const std::string& name, size_t rows,
                      const std::string& config) const {
    try {
      Convert(name, rows, config, kPairs);
    } catch (const Error& e) {
      EXPECT_FALSE(fs::exists(Path("out")));
      return e.what();
    }
    return "converted";
  }

  fs::path folder_;
};

std::string Config(const std::string& type, const std::string& more) {
  return "{\"model_type\": \"" + type +
         R"(", "num_hidden_layers": 1, "max_position_embeddings": 16, )" +
         more + "}";
}

// Heads in the order of the rows. Four channels rotate in all of these: rows 0
// 1 2 3 of q and k become 0 2 1 3, in either direction.
struct Fused {
  const char* type;
  const char* fields;
  const char* tensor;
  const char* heads;  // "qkv"
  int dim;
  int first;  // of the four channels
  PairLayout to;
  Partner partner = {};  // the other side, if it is a separate tensor
};

TEST_F(FusedTest, HeadsAreFoundWhereTheModelHasThem) {
  const Fused cases[] = {
      {"gpt_neox",
       R"("hidden_size": 8, "num_attention_heads": 2, "rotary_pct": 1.0)",
       "gpt_neox.layers.0.attention.query_key_value.weight", "qkvqkv", 4, 0,
       kPairs},
      {"falcon",
       R"("hidden_size": 16, "num_attention_heads": 4, "num_kv_heads": 2,
          "new_decoder_architecture": true)",
       "transformer.h.0.self_attention.query_key_value.weight", "qqkvqqkv", 4,
       0, kPairs},
      {"falcon",
       R"("hidden_size": 12, "num_attention_heads": 3, "multi_query": true)",
       "transformer.h.0.self_attention.query_key_value.weight", "qqqkv", 4, 0,
       kPairs},
      {"falcon",
       R"("hidden_size": 8, "num_attention_heads": 2, "multi_query": false)",
       "transformer.h.0.self_attention.query_key_value.bias", "qkvqkv", 4, 0,
       kPairs},
      {"phi3",
       R"("hidden_size": 16, "num_attention_heads": 4,
          "num_key_value_heads": 2)",
       "model.layers.0.self_attn.qkv_proj.weight", "qqqqkkvv", 4, 0, kPairs},
      {"baichuan", R"("hidden_size": 8, "num_attention_heads": 2)",
       "model.layers.0.self_attn.W_pack.weight", "qqkkvv", 4, 0, kPairs},
      {"internlm2",
       R"("hidden_size": 16, "num_attention_heads": 4,
          "num_key_value_heads": 2)",
       "model.layers.0.attention.wqkv.weight", "qqkvqqkv", 4, 0, kPairs},
      {"persimmon",
       R"("hidden_size": 16, "num_attention_heads": 2,
          "partial_rotary_factor": 0.5)",
       "model.layers.0.self_attn.query_key_value.weight", "qkvqkv", 8, 0,
       kPairs},
      {"modernbert", R"("hidden_size": 8, "num_attention_heads": 2)",
       "model.layers.0.attn.Wqkv.weight", "qqkkvv", 4, 0, kPairs},
      {"deepseek_v3",
       R"("hidden_size": 8, "num_attention_heads": 2, "qk_nope_head_dim": 2,
          "qk_rope_head_dim": 4, "v_head_dim": 4)",
       "model.layers.0.self_attn.q_b_proj.weight",
       "qq",
       6,
       2,
       kHalves,
       {"model.layers.0.self_attn.kv_a_proj_with_mqa.weight", 7}},
      {"deepseek_v3",
       R"("hidden_size": 8, "num_attention_heads": 2, "qk_nope_head_dim": 2,
          "qk_rope_head_dim": 4, "v_head_dim": 4)",
       "model.layers.0.self_attn.kv_a_proj_with_mqa.weight",
       "k",
       7,
       3,
       kHalves,
       {"model.layers.0.self_attn.q_proj.weight", 12}},
      {"llama",
       R"("hidden_size": 8, "num_attention_heads": 2)",
       "layers.0.attention.wk.weight",
       "kk",
       4,
       0,
       kPairs,
       {"layers.0.attention.wq.weight", 8}},
      {"roformer",
       R"("hidden_size": 8, "num_attention_heads": 2)",
       "roformer.encoder.layer.0.attention.self.key.bias",
       "kk",
       4,
       0,
       kHalves,
       {"roformer.encoder.layer.0.attention.self.query.bias", 8}},
      {"hunyuan_v1_dense",
       R"("hidden_size": 8, "num_attention_heads": 2)",
       "model.layers.0.self_attn.query_layernorm.weight",
       "q",
       4,
       0,
       kPairs,
       {"model.layers.0.self_attn.qkv_proj.weight", 24}},
      {"stablelm",
       R"("hidden_size": 32, "num_attention_heads": 2,
          "num_key_value_heads": 2)",
       "model.layers.0.self_attn.q_layernorm.norms.1.weight",
       "q",
       16,
       0,
       kPairs,
       {"model.layers.0.self_attn.qkv_proj.weight", 96}},
  };
  for (const Fused& c : cases) {
    SCOPED_TRACE(std::string(c.type) + " " + c.tensor);
    std::vector<float> expected;
    for (const char* head = c.heads; *head != '\0'; ++head) {
      const auto start = static_cast<float>(expected.size());
      for (int d = 0; d < c.dim; ++d) {
        const int t = d - c.first;
        const int swap = *head == 'v' ? 0 : t == 1 ? 1 : t == 2 ? -1 : 0;
        expected.push_back(start + static_cast<float>(d + swap));
      }
    }
    try {
      EXPECT_EQ(Convert(c.tensor, expected.size(), Config(c.type, c.fields),
                        c.to, c.partner),
                expected);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

TEST_F(FusedTest, OwnSpellingsOfSizes) {
  // Four devices of one head each, q then v then k.
  EXPECT_EQ(
      Convert("transformer.h.0.attn.qkv_proj.weight", 48,
              R"({"model_type": "codegen", "n_embd": 16, "n_head": 4,
                 "n_layer": 1, "n_positions": 16, "rotary_dim": 4})",
              kHalves),
      (std::vector<float>{0,  2,  1,  3,  4,  5,  6,  7,  8,  10, 9,  11,
                          12, 14, 13, 15, 16, 17, 18, 19, 20, 22, 21, 23,
                          24, 26, 25, 27, 28, 29, 30, 31, 32, 34, 33, 35,
                          36, 38, 37, 39, 40, 41, 42, 43, 44, 46, 45, 47}));
  // Two query heads and one key head, half of each rotates; then v.
  EXPECT_EQ(
      Convert(
          "transformer.encoder.layers.0.self_attention.query_key_value.weight",
          32,
          R"({"model_type": "chatglm", "hidden_size": 16,
             "num_attention_heads": 2, "kv_channels": 8, "num_layers": 1,
             "multi_query_attention": true, "multi_query_group_num": 1,
             "seq_length": 16})",
          kHalves),
      (std::vector<float>{0,  2,  1,  3,  4,  5,  6,  7,  8,  10, 9,
                          11, 12, 13, 14, 15, 16, 18, 17, 19, 20, 21,
                          22, 23, 24, 25, 26, 27, 28, 29, 30, 31}));
}

TEST_F(FusedTest, WhatCannotBeConvertedIsNamed) {
  const std::string llama =
      Config("llama", R"("hidden_size": 8, "num_attention_heads": 2)");
  const std::string at = "model.layers.0.self_attn.";
  EXPECT_EQ(Refusal(at + "q_proj.qweight", 8, llama),
            "tensor 'model.layers.0.self_attn.q_proj.qweight' changes q or k, "
            "but is no plain weight or bias: quantised and adapted models "
            "cannot be converted");
  EXPECT_NE(Refusal(at + "k_proj.lora_B.weight", 8, llama).find("adapted"),
            std::string::npos);
  EXPECT_EQ(Refusal("h.0.c_attn.weight", 24, llama),
            "tensor 'h.0.c_attn.weight' holds q and k in an order that is not "
            "known");
  EXPECT_EQ(Refusal("model.layers.7.self_attn.q_proj.weight", 8, llama),
            "tensor 'model.layers.7.self_attn.q_proj.weight' is of layer 7, "
            "and the config has 1 layers");
  EXPECT_EQ(Refusal("self_attn.q_proj.weight", 8, llama),
            "tensor 'self_attn.q_proj.weight' names no layer");
  EXPECT_EQ(Refusal(at + "q_proj.weight", 6, llama),
            "tensor 'model.layers.0.self_attn.q_proj.weight' is [6, 1]; the "
            "config says 2 heads of 4");
  EXPECT_NE(Refusal(at + "qkv_proj.weight", 16, llama)
                .find("the config says 2 q and twice 2 heads of 4"),
            std::string::npos);
  EXPECT_NE(Refusal(at + "q_proj.weight", 8, llama)
                .find("has q but no k that is known"),
            std::string::npos);
  // An image tower is not part of the text model.
  EXPECT_NE(Refusal("vision_tower.layers.0.self_attn.q_proj.weight", 8, llama)
                .find("nothing to convert: no q and k weights of the other "
                      "layout are in it"),
            std::string::npos);
  EXPECT_NE(
      Refusal("h.0.q_proj.weight", 8,
              R"({"model_type": "bloom", "hidden_size": 8, "n_head": 2,
                 "n_layer": 1})")
          .find("nothing to convert: the config has no layer that rotates"),
      std::string::npos);
  Write("in", "GGUF file");
  EXPECT_THROW(ConvertLayoutFile(Path("in"), Path("out"),
                                 ModelConfig::Parse(llama), kPairs),
               Error);
}

TEST_F(FusedTest, SeveralFilesBecomeAFolder) {
  const std::string config =
      Config("llama", R"("hidden_size": 8, "num_attention_heads": 2)");
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  const std::string index = R"({"metadata": {"total_size": 64}, "weight_map": {
      "model.layers.0.self_attn.q_proj.weight": "a.safetensors",
      "model.norm.weight": "b.safetensors"}})";
  const std::string k = "model.layers.0.self_attn.k_proj.weight";
  const std::string a = Numbered(q, 8, {k, 8});
  const std::string b = Numbered("model.norm.weight", 8);
  Write("a.safetensors", a);
  Write("b.safetensors", b);
  const std::string in = Write("model.safetensors.index.json", index);
  const ConvertReport report =
      ConvertLayoutFile(in, Path("made"), ModelConfig::Parse(config), kPairs);
  EXPECT_EQ(report.files, 2);
  EXPECT_EQ(report.tensors, 2);
  EXPECT_EQ(report.layers, 1);
  EXPECT_EQ(Slurp(Path("made/model.safetensors.index.json")), index);
  EXPECT_EQ(Slurp(Path("made/b.safetensors")), b);
  ConvertLayoutFile(Path("a.safetensors"), Path("alone"),
                    ModelConfig::Parse(config), kPairs);
  EXPECT_EQ(Slurp(Path("made/a.safetensors")), Slurp(Path("alone")));
  EXPECT_NE(Slurp(Path("alone")), a);
  // Now the folder exists; and the files of the index must exist.
  EXPECT_THROW(
      ConvertLayoutFile(in, Path("made"), ModelConfig::Parse(config), kPairs),
      Error);
  Write("b.safetensors", a);
  try {
    ConvertLayoutFile(in, Path("other"), ModelConfig::Parse(config), kPairs);
    ADD_FAILURE() << "a file without its tensor passed";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("which does not have it"),
              std::string::npos)
        << e.what();
  }
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(name.find(".part"), std::string::npos) << name;
    EXPECT_NE(name, "other");
  }
}

}  // namespace
}  // namespace locus::models
