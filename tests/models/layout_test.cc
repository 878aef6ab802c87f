// Weights converted to the other pair layout give the same logits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "locus/encodings/rope.h"
#include "locus/error.h"
#include "locus/rotary.h"
#include "models/files.h"

namespace locus::models {
namespace {

constexpr auto kPairs = PairLayout::kInterleaved;
constexpr auto kHalves = PairLayout::kHalves;

Tensor Random(std::vector<int64_t> shape, uint32_t seed) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(normal(engine));
  return Tensor::From(std::move(shape), values);
}

// x [n, in] times weight^T [in, heads * dim], as [1, heads, n, dim].
Tensor Project(const Tensor& x, const Tensor& weight, int64_t heads) {
  const int64_t n = x.size(0), dim = weight.size(0) / heads;
  Tensor out = Tensor::Zeros(DType::kF64, {1, heads, n, dim});
  double* y = out.MutableData<double>();
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t d = 0; d < dim; ++d) {
        for (int64_t k = 0; k < x.size(1); ++k) {
          y[(h * n + i) * dim + d] += x.At(i, k) * weight.At(h * dim + d, k);
        }
      }
    }
  }
  return out;
}

// Grouped heads, a part of the head, rotated channels first or last.
TEST(LayoutTest, LogitsStay) {
  const int64_t n = 5, in = 6, q_heads = 4, kv_heads = 2, dim = 12;
  const Tensor x = Random({n, in}, 1);
  const Tensor wq = Random({q_heads * dim, in}, 2);
  const Tensor wk = Random({kv_heads * dim, in}, 3);
  for (RotaryPlace place : {RotaryPlace::kLeading, RotaryPlace::kTrailing}) {
    const RopeOptions options = {.rotary_dim = 8, .place = place};
    const int64_t first = place == RotaryPlace::kLeading ? 0 : dim - 8;
    const auto logit = [&](const Tensor& q_weight, const Tensor& k_weight,
                           PairLayout layout, int64_t h, int64_t i, int64_t j) {
      const Rotation rotation = Rope(dim, layout, options).RotationFor(n);
      const Tensor q = Rotate(Project(x, q_weight, q_heads), rotation);
      const Tensor k = Rotate(Project(x, k_weight, kv_heads), rotation);
      double dot = 0.0;
      for (int64_t d = 0; d < dim; ++d) {
        dot += q.At(0, h, i, d) * k.At(0, h / 2, j, d);
      }
      return dot;
    };
    const auto rows = [&](int64_t heads) {
      return HeadRows{.heads = heads,
                      .head_dim = dim,
                      .rotary_dim = 8,
                      .first_channel = first};
    };
    const Tensor wq2 = ConvertLayout(wq, rows(q_heads), kHalves, kPairs);
    const Tensor wk2 = ConvertLayout(wk, rows(kv_heads), kHalves, kPairs);
    for (int64_t h = 0; h < q_heads; ++h) {
      EXPECT_NEAR(logit(wq, wk, kHalves, h, 4, 1),
                  logit(wq2, wk2, kPairs, h, 4, 1), 1e-12);
    }
    // Not by chance: the weights of one layout are wrong in the other.
    EXPECT_GT(std::abs(logit(wq, wk, kHalves, 0, 4, 1) -
                       logit(wq, wk, kPairs, 0, 4, 1)),
              1e-3);
    // Converting back restores the original.
    EXPECT_EQ(ConvertLayout(wq2, rows(q_heads), kPairs, kHalves).ToVector(),
              wq.ToVector());
  }
}

TEST(LayoutTest, SmallestCase) {
  const auto order = LayoutPermutation(
      {.heads = 1, .head_dim = 6, .rotary_dim = 4, .first_channel = 1}, kHalves,
      kPairs);
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 3, 2, 4, 5}));
  EXPECT_THROW(LayoutPermutation({.heads = 1, .head_dim = 4, .rotary_dim = 6},
                                 kHalves, kPairs),
               Error);
}

// Sizes whose products or sums overflow 64 bits are rejected before anything is
// allocated or written.
TEST(LayoutTest, SizesThatOverflowAreRefused) {
  const Tensor weight = Tensor::Zeros(DType::kF32, {16, 8});
  const auto refusal = [&](const HeadRows& rows) -> std::string {
    try {
      ConvertLayout(weight, rows, kHalves, kPairs);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  const int64_t most = INT64_MAX;
  // (2^60 + 1) * 16 = 16 modulo 2^64: the rows that the weight has.
  EXPECT_EQ(
      refusal(
          {.heads = (int64_t{1} << 60) + 1, .head_dim = 16, .rotary_dim = 16}),
      "1152921504606846977 heads of 16 channels are more than a weight "
      "can have");
  EXPECT_EQ(refusal({.heads = 1,
                     .head_dim = 16,
                     .rotary_dim = 16,
                     .first_channel = most - 1}),
            "1 heads of 16 channels cannot rotate 16 from channel "
            "9223372036854775806");
  EXPECT_EQ(refusal({.heads = 1, .head_dim = 16, .rotary_dim = most - 1}),
            "1 heads of 16 channels cannot rotate 9223372036854775806 from "
            "channel 0");
  // No overflow, but far more than the weight has: nothing of that size is
  // allocated.
  EXPECT_EQ(
      refusal({.heads = int64_t{1} << 40, .head_dim = 16, .rotary_dim = 16}),
      "a projection of 1099511627776 heads of 16 needs 17592186044416 "
      "rows, got f32 [16, 8]");
}

// ------------------------------------------------------------- whole files

const char* const kConfig = R"({"model_type": "qwen3", "hidden_size": 8,
    "head_dim": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
    "num_hidden_layers": 1, "max_position_embeddings": 16})";

class LayoutFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("locus_layout_" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const char* name) { return (folder_ / name).string(); }

  // Rows numbered from 0: q [8, 1], k [4, 1], v [4, 1] and the norms [4].
  std::string Model() {
    std::string data;
    for (int rows : {8, 4, 4, 4, 4}) {
      for (int r = 0; r < rows; ++r) Append(data, static_cast<float>(r));
    }
    return Safetensors(
        R"({"model.layers.0.self_attn.q_proj.weight":
              {"dtype": "F32", "shape": [8, 1], "data_offsets": [0, 32]},
            "model.layers.0.self_attn.k_proj.weight":
              {"dtype": "F32", "shape": [4, 1], "data_offsets": [32, 48]},
            "model.layers.0.self_attn.v_proj.weight":
              {"dtype": "F32", "shape": [4, 1], "data_offsets": [48, 64]},
            "model.layers.0.self_attn.q_norm.weight":
              {"dtype": "F32", "shape": [4], "data_offsets": [64, 80]},
            "model.layers.0.self_attn.k_norm.weight":
              {"dtype": "F32", "shape": [4], "data_offsets": [80, 96]}})",
        data);
  }

  std::filesystem::path folder_;
};

TEST_F(LayoutFileTest, OnlyQueriesAndKeysChange) {
  const std::string model = Model();
  std::ofstream(Path("in"), std::ios::binary) << model;
  const ConvertReport report = ConvertLayoutFile(
      Path("in"), Path("out"), ModelConfig::Parse(kConfig), kPairs);
  EXPECT_EQ(report.layers, 1);
  EXPECT_EQ(report.tensors, 4);
  const std::string made = Slurp(Path("out"));
  ASSERT_EQ(made.size(), model.size());
  const size_t data = model.size() - 96;
  EXPECT_EQ(made.substr(0, data), model.substr(0, data));
  std::vector<float> rows(24);
  std::memcpy(rows.data(), made.data() + data, 96);
  EXPECT_EQ(rows, (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7,  // q, two heads
                                      0, 2, 1, 3,              // k
                                      0, 1, 2, 3,              // v
                                      0, 2, 1, 3, 0, 2, 1, 3}));
  // Converting back in place restores the original bytes.
  ConvertLayoutFile(Path("out"), Path("out"), ModelConfig::Parse(kConfig),
                    kHalves, kPairs);
  EXPECT_EQ(Slurp(Path("out")), model);
}

TEST_F(LayoutFileTest, NothingIsLeftBehindByAFailure) {
  std::ofstream(Path("in"), std::ios::binary) << Model();
  // Already in halves.
  EXPECT_THROW(ConvertLayoutFile(Path("in"), Path("out"),
                                 ModelConfig::Parse(kConfig), kHalves),
               Error);
  // A config with other heads.
  EXPECT_THROW(
      ConvertLayoutFile(
          Path("in"), Path("out"),
          ModelConfig::Parse(R"({"model_type": "qwen3", "hidden_size": 8,
      "head_dim": 4, "num_attention_heads": 4, "num_key_value_heads": 1,
      "num_hidden_layers": 1, "max_position_embeddings": 16})"),
          kPairs),
      Error);
  std::ofstream(Path("fused"), std::ios::binary) << Safetensors(
      R"({"h.0.attn.qkv_proj.weight": {"dtype": "F32", "shape": [1],
          "data_offsets": [0, 4]}})",
      std::string(4, '\0'));
  EXPECT_THROW(ConvertLayoutFile(Path("fused"), Path("out"),
                                 ModelConfig::Parse(kConfig), kPairs),
               Error);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    files += entry.exists() ? 1 : 0;
  }
  EXPECT_EQ(files, 2);
}

}  // namespace
}  // namespace locus::models
