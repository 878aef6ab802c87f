// Shared code of the families: the steps from a config to a LayerPosition.
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

// Spellings of the sizes of a stack; the first one present is used.
struct SizeKeys {
  Names model_dim = {"hidden_size"};
  Names q_heads = {"num_attention_heads"};
  Names kv_heads = {"num_key_value_heads"};
  Names head_dim = {"head_dim"};
  Names layers = {"num_hidden_layers"};
  Names length = {"max_position_embeddings"};
  bool length_required = true;
  // What the model's own code uses if a config omits a size. 0: it may not be
  // omitted; or for key heads and head widths the meaning of null: as many as
  // query heads, and model_dim / heads.
  int64_t default_heads = 0;
  int64_t default_kv_heads = 0;
  int64_t default_head_dim = 0;
  int64_t default_length = 0;
};

// How a family rotates unless its config says otherwise.
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
  // Scalings in the config do not apply to this layer (Gemma-3 local layers).
  bool unscaled = false;
  // The dict of rope_parameters for this layer, if they are nested.
  std::string layer_type = {};
  // Old names of scalings: in Phi-3, "su" and "yarn" mean LongRoPE.
  bool yarn_means_longrope = false;
  // The base of this layer from a list by layer, which takes precedence; 0: no
  // list.
  double listed_base = 0.0;
  // DeepSeek: the softmax scale is multiplied by the square of mscale_all_dim's
  // magnitude.
  bool mscale_squared = false;
  // YaRN's default factor of cos and sin; absent: computed by its own rule.
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
  // An error or, with `lenient`, a warning.
  template <typename... Args>
  void Refuse(fmt::format_string<Args...> format, Args&&... args) {
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    if (!options.lenient) throw Error(text);
    out.warnings.push_back(std::move(text));
  }
  // Marks keys without effect as used.
  void Ignore(const Names& keys) {
    for (const char* key : keys) c.Find(key);
  }
  // Warns if a key is present that the model's own code ignores.
  void IgnoredUpstream(const char* key);
  // A flag that the model's own code ignores: fails unless it is absent or
  // describes what the code does.
  void Expect(const char* key, bool value);

  // Keys that any config may have, checked before and after its family has read
  // it. `beside` is the parent of the config, or null.
  void DualChunks();
  void Causality(const Json* beside);

  // Whether the encoder is read; fails if the model does not have the requested
  // part.
  bool IsEncoder(bool has_encoder, bool has_decoder);
  // Heads, widths, layers and trained length; scale becomes 1/sqrt(head_dim).
  void Sizes(const SizeKeys& keys = {});
  void Layers(int64_t layers);
  void Heads(int64_t model_dim, int64_t q_heads, int64_t kv_heads,
             int64_t head_dim);
  // The type of this layer from `layer_types`, or empty; fails if it is not in
  // `known`.
  std::string LayerType(const Names& known);
  // Query m sees keys n with 0 <= m - n < width.
  void CausalWindow(int64_t width);
  // The width under `sliding_window`; `usual` if the key is absent, and nothing
  // if it is null.
  std::optional<int64_t> SlidingWindow(std::optional<int64_t> usual = {});

  // Attention rotates q and k.
  void Rope(const RopeDefaults& defaults);
  // Positions are added to the input.
  void Learned(const std::string& tensor, int64_t rows, int64_t dim,
               int64_t offset);
  void Sinusoids(int64_t dim, SinusoidLayout layout, int64_t offset);
  // A scheme within attention that needs no tensors.
  void Attend(std::string name, std::string words,
              std::shared_ptr<const Encoding> encoding);
  void NoPosition(const char* words);
  // The layer does not attend; `words` says what it does instead. Keys of its
  // attention that were read remain used, and their values are dropped.
  void NoAttention(const char* words);
  // Each head has a learned sink logit, from a tensor of the layer.
  void Sinks(const char* tensor = "self_attn.sinks");
  // Pairs rotate by time, height or width: `axis` is that of each pair. Call
  // after Rope.
  void Sections(const std::vector<int32_t>& axis, const std::string& words);
};

// A scheme made from a single tensor, which `make` receives.
Scheme TensorScheme(
    std::string name, std::string words, const NeededTensor& tensor,
    std::function<std::shared_ptr<const Encoding>(Tensor)> make);

// The warning that LongRoPE changes its table past the original length.
std::string LongRopeWarning(int64_t original_length);

// "interleaved pairs" or "halves".
std::string_view LayoutWords(PairLayout layout);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_READER_H_
