// Buckets, slopes, sinusoids and tables as in transformers' own code.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>

#include "locus/encodings/rope2d.h"
#include "locus/models.h"
#include "locus/reference.h"
#include "locus/rotary.h"
#include "models/golden.h"

namespace locus::models {
namespace {

std::vector<GoldenJson> Named(const std::string& file, const char* name) {
  std::vector<GoldenJson> found;
  for (const GoldenJson& c : GoldenCases(file)) {
    if (c["name"] == name) found.push_back(c);
  }
  EXPECT_FALSE(found.empty()) << name;
  return found;
}

void ExpectBuckets(const GoldenJson& c, const BucketMap& map) {
  const auto offsets = c["offsets"].get<std::vector<int64_t>>();
  for (size_t i = 0; i < offsets.size(); ++i) {
    EXPECT_EQ(map.OfOffset(offsets[i]), c["bucket"][i].get<int>())
        << offsets[i];
  }
}

TEST(GoldenTablesTest, T5Buckets) {
  for (const GoldenJson& c : Named("tables.json", "t5")) {
    ExpectBuckets(
        c, BucketMap::T5(c["buckets"], c["max_distance"], c["bidirectional"]));
  }
}

TEST(GoldenTablesTest, DebertaBuckets) {
  for (const GoldenJson& c : Named("tables.json", "deberta-v2")) {
    ExpectBuckets(
        c, BucketMap::Deberta(c["buckets"], c["max_relative_positions"]));
  }
}

TEST(GoldenTablesTest, AlibiSlopes) {
  for (const GoldenJson& c : Named("tables.json", "alibi")) {
    const auto type = c["model_type"].get<std::string>();
    const auto heads = c["heads"].get<int64_t>();
    SCOPED_TRACE(type + " " + std::to_string(heads));
    GoldenJson config = {{"model_type", type}};
    if (type == "mpt") {
      config.update({{"d_model", heads * 4},
                     {"n_heads", heads},
                     {"n_layers", 1},
                     {"max_seq_len", 64}});
    } else if (type == "bloom") {
      config.update(
          {{"hidden_size", heads * 4}, {"n_head", heads}, {"n_layer", 1}});
    } else {
      config.update({{"hidden_size", heads * 4},
                     {"num_attention_heads", heads},
                     {"num_hidden_layers", 1},
                     {"alibi", true},
                     {"multi_query", false}});
    }
    const LayerPosition p = FromConfig(config.dump());
    const Terms terms =
        Build(p.attention)->Lower(Shape::SelfAttention(heads, 4, 8)).terms;
    const auto& ramp = std::get<BiasRamp>(*terms.bias);
    // Falcon's bias is scaled with the logits.
    const double scale = type == "falcon" ? p.scale : 1.0;
    for (size_t h = 0; h < ramp.past.size(); ++h) {
      const double slope = c["slopes"][h].get<double>();
      EXPECT_NEAR(ramp.past[h], scale * slope, 2e-6 * slope);
    }
  }
}

TEST(GoldenTablesTest, Sinusoids) {
  auto cases = Named("tables.json", "sinusoidal");
  for (GoldenJson& c : Named("formulas.json", "sinusoidal")) {
    cases.push_back(std::move(c));
  }
  for (const GoldenJson& c : cases) {
    const LayerPosition p =
        FromConfig(c["config"].dump(), ReadOptions{.part = "encoder"});
    SCOPED_TRACE(p.model_type);
    const auto positions = c["positions"].get<std::vector<int64_t>>();
    const Tensor rows = Build(p.input)->Embed(positions);
    const Tensor expected = GoldenTensor(c["rows"]);
    for (int64_t i = 0; i < rows.size(0); ++i) {
      // The rounding error of the table's float32 angles grows with the
      // position.
      const double bound =
          (6.0 * static_cast<double>(positions[static_cast<size_t>(i)]) + 8.0) *
          0x1p-24;
      for (int64_t d = 0; d < rows.size(1); ++d) {
        EXPECT_NEAR(rows.At(i, d), expected.At(i, d), bound);
      }
    }
  }
}

TEST(GoldenTablesTest, VitResizes) {
  for (const GoldenJson& c : Named("tables.json", "vit")) {
    const LayerPosition p = FromConfig(
        c["config"].dump(),
        ReadOptions{.grid_height = c["height"], .grid_width = c["width"]});
    const Tensor table = GoldenTensor(c["table"], 1);
    const auto encoding = Build(p.input, [&](const NeededTensor& need) {
      EXPECT_EQ(need.shape, table.shape());
      return table;
    });
    const Tensor expected = GoldenTensor(c["rows"]);
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < expected.size(0); ++i) positions.push_back(i);
    const Tensor rows = encoding->Embed(positions);
    for (int64_t i = 0; i < expected.size(0); ++i) {
      for (int64_t d = 0; d < expected.size(1); ++d) {
        // Sixteen products of order one, in float32.
        EXPECT_NEAR(rows.At(i, d), expected.At(i, d), 32 * 0x1p-24);
      }
    }
  }
}

// Rows have the even-numbered frequencies and columns the odd-numbered ones.
TEST(GoldenTablesTest, PixtralRotation) {
  for (const GoldenJson& c : Named("tables.json", "pixtral")) {
    const Tensor q = GoldenTensor(c["q"], 2), k = GoldenTensor(c["k"], 2);
    const auto positions = c["positions"].get<std::vector<int64_t>>();
    const int64_t dim = q.size(3), tokens = q.size(2);
    const Rope2D rope(dim, PairLayout::kHalves, c["width"], c["base"],
                      AxialFrequencies::kAlternating);
    const Rotation rotation =
        *rope.Lower(Shape::SelfAttention(1, dim, 128)).terms.rotate;
    const Tensor turned_q = Rotate(q, rotation, positions);
    const Tensor turned_k = Rotate(k, rotation, positions);
    const Tensor logits = GoldenTensor(c["logits"]);
    for (int64_t i = 0; i < tokens; ++i) {
      for (int64_t j = 0; j < tokens; ++j) {
        double dot = 0.0, size = 0.0;
        for (int64_t d = 0; d < dim; ++d) {
          const double term = turned_q.At(0, 0, i, d) * turned_k.At(0, 0, j, d);
          dot += term;
          size += std::abs(term);
        }
        // Angles below 10, and sums, in float32.
        EXPECT_NEAR(dot, logits.At(i, j), 16 * 0x1p-24 * size)
            << positions[static_cast<size_t>(i)] << ", "
            << positions[static_cast<size_t>(j)];
      }
    }
  }
}

// Attention's probabilities, obtained with the identity as values.
void ExpectProbabilities(const GoldenJson& c, const TensorLookup& find) {
  const Tensor q = GoldenTensor(c["q"], 1), k = GoldenTensor(c["k"], 1);
  const int64_t length = q.size(2), heads = q.size(1), kv_heads = k.size(1);
  const LayerPosition p =
      FromConfig(c["config"].dump(), ReadOptions{.layer = c.value("layer", 0),
                                                 .part = c.value("part", ""),
                                                 .length = length});
  Tensor values = Tensor::Zeros(DType::kF64, {1, kv_heads, length, length});
  for (int64_t i = 0; i < kv_heads * length; ++i) {
    values.MutableData<double>()[i * length + i % length] = 1.0;
  }
  const auto encoding = Build(p.attention, find);
  const Tensor prob =
      reference::Attention(q, k, values, *encoding, p.CallOptions()).out;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t j = 0; j < length; ++j) {
        EXPECT_NEAR(prob.At(0, h, i, j),
                    c["prob"][static_cast<size_t>(h)][static_cast<size_t>(i)]
                     [static_cast<size_t>(j)]
                         .get<double>(),
                    2e-6)
            << h << " " << i << " " << j;
      }
    }
  }
}

TEST(GoldenTablesTest, TransformerXlLayer) {
  for (const GoldenJson& c : Named("legacy.json", "transfo-xl")) {
    ExpectProbabilities(c, [&](const NeededTensor& need) {
      const char* key = need.name.ends_with("r_net.weight") ? "r_net"
                        : need.name.ends_with("r_w_bias")   ? "u"
                                                            : "v";
      const Tensor tensor = GoldenTensor(c[key]);
      EXPECT_EQ(tensor.shape(), need.shape) << need.name;
      return tensor;
    });
  }
}

TEST(GoldenTablesTest, BertRelativeKeys) {
  const auto cases = Named("legacy.json", "bert");
  EXPECT_EQ(cases.size(), 2u);
  for (const GoldenJson& c : cases) {
    ExpectProbabilities(c, [&](const NeededTensor& need) {
      const Tensor tensor = GoldenTensor(c["table"]);
      EXPECT_EQ(tensor.shape(), need.shape) << need.name;
      return tensor;
    });
  }
}

// The tensors of a case, by the names of published checkpoints; if the release
// uses other names, the case has only this tensor.
TensorLookup TensorsOf(const GoldenJson& c) {
  return [&c](const NeededTensor& need) {
    for (const auto& [name, values] : c["tensors"].items()) {
      if (need.name.ends_with(name) || c["tensors"].size() == 1) {
        const Tensor tensor = GoldenTensor(values);
        EXPECT_EQ(tensor.shape(), need.shape) << need.name;
        return tensor;
      }
    }
    throw Error("the case lacks " + need.name);
  };
}

// Every layer of `file`; the second layer unless a case says otherwise.
std::vector<GoldenJson> Layers(const std::string& file) {
  std::vector<GoldenJson> cases = Named(file, "layer");
  for (GoldenJson& c : cases) {
    if (!c.contains("layer")) c["layer"] = 1;
  }
  return cases;
}

TEST(GoldenTablesTest, LayersWithTables) {
  const auto cases = Layers("layers.json");
  EXPECT_EQ(cases.size(), 17u);
  for (const GoldenJson& c : cases) {
    SCOPED_TRACE(c["config"]["model_type"].get<std::string>());
    ExpectProbabilities(c, TensorsOf(c));
  }
}

TEST(GoldenTablesTest, LayersByPublishedFormulas) {
  const auto cases = Layers("formulas.json");
  EXPECT_EQ(cases.size(), 2u);
  for (const GoldenJson& c : cases) {
    SCOPED_TRACE(c["config"]["model_type"].get<std::string>());
    ExpectProbabilities(c, {});
  }
}

TEST(GoldenTablesTest, LayersWithPositionsInTheInput) {
  const auto cases = Layers("inputs.json");
  EXPECT_EQ(cases.size(), 29u);
  int with_rows = 0;
  for (const GoldenJson& c : cases) {
    SCOPED_TRACE(c["config"]["model_type"].get<std::string>() + " " +
                 c.value("part", ""));
    ExpectProbabilities(c, TensorsOf(c));
    if (!c.contains("added")) continue;
    ++with_rows;
    const LayerPosition p = FromConfig(
        c["config"].dump(), ReadOptions{.part = c.value("part", "")});
    const Tensor expected = GoldenTensor(c["added"]);
    std::vector<int64_t> positions(static_cast<size_t>(expected.size(0)));
    std::iota(positions.begin(), positions.end(), 0);
    const Tensor rows = Build(p.input, TensorsOf(c))->Embed(positions);
    ASSERT_EQ(rows.shape(), expected.shape());
    for (int64_t i = 0; i < expected.size(0); ++i) {
      for (int64_t d = 0; d < expected.size(1); ++d) {
        // Tables are copied; sinusoids have an angle below 16, in float32.
        EXPECT_NEAR(rows.At(i, d), expected.At(i, d), 32 * 0x1p-24);
      }
    }
  }
  EXPECT_EQ(with_rows, 26);
}

}  // namespace
}  // namespace locus::models
