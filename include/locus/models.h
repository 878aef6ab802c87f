// Real models: from a config.json to the exact positions of each layer.
//
// A config is read strictly: a position-related key that nothing used, a value
// of the wrong type or out of range, two spellings that contradict each other
// and an unknown model type are errors that name the key and the value.
//
// The logits of a layer are
//   softcap(scale * softmax_factor * temperature(m) * (q.k + tables) + bias)
// where the encoding brings everything but `scale`, which goes into
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

// A tensor of the checkpoint that a scheme is made of.
struct NeededTensor {
  std::string name = {};            // as the model's own code names it
  std::vector<int64_t> shape = {};  // as it is stored
  std::string use = {};             // "learned positions"
};

// Gives the tensor of a name and shape; throws Error if there is none.
using TensorLookup = std::function<Tensor(const NeededTensor&)>;

// One way in which position enters: at the input, or inside attention.
struct Scheme {
  std::string name = "none";  // of the list of encodings
  std::string words = {};     // the scheme in one line
  // Ready-made; null if tensors of the checkpoint are needed first.
  std::shared_ptr<const Encoding> encoding = {};
  std::vector<NeededTensor> tensors = {};
  std::function<std::shared_ptr<const Encoding>(const TensorLookup&)> build =
      {};
};

// What rotates, where a layer rotates.
struct RotaryFacts {
  PairLayout layout = PairLayout::kHalves;
  int64_t rotary_dim = 0;
  int64_t first_channel = 0;
  double base = 0.0;
  std::string scaling = "none";  // "llama3", "yarn", ...
  double factor = 1.0;           // of the scaling
  int64_t original_length = 0;   // before the scaling; 0: no such thing
  bool changes_with_length = false;
  // At the trained length: radians per position, and what multiplies cos and
  // sin.
  std::vector<double> theta = {};
  double gain = 1.0;
};

// The tokens of a call. Without positions keys count from 0 and queries end
// where the keys end, as in AttentionOptions.
struct CallTokens {
  int64_t q_len = 0;
  int64_t k_len = 0;
  // Empty, [length] or [batch * length]; they must outlive the call.
  std::span<const int64_t> q_positions = {};
  std::span<const int64_t> k_positions = {};
};

// The options of a call, with the memory that their spans point to.
struct TokenOptions {
  TokenOptions() = default;
  TokenOptions(TokenOptions&&) = default;
  TokenOptions& operator=(TokenOptions&&) = default;

  AttentionOptions options = {};
  std::vector<int64_t> q_segments = {};
  std::vector<int64_t> k_segments = {};
};

struct LayerPosition {
  std::string model_type = {};  // as the config says
  std::string family = {};      // "LLaMA"
  std::string part = {};        // "decoder" or "encoder"
  bool other_part = false;      // whether the model has the other one too
  std::string layer_type = {};  // "full_attention", "sliding_attention", ...
  int64_t layer = 0;
  int64_t layers = 0;  // of this part

  // Whether the layer attends at all. Layers of state spaces, linear attention
  // and convolutions do not: nothing below but model_dim concerns them.
  bool attends = true;
  Scheme input = {};      // what is added to x
  Scheme attention = {};  // what acts on q, k, v and the logits
  std::optional<RotaryFacts> rotary = {};

  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;   // of q and k
  int64_t value_dim = 0;  // of v
  int64_t model_dim = 0;

  bool causal = true;
  std::optional<Window> window = {};
  // Tokens see only tokens of their own chunk of this many positions; 0: all.
  // Chunks are counted from position 0.
  int64_t chunk = 0;
  std::optional<double> softcap = {};
  // The layer's tensor [q_heads] of logits that join the softmax beside the
  // keys, which goes into AttentionOptions::sinks; empty: none.
  std::string sinks = {};
  double scale = 1.0;  // the caller's part; see the top of this file
  double softmax_factor = 1.0;
  QueryTemperature temperature = {};
  int64_t trained_length = 0;  // positions; 0: the config does not say

  std::vector<std::string> warnings = {};

  // The scheme that one would name: that of attention, or that of the input
  // where attention itself has none.
  const Scheme& Main() const {
    return attention.name != "none" || input.name == "none" ? attention : input;
  }
  // Scale, mask, window and soft cap of a call. Throws Error for a layer that
  // does not attend, and for one with chunks: which keys a query sees then
  // depends on the tokens.
  AttentionOptions CallOptions() const;
  // The same for these tokens, at their positions. Chunks become segments, or
  // a window where all queries have one position, as in decoding.
  TokenOptions CallOptions(const CallTokens& tokens) const;
};

struct ReadOptions {
  int64_t layer = 0;
  // "encoder" or "decoder", where a model has both; empty: the decoder. Of a
  // model of several configs, the key of one of them ("vision_config"); empty:
  // the text model.
  std::string part = {};
  // Warnings instead of errors for unused keys and contradictions.
  bool lenient = false;
  // Positions that tables made from sinusoids must serve (Transformer-XL,
  // XLNet); 0: the trained length.
  int64_t length = 0;
  // Patches of an image in a raster other than the trained one; 0: as trained.
  int64_t grid_height = 0;
  int64_t grid_width = 0;
  // The pair layout of these weights, where it is not that of the model's own
  // code (GGUF files, Meta's LLaMA weights).
  std::optional<PairLayout> layout = {};
  // kFloat32 for parity with the arithmetic of the Hugging Face code.
  AngleMode angles = AngleMode::kExact;
};

// More bytes than any config.json has: lists of labels make the largest ones,
// of a few megabytes.
inline constexpr size_t kMostConfigBytes = size_t{16} << 20;

class LayerSource;

// A config that is parsed once and read for any number of layers.
class ModelConfig {
 public:
  // From the text of a config.json.
  static ModelConfig Parse(std::string_view json);
  // From a config.json, a folder that holds one, or a GGUF file.
  static ModelConfig Open(const std::string& path);

  // The position of options.layer.
  LayerPosition Layer(const ReadOptions& options = {}) const;

 private:
  explicit ModelConfig(std::shared_ptr<const LayerSource> source);

  std::shared_ptr<const LayerSource> source_;
};

// One layer from the text of a config.json.
LayerPosition FromConfig(std::string_view json, const ReadOptions& options);
LayerPosition FromConfig(std::string_view json, int64_t layer = 0);
// From the file itself, as ModelConfig::Open.
LayerPosition FromConfigFile(const std::string& path,
                             const ReadOptions& options = {});

// The encoding of a scheme, from tensors where it needs any.
std::shared_ptr<const Encoding> Build(const Scheme& scheme,
                                      const TensorLookup& tensors = {});

// ------------------------------------------------------------- the families

struct FamilyInfo {
  std::string_view name;                      // "LLaMA"
  std::vector<std::string_view> model_types;  // "llama", ...
  std::string_view scheme;                    // one line
  std::string_view traps;                     // what goes wrong elsewhere
};

// Every family that FromConfig knows, in the order of docs/models.md.
std::vector<FamilyInfo> Families();

}  // namespace models
}  // namespace locus

#endif  // LOCUS_MODELS_H_
