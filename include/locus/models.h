// Positional encodings of real models: from a config.json (or GGUF metadata) to
// the exact scheme of each layer.
//
// Configs are read strictly: an unused key that concerns positions, a value of
// the wrong type or out of range, contradictory spellings of one setting and an
// unknown model type are errors that name the key and the value.
//
// The logits of a layer are
//   softcap(scale * softmax_factor * temperature(m) * (q.k + tables) + bias)
// where the encoding supplies everything but `scale`, which goes into
// AttentionOptions (see CallOptions).
#ifndef LOCUS_MODELS_H_
#define LOCUS_MODELS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "locus/api.h"
#include "locus/attention.h"
#include "locus/encoding.h"
#include "locus/tensor.h"
#include "locus/terms.h"

namespace locus {
namespace LOCUS_API models {

// A tensor that a scheme needs from the checkpoint.
struct NeededTensor {
  std::string name = {};            // as the model's own code names it
  std::vector<int64_t> shape = {};  // as it is stored
  std::string use = {};             // "learned positions"
};

// Returns the tensor with that name and shape; throws Error if there is none.
using TensorLookup = std::function<Tensor(const NeededTensor&)>;

// How position enters at one place: at the input, or inside attention.
struct Scheme {
  std::string name = "none";  // in the list of encodings
  std::string words = {};     // one line about the scheme
  // The encoding, or null if it needs tensors of the checkpoint (see Build).
  std::shared_ptr<const Encoding> encoding = {};
  std::vector<NeededTensor> tensors = {};
  std::function<std::shared_ptr<const Encoding>(const TensorLookup&)> build =
      {};
};

// The rotary embedding of a layer.
struct RotaryFacts {
  PairLayout layout = PairLayout::kHalves;
  int64_t rotary_dim = 0;
  int64_t first_channel = 0;
  double base = 0.0;
  std::string scaling = "none";  // "llama3", "yarn", ...
  double factor = 1.0;           // of the scaling
  int64_t original_length = 0;   // before the scaling; 0: does not apply
  bool changes_with_length = false;
  // At the trained length: radians per position [rotary_dim / 2], and the
  // factor of cos and sin.
  std::vector<double> theta = {};
  double gain = 1.0;
};

// The tokens of a call. Without positions, keys count from 0 and the last query
// is aligned with the last key, as in AttentionOptions.
struct CallTokens {
  int64_t q_len = 0;
  int64_t k_len = 0;
  // Empty, [length] or [batch * length]; they must outlive the call.
  std::span<const int64_t> q_positions = {};
  std::span<const int64_t> k_positions = {};
};

// The options of a call; owns the segments that their spans point to.
struct TokenOptions {
  TokenOptions() = default;
  TokenOptions(TokenOptions&&) = default;
  TokenOptions& operator=(TokenOptions&&) = default;

  AttentionOptions options = {};
  std::vector<int64_t> q_segments = {};
  std::vector<int64_t> k_segments = {};
};

// How position enters one layer of a model, and what else a call needs.
struct LayerPosition {
  std::string model_type = {};  // as in the config
  std::string family = {};      // "LLaMA"
  std::string part = {};        // "decoder" or "encoder"
  bool other_part = false;      // whether the model has the other part as well
  std::string layer_type = {};  // "full_attention", "sliding_attention", ...
  int64_t layer = 0;
  int64_t layers = 0;  // of this part

  // False for state-space, linear-attention and convolution layers, for which
  // model_dim is the only meaningful field below.
  bool attends = true;
  Scheme input = {};      // added to x
  Scheme attention = {};  // acts on q, k, v and the logits
  std::optional<RotaryFacts> rotary = {};

  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;   // of q and k
  int64_t value_dim = 0;  // of v
  int64_t model_dim = 0;

  bool causal = true;
  std::optional<Window> window = {};
  // Attention within chunks of this many positions, counted from position 0;
  // 0: no chunks.
  int64_t chunk = 0;
  std::optional<double> softcap = {};
  // The name of the layer's attention-sink tensor [q_heads], which goes into
  // AttentionOptions::sinks; empty: none.
  std::string sinks = {};
  double scale = 1.0;  // for AttentionOptions; see the top of this file
  double softmax_factor = 1.0;
  QueryTemperature temperature = {};
  int64_t trained_length = 0;  // positions; 0: the config does not say

  std::vector<std::string> warnings = {};

  // The scheme that the model is known for: that of attention, or that of the
  // input if attention has none.
  const Scheme& Main() const {
    return attention.name != "none" || input.name == "none" ? attention : input;
  }
  // Scale, causality, window and soft cap of a call. Throws Error for a layer
  // that does not attend, and for one with chunks, where visibility depends on
  // the positions of the tokens.
  AttentionOptions CallOptions() const;
  // The same for given tokens. Chunks become segments, or a window if all
  // queries have the same position, as in decoding.
  TokenOptions CallOptions(const CallTokens& tokens) const;
};

struct ReadOptions {
  int64_t layer = 0;
  // "encoder" or "decoder" for models with both; empty: the decoder. For models
  // with nested configs, the key of one ("vision_config"); empty: the text
  // model.
  std::string part = {};
  // Warnings instead of errors for unused keys and contradictions.
  bool lenient = false;
  // Number of positions that tables computed from sinusoids must cover
  // (Transformer-XL, XLNet); 0: the trained length.
  int64_t length = 0;
  // Patch grid of an image, if it differs from the trained one; 0: as trained.
  int64_t grid_height = 0;
  int64_t grid_width = 0;
  // The pair layout of the weights, if it differs from that of the model's own
  // code (GGUF files, Meta's LLaMA weights).
  std::optional<PairLayout> layout = {};
  // kFloat32 matches the arithmetic of Hugging Face's code.
  AngleMode angles = AngleMode::kExact;
};

// Larger files are refused. The largest real config.json files have a few
// megabytes, nearly all of it label names.
inline constexpr size_t kMostConfigBytes = size_t{16} << 20;

class LayerSource;

// A config, parsed once and read for any number of layers. Copies share it.
class ModelConfig {
 public:
  // From the text of a config.json. Throws Error if it cannot be read.
  static ModelConfig Parse(std::string_view json);
  // From a config.json, a folder that contains one, or a GGUF file.
  static ModelConfig Open(const std::string& path);

  // The scheme of layer options.layer. Throws Error, naming the key and the
  // value, if the config is invalid or there is no such layer.
  LayerPosition Layer(const ReadOptions& options = {}) const;

 private:
  explicit ModelConfig(std::shared_ptr<const LayerSource> source);

  std::shared_ptr<const LayerSource> source_;
};

// One layer from the text of a config.json; see ModelConfig.
LayerPosition FromConfig(std::string_view json, const ReadOptions& options);
LayerPosition FromConfig(std::string_view json, int64_t layer = 0);
// One layer from a file or folder, as for ModelConfig::Open.
LayerPosition FromConfigFile(const std::string& path,
                             const ReadOptions& options = {});

// The encoding of a scheme. Throws Error if it needs tensors that `tensors`
// does not provide.
std::shared_ptr<const Encoding> Build(const Scheme& scheme,
                                      const TensorLookup& tensors = {});

// ------------------------------------------------------------- the families

struct FamilyInfo {
  std::string_view name;                      // "LLaMA"
  std::vector<std::string_view> model_types;  // "llama", ...
  std::string_view scheme;                    // one line
  std::string_view traps;                     // common mistakes elsewhere
};

// Every model family that FromConfig supports, in the order of docs/models.md.
std::vector<FamilyInfo> Families();

}  // namespace models
}  // namespace locus

#endif  // LOCUS_MODELS_H_
