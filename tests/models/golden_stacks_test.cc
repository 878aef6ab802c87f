// Every layer of small stacks attends as in transformers' own code: heads,
// scale, mask and rotation, with all keys omitted that a config may omit.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "locus/models.h"
#include "locus/rotary.h"
#include "models/golden.h"
#include "terms/call.h"

namespace locus::models {
namespace {

CallSizes Sizes(int64_t q_len, int64_t k_len) {
  return {.batch = 1,
          .q_heads = 1,
          .kv_heads = 1,
          .q_len = q_len,
          .k_len = k_len,
          .head_dim = 2,
          .value_dim = 2};
}

// The options of a call hide what the model's own mask hides.
void ExpectMask(const GoldenJson& layer, const GoldenJson& c,
                const LayerPosition& p) {
  const auto tokens = c["tokens"].get<int64_t>();
  const auto rows = c["rows"].get<std::vector<int64_t>>();
  // All tokens in one call, and each row as a separate call.
  const TokenOptions whole = p.CallOptions({.q_len = tokens, .k_len = tokens});
  const CallMask mask(Sizes(tokens, tokens), whole.options);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<int64_t> at = {rows[i]};
    const TokenOptions one =
        p.CallOptions({.q_len = 1, .k_len = tokens, .q_positions = at});
    const CallMask row(Sizes(1, tokens), one.options);
    const auto first = layer["visible"][i][0].get<int64_t>();
    const auto last = layer["visible"][i][1].get<int64_t>();
    for (int64_t n = 0; n < tokens; ++n) {
      const bool sees = n >= first && n <= last;
      EXPECT_EQ(mask.Visible(0, 0, rows[i], n), sees)
          << "query " << rows[i] << " key " << n;
      EXPECT_EQ(row.Visible(0, 0, 0, n), sees)
          << "query " << rows[i] << " alone, key " << n;
    }
  }
}

// q of the last token, rotated. The file's q already includes the gain.
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
    // The agreement that the models' own float32 permits.
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
