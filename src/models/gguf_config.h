// GGUF's spelling of a config, turned into a config.
#ifndef LOCUS_SRC_MODELS_GGUF_CONFIG_H_
#define LOCUS_SRC_MODELS_GGUF_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "locus/terms.h"
#include "models/gguf.h"
#include "models/gguf_archs.h"
#include "models/json.h"

namespace locus::models {

struct GgufConfig {
  JsonTree fields = {};  // as a config.json has them
  // The pair layout of the weights in such files, not of the model's own code.
  PairLayout layout = PairLayout::kInterleaved;
  // What multiplies cos and sin, where the scaling in `fields` does not say so;
  // and the length up to which LongRoPE takes its short table, 0 if no key says
  // so.
  std::optional<double> attn_factor = {};
  int64_t original_length = 0;
  // Position-related keys that nothing read.
  std::vector<std::string> unused = {};

  const GgufArch* arch = nullptr;
  // Of architectures that are read as such and not as a config: what the layer
  // does. `fields` has its numbers.
  bool attends = true;
  bool slides = false;
  bool windowed = false;  // some layers slide
  bool rotates = true;
  std::optional<bool> causal = {};
  bool sinks = false;
  std::optional<int64_t> indexed = {};  // keys that an indexer keeps
};

// Throws Error for an architecture that is not known. Lists with an entry a
// layer are read for `layer`.
GgufConfig ToConfig(const Gguf& gguf, int64_t layer);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_GGUF_CONFIG_H_
