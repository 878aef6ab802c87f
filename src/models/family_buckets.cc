// T5 and similar models: one scalar per head and bucket of the offset.
#include "locus/encodings/t5.h"
#include "models/families.h"

namespace locus::models {
namespace {

struct Buckets {
  int64_t count = 32;
  int64_t max_distance = 128;
};

Buckets ReadBuckets(Reader& r) {
  Buckets b;
  b.count = r.c.IntOr("relative_attention_num_buckets", 32, 4, 65536);
  b.max_distance =
      r.c.IntOr("relative_attention_max_distance", 128, 1, kMostLength);
  if (b.max_distance <= b.count / 2) {
    Fail("{} = {} must be above half of {} = {}",
         r.c.Path("relative_attention_max_distance"), b.max_distance,
         r.c.Path("relative_attention_num_buckets"), b.count);
  }
  return b;
}

Scheme BucketBias(const Buckets& b, int64_t heads, bool bidirectional,
                  const std::string& tensor) {
  return TensorScheme(
      "t5",
      fmt::format("T5 bias, {} buckets up to {}, {}", b.count, b.max_distance,
                  bidirectional ? "both directions" : "causal"),
      {.name = tensor, .shape = {b.count, heads}, .use = "bias by bucket"},
      [b, bidirectional](Tensor table) {
        return std::make_shared<T5Bias>(std::move(table), b.max_distance,
                                        bidirectional);
      });
}

// Each layer has its own table if `in_each` (UMT5), or layer 0 has one for all.
void ReadT5(Reader& r, bool in_each, const char* encoder_attention) {
  const bool encoder = r.IsEncoder(true, true);
  const int64_t heads = r.c.Int("num_heads", 1, kMostHeads);
  r.Heads(r.c.Int("d_model", 1, kMostWidth), heads, heads,
          r.c.Int("d_kv", 1, kMostWidth));
  const int64_t layers = r.c.Int("num_layers", 1, kMostLayers);
  const int64_t decoder_layers =
      r.c.IntOr("num_decoder_layers", layers, 1, kMostLayers);
  r.Layers(encoder ? layers : decoder_layers);
  r.out.scale = 1.0;  // folded into the initialisation
  const Buckets b = ReadBuckets(r);
  r.Ignore({"n_positions"});  // 512 in old configs, without effect on a bias
  const auto length = r.c.MaybeInt("n_positions", 1, kMostLength);
  r.out.trained_length = length.value_or(0);
  r.out.attention = BucketBias(
      b, heads, encoder,
      fmt::format("{}.block.{}.layer.0.{}.relative_attention_bias.weight",
                  r.out.part, in_each ? r.out.layer : 0,
                  encoder ? encoder_attention : "SelfAttention"));
}

void T5(Reader& r) { ReadT5(r, /*in_each=*/false, "SelfAttention"); }
void Umt5(Reader& r) { ReadT5(r, /*in_each=*/true, "SelfAttention"); }

// A decoder only, with its own key names.
void Pix2Struct(Reader& r) {
  r.IsEncoder(false, true);
  const int64_t heads =
      r.c.IntOf({"num_heads", "num_attention_heads"}, 1, kMostHeads);
  r.Heads(r.c.Int("hidden_size", 1, kMostWidth), heads, heads,
          r.c.Int("d_kv", 1, kMostWidth));
  r.Layers(r.c.IntOf({"num_layers", "num_hidden_layers"}, 1, kMostLayers));
  r.out.scale = 1.0;
  r.out.attention = BucketBias(
      ReadBuckets(r), heads, /*bidirectional=*/false,
      "layer.0.self_attention.attention.relative_attention_bias.weight");
}

void LongT5(Reader& r) {
  const std::string kind =
      r.c.MaybeText("encoder_attention_type").value_or("local");
  const int64_t radius = r.c.IntOr("local_radius", 127, 1, kMostLength);
  r.Ignore({"global_block_size"});
  ReadT5(r, /*in_each=*/false, "LocalSelfAttention");
  if (r.out.part != "encoder") return;
  if (kind != "local") {
    Fail(
        "{} = '{}' attends to block summaries beside the tokens, which have no "
        "positions of their own; only 'local' is read",
        r.c.Path("encoder_attention_type"), Printable(kind));
  }
  r.out.window = Window{.left = radius, .right = radius};
}

// Absolute positions as in RoBERTa, and one bias for all layers.
void MpNet(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  Buckets b;
  b.count = r.c.IntOr("relative_attention_num_buckets", 32, 4, 256);
  if (b.count != 32) {
    Fail("{} = {}, but MPNet's own code fills 32 buckets whatever it says",
         r.c.Path("relative_attention_num_buckets"), b.count);
  }
  const int64_t pad = r.c.IntOr("pad_token_id", 1, 0, kMostLength);
  if (pad + 1 >= r.out.trained_length) {
    Fail("{} = {} leaves no positions after the padding row {}",
         r.c.Path("max_position_embeddings"), r.out.trained_length, pad);
  }
  r.out.attention = BucketBias(b, r.out.q_heads, /*bidirectional=*/true,
                               "mpnet.encoder.relative_attention_bias.weight");
  r.Learned("mpnet.embeddings.position_embeddings.weight", r.out.trained_length,
            r.out.model_dim, pad + 1);
}

}  // namespace

std::vector<Family> BucketFamilies() {
  return {
      {{"T5, mT5, Switch",
        {"t5", "mt5", "switch_transformers", "pop2piano"},
        "T5 bias from layer 0, shared by all layers",
        "no 1/sqrt(d) in the scale; none in cross-attention; encoder buckets "
        "both directions, decoder one; `n_positions` has no effect"},
       T5},
      {{"UMT5",
        {"umt5"},
        "T5 bias, a table in every layer",
        "each layer has its own table, unlike T5"},
       Umt5},
      {{"Pix2Struct text",
        {"pix2struct_text_model"},
        "T5 bias from layer 0, shared by all layers",
        "a decoder alone"},
       Pix2Struct},
      {{"LongT5 (local)",
        {"longt5"},
        "T5 bias within `local_radius`",
        "the encoder sees 127 tokens each way; transient-global is refused"},
       LongT5},
      {{"MPNet",
        {"mpnet"},
        "learned table and T5 bias of 32 buckets",
        "both at once; the table's rows start at padding_idx + 1"},
       MpNet},
  };
}

}  // namespace locus::models
