// Learned tables: the row of each position, with the tensors' own names.
#include <gtest/gtest.h>

#include <vector>

#include "locus/error.h"
#include "locus/models.h"

namespace locus::models {
namespace {

// A table whose row r is filled with r, of the requested shape.
Tensor Numbered(const NeededTensor& need) {
  std::vector<double> values;
  for (int64_t r = 0; r < need.shape[0]; ++r) {
    for (int64_t d = 0; d < need.shape[1]; ++d) {
      values.push_back(static_cast<double>(r));
    }
  }
  return Tensor::From(need.shape, values);
}

double RowOf(const char* json, const char* part, int64_t position) {
  const LayerPosition p = FromConfig(json, ReadOptions{.part = part});
  return Build(p.input, Numbered)->Embed({&position, 1}).At(0, 0);
}

TEST(OffsetsTest, RowsOfPositions) {
  const char* opt = R"({"model_type": "opt", "hidden_size": 4,
      "num_attention_heads": 2, "num_hidden_layers": 1,
      "max_position_embeddings": 8})";
  const char* bart = R"({"model_type": "bart", "d_model": 4,
      "encoder_attention_heads": 2, "decoder_attention_heads": 2,
      "encoder_layers": 1, "decoder_layers": 1,
      "max_position_embeddings": 8})";
  const char* roberta = R"({"model_type": "roberta", "hidden_size": 4,
      "num_attention_heads": 2, "num_hidden_layers": 1,
      "max_position_embeddings": 10, "pad_token_id": 1})";
  const char* gpt2 = R"({"model_type": "gpt2", "n_embd": 4, "n_head": 2,
      "n_layer": 1, "n_positions": 8})";
  EXPECT_EQ(RowOf(opt, "", 0), 2.0);
  EXPECT_EQ(RowOf(opt, "", 7), 9.0);
  EXPECT_EQ(RowOf(bart, "encoder", 0), 2.0);
  EXPECT_EQ(RowOf(bart, "decoder", 7), 9.0);
  EXPECT_EQ(RowOf(roberta, "", 0), 2.0);
  EXPECT_EQ(RowOf(gpt2, "", 7), 7.0);
  // None of them has a row past the trained length.
  EXPECT_THROW(RowOf(opt, "", 8), Error);
  EXPECT_THROW(RowOf(bart, "encoder", 8), Error);
  EXPECT_THROW(RowOf(roberta, "", 8), Error);
  EXPECT_THROW(RowOf(gpt2, "", 8), Error);
}

TEST(OffsetsTest, TensorsAreAskedForByName) {
  const LayerPosition p = FromConfig(R"({"model_type": "gpt2", "n_embd": 4,
      "n_head": 2, "n_layer": 1, "n_positions": 8})");
  EXPECT_EQ(p.input.encoding, nullptr);
  try {
    Build(p.input);
    FAIL() << "built without its tensor";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "learned positions need the tensor 'transformer.wpe.weight' "
                 "of the checkpoint");
  }
}

}  // namespace
}  // namespace locus::models
