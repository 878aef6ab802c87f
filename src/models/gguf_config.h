// Converts GGUF metadata to a config.
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
  JsonTree fields = {};  // as in a config.json
  // The pair layout of the weights in such files, which may differ from that of
  // the model's own code.
  PairLayout layout = PairLayout::kInterleaved;
  // The factor of cos and sin, unless the scaling in `fields` includes it; and
  // the length up to which LongRoPE uses its short table, 0 if no key gives it.
  std::optional<double> attn_factor = {};
  int64_t original_length = 0;
  // Keys related to positions that nothing read.
  std::vector<std::string> unused = {};

  const GgufArch* arch = nullptr;
  // For architectures that are read directly rather than as a config: what the
  // layer does. `fields` has its numbers.
  bool attends = true;
  bool slides = false;
  bool windowed = false;  // some layers use a window
  bool rotates = true;
  std::optional<bool> causal = {};
  bool sinks = false;
  std::optional<int64_t> indexed = {};  // number of keys that an indexer keeps
};

// Throws Error for an unknown architecture. Lists with one entry per layer are
// read for `layer`.
GgufConfig ToConfig(const Gguf& gguf, int64_t layer);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_GGUF_CONFIG_H_
