// Families with positions at the input: learned tables and sinusoids.
#include <algorithm>

#include "locus/encodings/deberta.h"
#include "locus/encodings/shaw.h"
#include "models/families.h"

namespace locus::models {

SizeKeys Gpt2Sizes() {
  return {.model_dim = {"n_embd"},
          .q_heads = {"n_head"},
          .kv_heads = {},
          .head_dim = {},
          .layers = {"n_layer"},
          .length = {"n_positions"}};
}

void ReadGpt2Scale(Reader& r) {
  if (!r.c.FlagOr("scale_attn_weights", true)) r.out.scale = 1.0;
  if (r.c.FlagOr("scale_attn_by_inverse_layer_idx", false)) {
    r.out.scale /= static_cast<double>(r.out.layer + 1);
  }
}

namespace {

constexpr const char* kPlain = "plain attention: position is in the input";

// BERT's relative tables [2L - 1, D], with row (m - n) + L - 1, one per layer.
void BertRelative(Reader& r, const std::string& kind,
                  const std::string& prefix) {
  const int64_t length = r.out.trained_length, dim = r.out.head_dim;
  const NeededTensor rows = {
      .name = fmt::format(
          "{}encoder.layer.{}.attention.self.distance_embedding.weight", prefix,
          r.out.layer),
      .shape = {2 * length - 1, dim},
      .use = "relative keys"};
  if (kind == "relative_key") {
    r.out.attention = TensorScheme(
        "key-offset", fmt::format("q.E[m - n], {} rows", 2 * length - 1), rows,
        [](Tensor table) {
          return std::make_shared<KeyOffset>(std::move(table));
        });
    return;
  }
  // DeBERTa's formula with the same table for both terms; its rows begin at -L,
  // which never occurs.
  r.out.attention = TensorScheme(
      "deberta",
      fmt::format("q.E[m - n] + k.E[m - n], {} rows", 2 * length - 1), rows,
      [length, dim](const Tensor& table) {
        Tensor padded = Tensor::Zeros(DType::kF64, {1, 2 * length, dim});
        const auto values = table.ToVector();
        std::copy(values.begin(), values.end(),
                  padded.MutableData<double>() + dim);
        return std::make_shared<Deberta>(padded, padded, 0, length);
      });
}

void Encoder(Reader& r) {
  const bool decoder = r.c.FlagOr("is_decoder", false);
  r.out.part = decoder ? "decoder" : "encoder";
  r.out.causal = decoder;
}

void Bert(Reader& r) {
  Encoder(r);
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  const std::string kind =
      r.c.MaybeText("position_embedding_type").value_or("absolute");
  const std::string prefix = r.out.model_type + ".";
  if (kind == "relative_key" || kind == "relative_key_query") {
    BertRelative(r, kind, prefix);
    return;
  }
  if (kind != "absolute") {
    Fail(
        "{} = '{}' is not known; known values: absolute, relative_key, "
        "relative_key_query",
        r.c.Path("position_embedding_type"), Printable(kind));
  }
  const int64_t width =
      r.c.IntOr("embedding_size", r.out.model_dim, 1, kMostWidth);
  r.NoPosition(kPlain);
  r.Learned(prefix + "embeddings.position_embeddings.weight",
            r.out.trained_length, width, 0);
}

void DistilBert(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
  r.Sizes({.model_dim = {"dim"},
           .q_heads = {"n_heads"},
           .kv_heads = {},
           .head_dim = {},
           .layers = {"n_layers"}});
  // The sinusoids only initialise the table.
  r.Ignore({"sinusoidal_pos_embds"});
  r.NoPosition(kPlain);
  r.Learned("distilbert.embeddings.position_embeddings.weight",
            r.out.trained_length, r.out.model_dim, 0);
}

// Rows 0 .. padding_idx are for padding.
void Roberta(Reader& r) {
  Encoder(r);
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  const std::string kind =
      r.c.MaybeText("position_embedding_type").value_or("absolute");
  if (kind != "absolute") {
    Fail("{} = '{}' is not read for RoBERTa; only absolute is",
         r.c.Path("position_embedding_type"), Printable(kind));
  }
  const int64_t offset = r.c.IntOr("pad_token_id", 1, 0, kMostLength) + 1;
  if (offset >= r.out.trained_length) {
    Fail("{} = {} leaves no positions after the padding row {}",
         r.c.Path("max_position_embeddings"), r.out.trained_length, offset - 1);
  }
  r.NoPosition(kPlain);
  r.Learned("roberta.embeddings.position_embeddings.weight",
            r.out.trained_length, r.out.model_dim, offset);
}

void Gpt2(Reader& r) {
  r.Sizes(Gpt2Sizes());
  r.Ignore({"n_ctx"});
  if (r.out.model_type == "gpt_bigcode") {
    r.Ignore({"num_key_value_heads"});
    if (r.c.FlagOr("multi_query", true)) r.out.kv_heads = 1;
  }
  ReadGpt2Scale(r);
  r.NoPosition(kPlain);
  r.Learned("transformer.wpe.weight", r.out.trained_length, r.out.model_dim, 0);
}

void Opt(Reader& r) {
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  r.NoPosition(kPlain);
  r.Learned("model.decoder.embed_positions.weight", r.out.trained_length + 2,
            r.out.model_dim, 2);
}

// Encoder-decoders have separate sizes for each part.
bool EncoderDecoder(Reader& r) {
  const bool encoder = r.IsEncoder(true, true);
  // Both parts are read, so that the keys of the other part count as used.
  const int64_t heads[2] = {r.c.Int("decoder_attention_heads", 1, kMostHeads),
                            r.c.Int("encoder_attention_heads", 1, kMostHeads)};
  const int64_t layers[2] = {r.c.Int("decoder_layers", 1, kMostLayers),
                             r.c.Int("encoder_layers", 1, kMostLayers)};
  const int64_t width = r.c.Int("d_model", 1, kMostWidth);
  const int64_t h = heads[encoder ? 1 : 0];
  if (width % h != 0) {
    Fail("{} = {} is not a multiple of {} heads", r.c.Path("d_model"), width,
         h);
  }
  r.Heads(width, h, h, width / h);
  r.Layers(layers[encoder ? 1 : 0]);
  return encoder;
}

void Bart(Reader& r) {
  const bool encoder = EncoderDecoder(r);
  const int64_t length = r.c.Int("max_position_embeddings", 1, kMostLength);
  r.Expect("static_position_embeddings", false);
  r.Ignore({"normalize_before", "extra_pos_embeddings"});
  r.NoPosition(kPlain);
  const int64_t offset = r.out.model_type == "blenderbot-small" ? 0 : 2;
  r.Learned(fmt::format("model.{}.embed_positions.weight",
                        encoder ? "encoder" : "decoder"),
            length + offset, r.out.model_dim, offset);
}

void Marian(Reader& r) {
  EncoderDecoder(r);
  r.out.trained_length = r.c.Int("max_position_embeddings", 1, kMostLength);
  r.Ignore({"static_position_embeddings", "extra_pos_embeddings"});
  r.NoPosition(kPlain);
  r.Sinusoids(r.out.model_dim, SinusoidLayout::kHalves, 0);
}

// As in Vaswani et al.: sines and cosines alternate.
void Vaswani(Reader& r) {
  r.IsEncoder(true, true);
  const int64_t width = r.c.Int("d_model", 2, kMostWidth);
  const int64_t heads = r.c.IntOf({"num_heads", "nhead"}, 1, kMostHeads);
  if (width % heads != 0) {
    Fail("{} = {} is not a multiple of {} heads", r.c.Path("d_model"), width,
         heads);
  }
  r.Heads(width, heads, heads, width / heads);
  r.Layers(r.c.IntOf({"num_layers", "num_hidden_layers"}, 1, kMostLayers));
  r.out.trained_length =
      r.c.IntOr("max_position_embeddings", 0, 1, kMostLength);
  r.NoPosition(kPlain);
  r.Sinusoids(width, SinusoidLayout::kInterleaved, 0);
}

// Positions start after the padding row, and that row is zero.
void M2m100(Reader& r) {
  EncoderDecoder(r);
  r.out.trained_length = r.c.Int("max_position_embeddings", 1, kMostLength);
  const int64_t pad = r.c.IntOr("pad_token_id", 1, 0, kMostLength);
  r.Ignore({"static_position_embeddings"});
  r.NoPosition(kPlain);
  r.Sinusoids(r.out.model_dim, SinusoidLayout::kHalvesInclusive, pad + 1);
}

void Whisper(Reader& r) {
  const bool encoder = EncoderDecoder(r);
  const int64_t source =
      r.c.IntOr("max_source_positions", 1500, 1, kMostLength);
  const int64_t target = r.c.IntOr("max_target_positions", 448, 1, kMostLength);
  r.NoPosition(kPlain);
  if (encoder) {
    r.out.trained_length = source;
    r.Sinusoids(r.out.model_dim, SinusoidLayout::kHalvesInclusive, 0);
  } else {
    r.Learned("model.decoder.embed_positions.weight", target, r.out.model_dim,
              0);
  }
}

}  // namespace

std::vector<Family> AbsoluteFamilies() {
  return {
      {{"Transformer",
        {"transformer"},
        "sinusoids, interleaved",
        "sine and cosine alternate, unlike in most ports"},
       Vaswani},
      {{"Marian",
        {"marian"},
        "sinusoids, [sin, cos] halves, 10000^(-2i/d)",
        "halves, not interleaved"},
       Marian},
      {{"BERT",
        {"bert", "electra", "albert"},
        "learned table",
        "`position_embedding_type` may say relative_key or "
        "relative_key_query: tables of 2L - 1 rows in every layer"},
       Bert},
      {{"DistilBERT",
        {"distilbert"},
        "learned table",
        "`sinusoidal_pos_embds` is about initialisation only"},
       DistilBert},
      {{"RoBERTa",
        {"roberta", "xlm-roberta", "camembert"},
        "learned table",
        "position p takes row p + padding_idx + 1: 514 rows serve 512 tokens"},
       Roberta},
      {{"GPT-2",
        {"gpt2", "gpt_bigcode"},
        "learned table",
        "`scale_attn_by_inverse_layer_idx` changes the scale layer by layer"},
       Gpt2},
      {{"OPT",
        {"opt"},
        "learned table",
        "two more rows than positions; position p takes row p + 2"},
       Opt},
      {{"BART",
        {"bart", "mbart", "plbart", "blenderbot-small"},
        "learned table, one a part",
        "two more rows than positions; position p takes row p + 2, but for "
        "Blenderbot-small"},
       Bart},
      {{"M2M100",
        {"m2m_100"},
        "sinusoids, [sin, cos] halves, 10000^(-i/(d/2 - 1))",
        "positions start at padding_idx + 1; the padding row is zero"},
       M2m100},
      {{"Whisper",
        {"whisper"},
        "encoder sinusoids, [sin, cos] halves; decoder learned table",
        "the two parts differ; 1500 and 448 positions"},
       Whisper},
  };
}

}  // namespace locus::models
