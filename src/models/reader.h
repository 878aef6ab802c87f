// What the families share: the steps from a config to a LayerPosition.
#ifndef LOCUS_SRC_MODELS_READER_H_
#define LOCUS_SRC_MODELS_READER_H_

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/fail.h"
#include "locus/encodings/rope.h"
#include "locus/encodings/sinusoidal.h"
#include "locus/models.h"
#include "locus/text.h"
#include "models/config.h"

namespace locus::models {

// Types of layers.
inline constexpr const char* kFull = "full_attention";
inline constexpr const char* kSliding = "sliding_attention";
inline constexpr const char* kLinear = "linear_attention";

// Spellings of the sizes of a stack; the first present counts.
struct SizeKeys {
  Names model_dim = {"hidden_size"};
  Names q_heads = {"num_attention_heads"};
  Names kv_heads = {"num_key_value_heads"};
  Names head_dim = {"head_dim"};
  Names layers = {"num_hidden_layers"};
  Names length = {"max_position_embeddings"};
  bool length_required = true;
  // What the model's own code takes where a config leaves a size out; 0: it may
  // not, or for key heads and widths of heads, that which null means: as many
  // as query heads, and model_dim / heads.
  int64_t default_heads = 0;
  int64_t default_kv_heads = 0;
  int64_t default_head_dim = 0;
  int64_t default_length = 0;
};

// How a family rotates, where its config does not say otherwise.
struct RopeDefaults {
  PairLayout layout = PairLayout::kHalves;
  double base = 10000.0;
  double partial = 1.0;
  Names base_keys = {"rope_theta"};
  Names partial_keys = {"partial_rotary_factor"};
  // Rotating channels; 0: head_dim * partial.
  int64_t rotary_dim = 0;
  RotaryPlace place = RotaryPlace::kLeading;
  RotaryValues values = RotaryValues::kNone;
  // Channels that `partial` is a share of; 0: head_dim.
  int64_t partial_of = 0;
  // Scalings in the config do not concern this layer (Gemma-3 local layers).
  bool unscaled = false;
  // The dict of rope_parameters that concerns this layer, if nested.
  std::string layer_type = {};
  // Old names of scalings: Phi-3 says "su" or "yarn" and means LongRoPE.
  bool yarn_means_longrope = false;
  // The base of this layer out of a list by layer, which wins; 0: no list.
  double listed_base = 0.0;
  // DeepSeek: the softmax scale gains the square of mscale_all_dim's magnitude.
  bool mscale_squared = false;
  // What YaRN multiplies cos and sin by where the config does not say; absent:
  // by its own rule.
  std::optional<double> yarn_gain = {};
};

class Reader {
 public:
  Reader(const Config& config, const ReadOptions& options, LayerPosition& out)
      : c(config), options(options), out(out) {}

  const Config& c;
  const ReadOptions& options;
  LayerPosition& out;

  template <typename... Args>
  void Warn(fmt::format_string<Args...> format, Args&&... args) {
    out.warnings.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  // An error, or with `lenient` a warning.
  template <typename... Args>
  void Refuse(fmt::format_string<Args...> format, Args&&... args) {
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    if (!options.lenient) throw Error(text);
    out.warnings.push_back(std::move(text));
  }
  // Keys that are read and have no bearing; they do not count as unused.
  void Ignore(const Names& keys) {
    for (const char* key : keys) c.Find(key);
  }
  // A key that the model's own code does not look at: a warning if present.
  void IgnoredUpstream(const char* key);
  // A flag that the model's own code does not look at and that may only say
  // what it does anyway.
  void Expect(const char* key, bool value);

  // What any config may say, before and after its family has read it. `beside`
  // is the object that the config stands in, or null.
  void DualChunks();
  void Causality(const Json* beside);

  // The part asked for; fails if the model has no such part.
  bool IsEncoder(bool has_encoder, bool has_decoder);
  // Heads, widths, layers and trained length; scale becomes 1/sqrt(head_dim).
  void Sizes(const SizeKeys& keys = {});
  void Layers(int64_t layers);
  void Heads(int64_t model_dim, int64_t q_heads, int64_t kv_heads,
             int64_t head_dim);
  // The type of this layer from `layer_types`, or empty; fails on an unknown.
  std::string LayerType(const Names& known);
  // Query m sees n with 0 <= m - n < width.
  void CausalWindow(int64_t width);
  // The width under `sliding_window`; `usual` if the key is absent, nothing if
  // it is null.
  std::optional<int64_t> SlidingWindow(std::optional<int64_t> usual = {});

  // Attention turns q and k.
  void Rope(const RopeDefaults& defaults);
  // A scheme at the input.
  void Learned(const std::string& tensor, int64_t rows, int64_t dim,
               int64_t offset);
  void Sinusoids(int64_t dim, SinusoidLayout layout, int64_t offset);
  // A scheme in attention that needs no tensors.
  void Attend(std::string name, std::string words,
              std::shared_ptr<const Encoding> encoding);
  void NoPosition(const char* words);
  // The layer does not attend; `words` says what it does instead. Whatever was
  // read of its attention stays read, and is dropped.
  void NoAttention(const char* words);
  // Each head has a learned logit beside the keys: a tensor of the layer.
  void Sinks(const char* tensor = "self_attn.sinks");
  // Pairs that rotate by time, height or width: the axis of each, after Rope.
  void Sections(const std::vector<int32_t>& axis, const std::string& words);
};

// A scheme made of one tensor: `make` gets it.
Scheme TensorScheme(
    std::string name, std::string words, const NeededTensor& tensor,
    std::function<std::shared_ptr<const Encoding>(Tensor)> make);

// That the table of LongRoPE changes past its original length.
std::string LongRopeWarning(int64_t original_length);

// "interleaved pairs" or "halves".
std::string_view LayoutWords(PairLayout layout);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_READER_H_
