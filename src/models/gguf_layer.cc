#include "models/gguf_layer.h"

#include "locus/encodings/alibi.h"
#include "locus/encodings/t5.h"
#include "models/rotary_rules.h"
#include "models/tuned.h"

namespace locus::models {
namespace {

// A constant of llama.cpp, which no key gives.
constexpr int64_t kBucketDistance = 128;

void SetHeads(Reader& r, const GgufConfig& g) {
  const int64_t width = r.c.Int("hidden_size", 1, kMostWidth);
  const int64_t heads = r.c.Int("num_attention_heads", 1, kMostHeads);
  const int64_t kv = r.c.Int("num_key_value_heads", 1, kMostHeads);
  const auto dim = r.c.MaybeInt("head_dim", 1, kMostHeadDim);
  if (!dim && width % heads != 0) {
    Fail(
        "a width of {} is not a multiple of {} heads, and no "
        "attention.key_length is given",
        width, heads);
  }
  r.Heads(width, heads, kv, dim.value_or(width / heads));
  r.out.value_dim = r.c.IntOr("v_head_dim", r.out.head_dim, 1, kMostWidth);
  switch (g.arch->scale) {
    case GgufScale::kHead:
      break;
    case GgufScale::kOne:
      r.out.scale = 1.0;
      break;
    case GgufScale::kInverse:
      r.out.scale = 1.0 / static_cast<double>(r.out.head_dim);
      break;
    case GgufScale::kKey:
    case GgufScale::kOutput:
      r.out.scale =
          r.c.NumberOr("attention_multiplier", r.out.scale, 1e-9, 1e9);
      break;
  }
}

void SetMask(Reader& r, const GgufConfig& g) {
  const GgufArch& arch = *g.arch;
  r.out.causal = g.causal.value_or(!arch.both_ways);
  r.out.part = r.out.causal ? "decoder" : "encoder";
  if (g.windowed) r.out.layer_type = g.slides ? kSliding : kFull;
  if (!g.slides) return;
  const int64_t width = r.c.Int("sliding_window", 1, kMostLength);
  if (arch.chunks) {
    r.out.layer_type = "chunked_attention";
    r.out.chunk = width;
  } else if (arch.radius) {
    r.out.window = Window{.left = width / 2, .right = width / 2};
  } else if (!r.out.causal) {
    Fail("attention.causal = false and a sliding window exclude each other");
  } else {
    r.CausalWindow(width);
  }
}

// The temperature of the query in layers that do not rotate (Llama 4).
void SetFactor(Reader& r, const GgufConfig& g) {
  if (g.arch->chunks && !g.rotates && g.windowed) {
    r.out.temperature = {.beta = 0.1, .shift = 1, .span = 8192};
  }
  const double beta = r.c.NumberOr("temperature_scale", 0.0, 0.0, 1e6);
  const auto span = r.c.MaybeInt("temperature_length", 1, kMostLength);
  if (beta == 0.0) return;
  if (!span) {
    Fail(
        "attention.temperature_scale needs "
        "rope.scaling.original_context_length");
  }
  r.out.temperature = {.beta = beta, .shift = 0, .span = *span};
}

void SetSectionsOf(Reader& r, const GgufArch& arch) {
  const auto list = r.c.MaybeInts("mrope_section", 8);
  if (!list) {
    if (arch.sections_optional) return;
    Fail("rope.dimension_sections is missing");
  }
  if (list->size() < 3 || list->size() > 4 ||
      (list->size() == 4 && (*list)[3] != 0)) {
    Fail("rope.dimension_sections must be time, height, width and 0");
  }
  SetSections(r, {(*list)[0], (*list)[1], (*list)[2]}, *arch.sections);
}

void Rotate(Reader& r, const GgufConfig& g) {
  const GgufArch& arch = *g.arch;
  const bool latent = arch.scheme == GgufScheme::kLatent;
  const auto channels = r.c.MaybeInt("rotary_dim", 2, r.out.head_dim);
  if (latent && (!channels || *channels >= r.out.head_dim)) {
    Fail("rope.dimension_count must be below the head's {} channels",
         r.out.head_dim);
  }
  SetFactor(r, g);
  // Read even if nothing rotates, so that an invalid number is an error.
  r.Rope({.layout = arch.layout,
          .rotary_dim = channels.value_or(r.out.head_dim),
          .place = latent ? RotaryPlace::kTrailing : RotaryPlace::kLeading,
          .mscale_squared = arch.mscale});
  if (!g.rotates) {
    r.out.rotary.reset();
    r.out.softmax_factor = 1.0;
    r.NoPosition("no position in this layer");
    if (r.out.temperature.beta != 0.0) {
      r.out.attention.encoding =
          std::make_shared<Tuned>(r.out.attention.encoding, r.out.temperature);
    }
    return;
  }
  if (arch.sections) SetSectionsOf(r, arch);
  if (g.indexed) {
    r.Warn(
        "an indexer keeps the {} best keys of each query: past so many keys "
        "the call must bring that mask",
        *g.indexed);
  }
}

// One table for all layers, stored in the first block of the stack.
void Buckets(Reader& r, const GgufArch& arch) {
  const bool whole = std::string_view(arch.name) == "t5";
  const bool encoder = r.IsEncoder(true, whole);
  const int64_t buckets = r.c.Int("relative_buckets", 2, 65536);
  const int64_t heads = r.out.q_heads;
  const auto layers = r.c.MaybeInt("decoder_layers", 1, kMostLayers);
  if (!encoder && layers) r.Layers(*layers);
  r.out.scale = 1.0;
  r.out.attention = TensorScheme(
      "t5",
      fmt::format("T5 bias, {} buckets up to {}", buckets, kBucketDistance),
      {.name =
           fmt::format("{}.blk.0.attn_rel_b.weight", encoder ? "enc" : "dec"),
       .shape = {buckets, heads},
       .use = "bias by bucket"},
      [encoder](Tensor table) {
        return std::make_shared<T5Bias>(std::move(table), kBucketDistance,
                                        /*bidirectional=*/encoder);
      });
}

}  // namespace

void ReadGgufLayer(Reader& r, const GgufConfig& g) {
  const GgufArch& arch = *g.arch;
  r.out.model_type = arch.name;
  r.out.family = arch.text;
  r.Layers(r.c.Int("num_hidden_layers", 1, kMostLayers));
  r.out.trained_length =
      r.c.IntOr("max_position_embeddings", 0, 1, kMostLength);
  if (!g.attends) {
    r.out.model_dim = r.c.Int("hidden_size", 1, kMostWidth);
    r.out.layer_type = kLinear;
    r.NoAttention(arch.scheme == GgufScheme::kRecurrent
                      ? "no attention: a recurrent layer"
                      : "no attention: a state space, linear attention or a "
                        "feed-forward layer");
    return;
  }
  SetHeads(r, g);
  SetMask(r, g);
  const double cap =
      r.c.NumberOr("attn_logit_softcapping", arch.softcap, 0.0, 1e9);
  if (cap > 0.0) r.out.softcap = cap;
  switch (arch.scheme) {
    case GgufScheme::kRotary:
    case GgufScheme::kLatent:
      Rotate(r, g);
      break;
    case GgufScheme::kNone:
      r.NoPosition("no position: the other layers bring the order");
      break;
    case GgufScheme::kLearned:
      r.NoPosition("plain attention: position is in the input");
      if (r.out.trained_length == 0) Fail("context_length is missing");
      r.Learned("position_embd.weight", r.out.trained_length, r.out.model_dim,
                0);
      break;
    case GgufScheme::kAlibi: {
      const double most = r.c.NumberOr("alibi_bias_max", 8.0, 1e-9, 1e9);
      r.Attend("alibi", fmt::format("ALiBi, up to {}", most),
               std::make_shared<Alibi>(r.out.q_heads,
                                       AlibiOptions{.bias_max = most}));
      break;
    }
    case GgufScheme::kBuckets:
      Buckets(r, arch);
      break;
    case GgufScheme::kFamily:
    case GgufScheme::kRecurrent:
    case GgufScheme::kRefused:
      break;
  }
  if (g.sinks) r.Sinks("attn_sinks.weight");
}

}  // namespace locus::models
