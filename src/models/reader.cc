#include "models/reader.h"

#include <algorithm>
#include <cmath>

#include "locus/encodings/learned.h"
#include "locus/encodings/none.h"
#include "locus/rotary.h"
#include "models/tuned.h"

namespace locus::models {

void Reader::IgnoredUpstream(const char* key) {
  if (c.Has(key)) {
    Warn("{} is there, but the model's own code ignores it", c.Path(key));
  }
}

void Reader::Expect(const char* key, bool value) {
  const auto given = c.MaybeFlag(key);
  if (given && *given != value) {
    Refuse("{} = {} is not what {} does", c.Path(key), *given, out.family);
  }
}

void Reader::DualChunks() {
  const char* key = "dual_chunk_attention_config";
  if (!c.Has(key)) return;
  Refuse(
      "{} gives keys positions that differ from chunk to chunk of the context, "
      "which one rotation cannot; null stands for plain RoPE",
      c.Path(key));
}

// The mask of every decoder in transformers honours `is_causal`, for any model.
// Windows then cover `sliding_window` keys to either side.
void Reader::Causality(const Json* beside) {
  const char* key = "is_causal";
  if (beside != nullptr && beside->contains(key) && (*beside)[key] != true &&
      !(*beside)[key].is_null()) {
    Refuse("{} = {} stands beside {} instead of in it", key,
           Shown((*beside)[key]), c.Path("").substr(0, c.Path("").size() - 1));
  }
  const auto causal = c.MaybeFlag(key);
  if (!causal) return;
  if (out.part == "encoder") {
    if (*causal) {
      Refuse(
          "{} = true, but {} is an encoder, which some implementations of its "
          "attention then mask and others do not",
          c.Path(key), out.model_type);
    }
    return;
  }
  if (*causal) return;
  const char* obstacle =
      out.chunk != 0 ? "some implementations mask its chunks all the same"
      : out.attention.name == "alibi"
          ? "its ALiBi then favours later keys the more the farther they are"
      : out.attention.name == "transformer-xl"
          ? "its own code is causal all the same"
          : nullptr;
  if (obstacle != nullptr) {
    Fail("{} = false is not read for {}: {}", c.Path(key), out.family,
         obstacle);
  }
  out.causal = false;
  if (out.window) {
    const int64_t reach = out.window->left + 1;
    out.window = Window{.left = reach, .right = reach};
  }
}

bool Reader::IsEncoder(bool has_encoder, bool has_decoder) {
  std::string part = options.part;
  if (part.empty()) part = has_decoder ? "decoder" : "encoder";
  const bool encoder = part == "encoder";
  if ((encoder && !has_encoder) || (part == "decoder" && !has_decoder) ||
      (!encoder && part != "decoder")) {
    Fail("{} has {}, and no part '{}'", out.model_type,
         has_encoder && has_decoder ? "an encoder and a decoder"
         : has_encoder              ? "an encoder only"
                                    : "a decoder only",
         options.part);
  }
  out.part = part;
  out.other_part = has_encoder && has_decoder;
  out.causal = !encoder;
  return encoder;
}

void Reader::Layers(int64_t layers) {
  out.layers = layers;
  if (layers > kMostLayers) {
    Fail("{} layers are more than any model has; at most {} can be right",
         layers, kMostLayers);
  }
  if (out.layer < 0 || out.layer >= layers) {
    Fail("{} has layers 0 .. {}, got layer {}", out.model_type, layers - 1,
         out.layer);
  }
}

void Reader::Heads(int64_t model_dim, int64_t q_heads, int64_t kv_heads,
                   int64_t head_dim) {
  if (q_heads % kv_heads != 0) {
    Fail("{} query heads are not a multiple of {} key heads", q_heads,
         kv_heads);
  }
  if (head_dim > kMostHeadDim) {
    Fail(
        "heads of {} channels are wider than any model's; at most {} can be "
        "right",
        head_dim, kMostHeadDim);
  }
  out.model_dim = model_dim;
  out.q_heads = q_heads;
  out.kv_heads = kv_heads;
  out.head_dim = head_dim;
  out.value_dim = head_dim;
  out.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
}

void Reader::Sizes(const SizeKeys& keys) {
  const auto size = [&](const Names& names, int64_t fallback, int64_t most) {
    if (names.empty()) return fallback;
    return c.MaybeIntOf(names, 1, most).value_or(fallback);
  };
  const auto required = [&](const Names& names, int64_t value) {
    if (value == 0) Fail("{} is missing", c.Path(names.front()));
    return value;
  };
  const int64_t width = c.IntOf(keys.model_dim, 1, kMostWidth);
  const int64_t heads = required(
      keys.q_heads, size(keys.q_heads, keys.default_heads, kMostHeads));
  const auto absent = [&](const Names& names) {
    return std::ranges::all_of(
        names, [&](const char* name) { return c.Absent(name); });
  };
  const bool usual_kv = keys.default_kv_heads != 0 && absent(keys.kv_heads);
  const int64_t kv =
      size(keys.kv_heads, usual_kv ? keys.default_kv_heads : heads, kMostHeads);
  int64_t head_dim =
      size(keys.head_dim, absent(keys.head_dim) ? keys.default_head_dim : 0,
           kMostWidth);
  if (head_dim == 0) {
    if (width % heads != 0) {
      Fail("{} = {} is not a multiple of {}, and no head_dim is given",
           c.Path(keys.model_dim.front()), width,
           keys.q_heads.empty()
               ? fmt::format("the model's {} heads", heads)
               : fmt::format("{} = {}", c.Path(keys.q_heads.front()), heads));
    }
    head_dim = width / heads;
  }
  Heads(width, heads, kv, head_dim);
  Layers(c.IntOf(keys.layers, 1, kMostLayers));
  if (keys.length.empty()) return;
  out.trained_length = size(keys.length, keys.default_length, kMostLength);
  if (keys.length_required) required(keys.length, out.trained_length);
}

std::string Reader::LayerType(const Names& known) {
  auto types = c.MaybeTexts("layer_types", static_cast<size_t>(kMostLayers));
  if (!types) return {};
  if (static_cast<int64_t>(types->size()) != out.layers) {
    Fail("{} has {} entries for {} layers", c.Path("layer_types"),
         types->size(), out.layers);
  }
  // Early spellings of these types.
  for (std::string& type : *types) {
    if (type == "mamba") type = "linear_attention";
    if (type == "attention") type = kFull;
    if (type == "deepseek_sparse_attention" ||
        type == "qwen_sparse_attention" || type == "minimax_m3_sparse") {
      type = "indexed_attention";
    }
  }
  for (const std::string& type : *types) {
    if (std::ranges::none_of(known, [&](const char* k) { return type == k; })) {
      Fail("{} has the entry '{}', known values: {}", c.Path("layer_types"),
           Printable(type), fmt::join(known, ", "));
    }
  }
  return (*types)[static_cast<size_t>(out.layer)];
}

void Reader::CausalWindow(int64_t width) {
  out.window = Window{.left = width - 1, .right = 0};
}

std::optional<int64_t> Reader::SlidingWindow(std::optional<int64_t> usual) {
  const char* key = "sliding_window";
  return c.Absent(key) ? usual : c.MaybeInt(key, 1, kMostLength);
}

void Reader::Attend(std::string name, std::string words,
                    std::shared_ptr<const Encoding> encoding) {
  out.attention.name = std::move(name);
  out.attention.words = std::move(words);
  out.attention.encoding = std::move(encoding);
}

void Reader::NoPosition(const char* words) {
  Attend("none", words, std::make_shared<locus::NoPosition>());
}

void Reader::NoAttention(const char* words) {
  out.attends = false;
  out.rotary.reset();
  out.window.reset();
  out.softcap.reset();
  out.chunk = 0;
  out.temperature = {};
  out.softmax_factor = 1.0;
  NoPosition(words);
}

void Reader::Sinks(const char* tensor) {
  out.sinks = tensor;
  Warn(
      "each head has a learned sink ({} of the layer) in its softmax: give the "
      "call sinks, or multiply the output by sigmoid(lse - sink)",
      out.sinks);
}

void Reader::Sections(const std::vector<int32_t>& axis,
                      const std::string& words) {
  const RotaryFacts& facts = *out.rotary;
  if (facts.changes_with_length) {
    Fail("{} scaling under M-RoPE would change with three lengths at once",
         facts.scaling);
  }
  Rotation rotation;
  rotation.layout = facts.layout;
  rotation.rotary_dim = facts.rotary_dim;
  rotation.first_channel = facts.first_channel;
  rotation.theta = facts.theta;
  rotation.gain = facts.gain;
  rotation.angles = options.angles;
  rotation.axis = axis;
  rotation.packed_from = kPackedFrom;
  rotation.axes = {
      {.divisor = kPackedAxis * kPackedAxis, .modulus = kPackedAxis},
      {.divisor = kPackedAxis, .modulus = kPackedAxis},
      {.divisor = 1, .modulus = kPackedAxis}};
  std::string all = out.attention.words;
  all.replace(0, 4, words);
  Attend("mrope", std::move(all),
         std::make_shared<Tuned>(out.attention.encoding, out.temperature,
                                 std::move(rotation)));
}

Scheme TensorScheme(
    std::string name, std::string words, const NeededTensor& tensor,
    std::function<std::shared_ptr<const Encoding>(Tensor)> make) {
  Scheme scheme;
  scheme.name = std::move(name);
  scheme.words = std::move(words);
  scheme.tensors = {tensor};
  scheme.build = [tensor, make = std::move(make)](const TensorLookup& find) {
    return make(find(tensor));
  };
  return scheme;
}

void Reader::Learned(const std::string& tensor, int64_t rows, int64_t dim,
                     int64_t offset) {
  out.input = TensorScheme(
      "learned",
      fmt::format("learned table of {} rows{}", rows,
                  offset == 0
                      ? ""
                      : fmt::format("; position p takes row p + {}", offset)),
      {.name = tensor, .shape = {rows, dim}, .use = "learned positions"},
      [offset](Tensor table) {
        return std::make_shared<locus::Learned>(std::move(table), offset);
      });
  out.trained_length = rows - offset;
}

void Reader::Sinusoids(int64_t dim, SinusoidLayout layout, int64_t offset) {
  const char* words = layout == SinusoidLayout::kInterleaved
                          ? "sine and cosine interleaved"
                      : layout == SinusoidLayout::kHalves
                          ? "[sin, cos] halves, 10000^(-2i/d)"
                          : "[sin, cos] halves, 10000^(-i/(d/2 - 1))";
  out.input.name = "sinusoidal";
  out.input.words = fmt::format(
      "sinusoids of width {}, {}{}", dim, words,
      offset == 0 ? "" : fmt::format("; positions start at {}", offset));
  out.input.encoding = std::make_shared<Sinusoidal>(
      dim, SinusoidalOptions{.layout = layout, .offset = offset});
}

std::string LongRopeWarning(int64_t original_length) {
  return fmt::format(
      "LongRoPE takes other factors for sequences past {} tokens: cached keys "
      "must be rotated again",
      original_length);
}

std::string_view LayoutWords(PairLayout layout) {
  return layout == PairLayout::kHalves ? "halves" : "interleaved pairs";
}

}  // namespace locus::models
