// Speech encoders: conformers with relative keys, and rotations over frames.
#include <algorithm>

#include "locus/encodings/shaw.h"
#include "models/lowering.h"
#include "models/project.h"
#include "models/relative_keys.h"
#include "models/rotary_rules.h"

namespace locus::models {
namespace {

constexpr const char* kSpeechPlain =
    "plain attention: position is in the input";

void BothWays(Reader& r) {
  r.out.part = "encoder";
  r.out.causal = false;
}

// ------------------------------------------------- Transformer-XL's keys

struct XlNames {
  std::string at;  // prefix of the layer's attention
  const char* w = "linear_pos.weight";
  const char* u = "pos_bias_u";
  const char* v = "pos_bias_v";
};

void SetXl(Reader& r, const XlNames& names) {
  const int64_t heads = r.out.q_heads, dim = r.out.head_dim;
  const int64_t width = r.out.model_dim;
  r.out.attention = XlScheme(
      {.w = {names.at + names.w, {heads * dim, width}, "relative keys"},
       .u = {names.at + names.u, {heads, dim}, "content bias"},
       .v = {names.at + names.v, {heads, dim}, "position bias"},
       .interleaved = true,
       .heads = heads,
       .dim = dim,
       .model_dim = width,
       .reach = Reach(r, r.out.trained_length)},
      "relative sinusoids in both directions, sine and cosine interleaved");
}

void Parakeet(Reader& r) {
  BothWays(r);
  r.Sizes({});
  // Frames see their own chunk and whole chunks before it.
  const auto window = r.c.MaybeInt("sliding_window", 1, kMostLength);
  const auto ahead =
      r.c.MaybeInt("default_num_lookahead_tokens", 0, kMostLength);
  if (window && ahead) {
    const int64_t chunk = *ahead + 1;
    r.Warn(
        "frames see their own chunk of {} and the {} chunks before it: the "
        "call must bring that mask",
        chunk, (*window - 1) / chunk);
  }
  SetXl(r, {.at = fmt::format("layers.{}.self_attn.", r.out.layer),
            .w = "relative_k_proj.weight",
            .u = "bias_u",
            .v = "bias_v"});
}

void Wav2Vec2Conformer(Reader& r) {
  BothWays(r);
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {"max_source_positions"}});
  r.Ignore({"rotary_embedding_base"});
  const auto kind = r.c.MaybeText("position_embeddings_type");
  if (!kind) {
    r.NoPosition("plain attention: a convolution of the input has the order");
    return;
  }
  if (*kind != "relative") {
    Fail("{} = '{}' is not read: {}", r.c.Path("position_embeddings_type"),
         Printable(*kind),
         *kind == "rotary"
             ? "its code rotates the input before the projections to q and k"
             : "known values: relative, rotary");
  }
  SetXl(r, {.at = fmt::format("encoder.layers.{}.self_attn.", r.out.layer)});
}

// Both parts are bidirectional.
void FastSpeech2(Reader& r) {
  const bool encoder = r.IsEncoder(true, true);
  r.out.causal = false;
  const auto size = [&](const char* of_encoder, const char* of_decoder,
                        int64_t most) {
    const int64_t sizes[2] = {r.c.Int(of_decoder, 1, most),
                              r.c.Int(of_encoder, 1, most)};
    return sizes[encoder ? 1 : 0];
  };
  const int64_t heads = size("encoder_num_attention_heads",
                             "decoder_num_attention_heads", kMostHeads);
  const int64_t layers = size("encoder_layers", "decoder_layers", kMostLayers);
  const int64_t width = r.c.Int("hidden_size", 1, kMostWidth);
  if (width % heads != 0) {
    Fail("{} = {} is not a multiple of {} heads", r.c.Path("hidden_size"),
         width, heads);
  }
  // Copies of the keys above.
  r.Ignore({"encoder_config", "decoder_config", "num_attention_heads",
            "num_hidden_layers", "max_source_positions"});
  r.Heads(width, heads, heads, width / heads);
  r.Layers(layers);
  r.out.trained_length = 5000;  // of its table, which grows on demand
  SetXl(r, {.at = fmt::format("{}.conformer_layers.{}.self_attn.", r.out.part,
                              r.out.layer)});
}

// --------------------------------------------------------- Shaw's keys

// q.E[clip(m - n, lo, hi) - lo], one table for all heads.
Scheme ShawKeys(const NeededTensor& table, int64_t lo, int64_t hi) {
  return TensorScheme(
      "shaw",
      fmt::format("q.E[m - n], clipped to {} keys back and {} ahead", hi, -lo),
      table, [lo, hi](const Tensor& rows) {
        return std::make_shared<Shaw>(rows, Tensor(), lo, hi);
      });
}

// Frames attend within blocks of `context_size`.
void SetBlocks(Reader& r, const std::string& tensor, int64_t reach) {
  const int64_t block = r.c.Int("context_size", 1, 1 << 20);
  if (block > reach) {
    Fail("{} = {} is more than the {} distances of its table",
         r.c.Path("context_size"), block, reach);
  }
  r.out.chunk = block;
  r.out.trained_length = block;
  r.out.attention = ShawKeys({.name = tensor,
                              .shape = {2 * reach + 1, r.out.head_dim},
                              .use = "relative keys"},
                             -reach, reach);
}

void GraniteSpeech(Reader& r) {
  BothWays(r);
  const int64_t heads = r.c.Int("num_heads", 1, kMostHeads);
  r.Heads(r.c.Int("hidden_dim", 1, kMostWidth), heads, heads,
          r.c.Int("dim_head", 1, kMostHeadDim));
  r.Layers(r.c.Int("num_layers", 1, kMostLayers));
  SetBlocks(r, fmt::format("layers.{}.attn.rel_pos_emb.weight", r.out.layer),
            r.c.Int("max_pos_emb", 1, 1 << 20));
}

void GraniteSpeech5(Reader& r) {
  BothWays(r);
  r.Sizes({});
  r.Warn(
      "layers of subsample_layers halve the frames: positions count those "
      "that reach the layer");
  SetBlocks(r,
            fmt::format("layers.{}.self_attn.rel_pos_emb.weight", r.out.layer),
            r.c.Int("max_position_embeddings", 1, 1 << 20));
}

// The encoder, whose layers share the rows.
void SpeechT5(Reader& r) {
  if (r.options.part == "decoder") {
    Fail(
        "the decoder of {} is not read: which positions its input has depends "
        "on the prenet before it",
        r.out.model_type);
  }
  BothWays(r);
  r.Sizes({.q_heads = {"encoder_attention_heads"},
           .kv_heads = {},
           .head_dim = {},
           .layers = {"encoder_layers"},
           .length = {}});
  r.Ignore({"decoder_attention_heads", "decoder_layers", "num_attention_heads",
            "num_hidden_layers", "max_speech_positions", "max_text_positions"});
  const int64_t reach =
      r.c.Int("encoder_max_relative_position", 1, int64_t{1} << 20);
  r.out.attention =
      ShawKeys({.name = "encoder.wrapped_encoder.embed_positions.pe_k.weight",
                .shape = {2 * reach, r.out.head_dim},
                .use = "relative keys"},
               -reach, reach - 1);
}

// Rows for keys and values within a window; farther keys have none.
void Vits(Reader& r) {
  BothWays(r);
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
  const int64_t reach = r.c.IntOr("window_size", 0, 0, 1 << 20);
  if (reach == 0) {
    r.NoPosition("plain attention without positions");
    return;
  }
  const int64_t rows = 2 * reach + 1, dim = r.out.head_dim;
  const std::string at =
      fmt::format("text_encoder.encoder.layers.{}.attention.", r.out.layer);
  const NeededTensor keys = {at + "emb_rel_k", {1, rows, dim}, "relative keys"};
  const NeededTensor values = {
      at + "emb_rel_v", {1, rows, dim}, "relative values"};
  Scheme& scheme = r.out.attention;
  scheme.name = "shaw";
  scheme.words = fmt::format(
      "q.K[n - m] and values V[n - m] for keys within {}, none beyond", reach);
  scheme.tensors = {keys, values};
  scheme.build = [=](const TensorLookup& find) {
    // Row m - n + reach + 1 is the model's row n - m + reach; the outermost
    // rows are for all offsets beyond.
    const auto reversed = [&](const NeededTensor& need) {
      const std::vector<double> stored = find(need).ToVector();
      Tensor table = Tensor::Zeros(DType::kF64, {rows + 2, dim});
      double* to = table.MutableData<double>();
      for (int64_t row = 0; row < rows; ++row) {
        std::copy_n(stored.begin() + (rows - 1 - row) * dim, dim,
                    to + (row + 1) * dim);
      }
      return table;
    };
    return std::make_shared<Shaw>(reversed(keys), reversed(values), -reach - 1,
                                  reach + 1);
  };
}

// ------------------------------------------------------- bias by offset

// One bias per offset n - m, -reach .. reach - 1, shared by the layers.
void Phi4Audio(Reader& r) {
  BothWays(r);
  r.Sizes(
      {.kv_heads = {}, .head_dim = {}, .layers = {"num_blocks"}, .length = {}});
  r.Expect("bias_symmetric", false);
  if (r.c.IntOr("chunk_size", -1, -1, kMostLength) > 0) {
    Fail(
        "{} above 0 is not read: frames then see chunks that are counted from "
        "the end",
        r.c.Path("chunk_size"));
  }
  r.Ignore({"left_chunk"});
  const int64_t reach = r.c.Int("bias_max_distance", 1, 1 << 20);
  const int64_t heads = r.out.q_heads, rows = 2 * reach;
  r.out.attention = TensorScheme(
      "terms",
      fmt::format("bias by offset, clipped to {} keys either way", reach),
      {.name = "relative_attention_bias_layer.bias_values.weight",
       .shape = {rows, heads},
       .use = "bias by offset"},
      [=](const Tensor& stored) {
        // Bucket m - n + reach - 1 is the model's row n - m + reach.
        const std::vector<double> from = stored.ToVector();
        Tensor values = Tensor::Zeros(DType::kF64, {heads, rows});
        double* to = values.MutableData<double>();
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t b = 0; b < rows; ++b) {
            to[h * rows + b] =
                from[static_cast<size_t>((rows - 1 - b) * heads + h)];
          }
        }
        return std::make_shared<Lowering>("terms", [=](const Shape& shape) {
          Terms terms;
          terms.scale.scale = shape.ScaleOr();
          terms.bias = BiasTable{.values = values,
                                 .buckets = BucketMap::Clip(1 - reach, reach)};
          return terms;
        });
      });
}

// ------------------------------------------------------------ rotations

// The first channels of q, k and v rotate; outputs are not rotated back.
void Clvp(Reader& r) {
  BothWays(r);
  r.Sizes({.kv_heads = {}, .head_dim = {}, .length = {}});
  const int64_t width = r.c.IntOr("projection_dim", 768, 1, kMostWidth);
  if (!r.c.FlagOr("use_rotary_embedding", true)) {
    r.NoPosition("plain attention without positions");
    return;
  }
  const int64_t channels = std::max<int64_t>(width / (2 * r.out.q_heads), 32);
  r.Rope({.rotary_dim = channels, .values = RotaryValues::kAbsolute});
}

void ClvpDecoder(Reader& r) {
  r.Sizes({.kv_heads = {}, .head_dim = {}});
  r.Ignore({"max_text_tokens"});
  r.NoPosition(kSpeechPlain);
  r.Learned("position_embeds_layer.weight", r.out.trained_length,
            r.out.model_dim, 0);
}

}  // namespace

std::vector<Family> SpeechFamilies() {
  std::vector<Family> families = {
      {{"Parakeet, Nemotron ASR",
        {"parakeet_encoder", "nemotron_asr_streaming_encoder"},
        "relative sinusoids, u and v, both directions",
        "sine and cosine alternate in the sinusoid, unlike Transformer-XL's; "
        "the streaming one attends in chunks"},
       Parakeet},
      {{"wav2vec2-conformer",
        {"wav2vec2-conformer"},
        "relative sinusoids, u and v, both directions",
        "`position_embeddings_type` rotary turns the input, not q and k, and "
        "is refused"},
       Wav2Vec2Conformer},
      {{"FastSpeech 2 conformer",
        {"fastspeech2_conformer"},
        "relative sinusoids, u and v, both directions",
        "the decoder attends both ways too"},
       FastSpeech2},
      {{"Granite Speech",
        {"granite_speech_encoder", "granite_speech_plus_encoder"},
        "relative keys within blocks of 200 frames",
        "a table in every layer, wider than its blocks"},
       GraniteSpeech},
      {{"Granite Speech 5",
        {"granite_speech5_encoder"},
        "relative keys within blocks of 128 frames",
        "a table in every layer, wider than its blocks"},
       GraniteSpeech5},
      {{"SpeechT5",
        {"speecht5"},
        "relative keys, clipped to 160, one table for all layers",
        "one row fewer ahead than back; the encoder alone is read"},
       SpeechT5},
      {{"VITS",
        {"vits"},
        "relative keys and values within 4 tokens",
        "keys farther away have no row, instead of the last one"},
       Vits},
      {{"Phi 4 audio",
        {"phi4_multimodal_audio"},
        "a bias for each offset, clipped to 1000",
        "one table for all layers, by key minus query"},
       Phi4Audio},
      {{"CLVP encoder",
        {"clvp_encoder"},
        "RoPE, halves, first 32 of 64 channels, values too",
        "outputs are not rotated back"},
       Clvp},
      {{"CLVP decoder",
        {"clvp_decoder"},
        "learned table",
        "text and speech have tables of their own before it"},
       ClvpDecoder},
      {{"X-Codec 2, NeuCodec, Nemotron 3.5",
        {"xcodec2", "neucodec", "nemotron3_5_transcribe_asr_audio",
         "nemotron3_diarization_audio"},
        "RoPE, halves, bidirectional",
        "half of the head in Nemotron 3.5"},
       ByRules({.encoder = true,
                .ignored = {"encoder_hidden_size", "semantic_model_config"}})},
  };
  for (Family& family : families) family.class_defaults = true;
  return families;
}

}  // namespace locus::models
