// Every layer of small stacks attends as transformers' own code does: heads,
// scale, mask and rotation, with the keys that a config may leave out left out.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "locus/models.h"
#include "locus/rotary.h"
#include "models/golden.h"

namespace locus::models {
namespace {

// Whether the query m of a layer sees the key n.
bool Sees(const LayerPosition& p, int64_t m, int64_t n) {
  if (p.causal && n > m) return false;
  if (p.window && (m - n > p.window->left || n - m > p.window->right)) {
    return false;
  }
  return p.chunk == 0 || m / p.chunk == n / p.chunk;
}

void ExpectMask(const GoldenJson& layer, const GoldenJson& c,
                const LayerPosition& p) {
  const auto tokens = c["tokens"].get<int64_t>();
  const auto rows = c["rows"].get<std::vector<int64_t>>();
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto first = layer["visible"][i][0].get<int64_t>();
    const auto last = layer["visible"][i][1].get<int64_t>();
    for (int64_t n = 0; n < tokens; ++n) {
      EXPECT_EQ(Sees(p, rows[i], n), n >= first && n <= last)
          << "query " << rows[i] << " key " << n;
    }
  }
}

// q of the last token, turned. The file's q has the gain already.
void ExpectRotation(const GoldenJson& layer, int64_t position,
                    const LayerPosition& p) {
  const Tensor still = GoldenTensor(layer["still"], 3);
  const auto turned = layer["turned"].get<std::vector<double>>();
  Shape shape = Shape::SelfAttention(p.q_heads, p.head_dim, position + 1);
  shape.kv_heads = p.kv_heads;
  shape.scale = p.scale;
  const Terms terms = Build(p.attention)->Lower(shape).terms;
  const std::vector<int64_t> positions = {position};
  const Tensor q =
      terms.rotate ? Rotate(still, *terms.rotate, positions) : still;
  double norm = 0.0;
  for (double x : turned) norm += x * x;
  for (int64_t d = 0; d < p.head_dim; ++d) {
    double value = q.At(0, 0, 0, d);
    if (terms.rotate) {
      const int64_t first = p.rotary->first_channel;
      const bool turns = d >= first && d < first + p.rotary->rotary_dim;
      if (turns) value /= terms.rotate->gain;
    }
    // The parity that the models' own float32 leaves.
    EXPECT_NEAR(value, turned[static_cast<size_t>(d)], 2e-6 * std::sqrt(norm))
        << "channel " << d;
  }
}

TEST(GoldenStacksTest, EveryLayerOfEveryStack) {
  int layers = 0, turned = 0;
  for (const GoldenJson& c : GoldenCases("stacks.json")) {
    const std::string config = c["config"].dump();
    for (size_t i = 0; i < c["layers"].size(); ++i) {
      SCOPED_TRACE(c["name"].get<std::string>() + ", layer " +
                   std::to_string(i));
      const GoldenJson& layer = c["layers"][i];
      LayerPosition p;
      try {
        p = FromConfig(config, static_cast<int64_t>(i));
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
        continue;
      }
      ++layers;
      EXPECT_EQ(p.q_heads, layer["heads"].get<int64_t>());
      EXPECT_EQ(p.kv_heads, layer["kv_heads"].get<int64_t>());
      EXPECT_EQ(p.head_dim, layer["dim"].get<int64_t>());
      EXPECT_EQ(p.value_dim, layer["value_dim"].get<int64_t>());
      EXPECT_NEAR(p.scale * p.softmax_factor, layer["scaling"].get<double>(),
                  1e-12);
      ExpectMask(layer, c, p);
      if (!layer.contains("turned")) continue;
      ++turned;
      ExpectRotation(layer, c["tokens"].get<int64_t>() - 1, p);
    }
  }
  EXPECT_GT(layers, 150);
  EXPECT_GT(turned, 150);
}

}  // namespace
}  // namespace locus::models
