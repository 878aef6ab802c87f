// The architectures of GGUF files: what llama.cpp's code does for each that the
// metadata does not say.
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

// Which layers slide.
enum class GgufWindows : uint8_t {
  kNever,
  kPattern,  // where a file has a window: all but every period-th
  kListed,   // by a flag for each layer
  kAll,      // where a file has a window: all
};

// Which layers do not rotate.
enum class GgufStill : uint8_t {
  kNone,
  kFull,       // those that do not slide, where some do
  kEveryFour,  // layer + 1 a multiple of 4
  kListed,     // by a flag for each layer, attention.rope_pattern
  kSwitch,     // all, unless rope.scaling.finetuned is true
};

struct GgufArch {
  const char* name;
  GgufScheme scheme = GgufScheme::kFamily;
  PairLayout layout = PairLayout::kHalves;
  // kFamily: the type whose reader serves it; kRefused: why. Else its name.
  const char* text = "";

  GgufWindows windows = GgufWindows::kNever;
  int64_t period = 0;
  bool full_first = false;  // of a period the first layer is full, or the last
  bool radius = false;      // half the window to either side
  int64_t only_layers = 0;  // windows in models of so many layers only
  int64_t window = 0;       // where the file does not say; 0: it must
  bool window_fixed = false;  // whatever the file says
  // Sliding layers: whether their base is 10000 and not that of the others
  // where the file gives them none, and whether the scaling concerns them.
  bool own_base = false;
  bool scaled = true;
  GgufStill still = GgufStill::kNone;
  bool still_leads_rotate = false;  // leading dense layers rotate all the same

  GgufScale scale = GgufScale::kHead;
  double softcap = 0.0;      // where the file does not say; 0: none
  bool both_ways = false;    // where the file does not say
  bool sinks = false;        // of layers that have the tensor
  bool chunks = false;       // Llama 4: windows are chunks
  bool temperature = false;  // attention.temperature_scale
  // Layers without key heads do not attend; where `interval` is not 0, all but
  // every so many.
  bool hybrid = false;
  int64_t interval = 0;
  std::optional<MRopeSections> sections = {};
  bool sections_optional = false;
  bool half_full = false;  // full layers rotate half of what sliding ones do
  bool mscale = false;     // YaRN's magnitude squared enters the scale
};

// Sorted as in llama.cpp.
std::span<const GgufArch> GgufArchs();

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_GGUF_ARCHS_H_
