// The architectures of GGUF files: for each, what llama.cpp's code does that
// the metadata does not say.
#ifndef LOCUS_SRC_MODELS_GGUF_ARCHS_H_
#define LOCUS_SRC_MODELS_GGUF_ARCHS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "locus/encodings/rope2d.h"
#include "locus/terms.h"

namespace locus::models {

enum class GgufScheme : uint8_t {
  kFamily,     // read as a config of `model_type`
  kRotary,     // q and k rotate
  kLatent,     // the last channels of a head rotate
  kLearned,    // a table at the input
  kAlibi,      // a linear bias
  kBuckets,    // T5's bias
  kNone,       // attention without positions
  kRecurrent,  // no layer attends
  kRefused,    // known, and not read
};

// The scale of the logits.
enum class GgufScale : uint8_t {
  kHead,     // 1/sqrt(key length)
  kKey,      // attention.scale; absent or 0: 1/sqrt(key length)
  kOne,      // 1
  kInverse,  // 1/key length
  kOutput,   // attention.output_scale; absent: 0.08838834764831845
};

// Which layers use a sliding window.
enum class GgufWindows : uint8_t {
  kNever,
  kPattern,  // if the file has a window: all but every period-th
  kListed,   // by a flag per layer
  kAll,      // if the file has a window: all
};

// Which layers do not rotate.
enum class GgufStill : uint8_t {
  kNone,
  kFull,       // those without a window, if some have one
  kEveryFour,  // layer + 1 a multiple of 4
  kListed,     // by a flag per layer, attention.rope_pattern
  kSwitch,     // all, unless rope.scaling.finetuned is true
};

struct GgufArch {
  const char* name;
  GgufScheme scheme = GgufScheme::kFamily;
  PairLayout layout = PairLayout::kHalves;
  // kFamily: the model type whose reader is used; kRefused: the reason;
  // otherwise the architecture's name.
  const char* text = "";

  GgufWindows windows = GgufWindows::kNever;
  int64_t period = 0;
  bool full_first = false;  // the first layer of a period is full, or the last
  bool radius = false;      // the window is half to either side
  int64_t only_layers = 0;  // windows only in models with this many layers
  int64_t window = 0;       // default; 0: the file must give it
  bool window_fixed = false;  // overrides the file
  // Sliding layers: whether their base defaults to 10000 rather than that of
  // the other layers, and whether the scaling applies to them.
  bool own_base = false;
  bool scaled = true;
  GgufStill still = GgufStill::kNone;
  bool still_leads_rotate = false;  // leading dense layers rotate nevertheless

  GgufScale scale = GgufScale::kHead;
  double softcap = 0.0;      // default; 0: none
  bool both_ways = false;    // default of bidirectional attention
  bool sinks = false;        // in layers that have the tensor
  bool chunks = false;       // Llama 4: windows are chunks
  bool temperature = false;  // attention.temperature_scale
  // Layers without key heads do not attend; if `interval` is not 0, only every
  // interval-th layer attends.
  bool hybrid = false;
  int64_t interval = 0;
  std::optional<MRopeSections> sections = {};
  bool sections_optional = false;
  bool half_full = false;  // full layers rotate half as many channels
  bool mscale = false;     // YaRN's magnitude squared enters the scale
};

// In the order of llama.cpp.
std::span<const GgufArch> GgufArchs();

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_GGUF_ARCHS_H_
