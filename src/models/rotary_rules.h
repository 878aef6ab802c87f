// RoPE described by a row of rules: what a family's code does that its config
// does not say. Sizes, bases, shares and scalings come from the config,
// completed with the defaults of its class.
#ifndef LOCUS_SRC_MODELS_ROTARY_RULES_H_
#define LOCUS_SRC_MODELS_ROTARY_RULES_H_

#include <array>
#include <functional>

#include "locus/encodings/rope2d.h"
#include "models/families.h"

namespace locus::models {

enum class ScaleRule : uint8_t {
  kHeadDim,      // 1/sqrt(head_dim)
  kOne,          // q and k are normalised
  kMultiplier,   // attention_multiplier; null: 1/sqrt(head_dim)
  kQueryScalar,  // 1/sqrt(query_pre_attn_scalar)
};

// Which layers use a sliding window if `layer_types` is absent.
enum class SlideRule : uint8_t {
  kNone,       // none
  kNotEveryN,  // all but every n-th, (layer + 1) % n == 0
  kNotNth,     // all but layer % n == 0
  kNotLast,    // all but every n-th, counted back from the last layer
  kLate,       // layers from max_window_layers on, if a window is in use
  kWindow,     // all, if sliding_window is not null
  kUnknown,  // by a rule of the class that is not supported: a config must say
};

// Which layers do not rotate.
enum class StillRule : uint8_t {
  kNone,
  kFull,          // those with full attention
  kFullIfWindow,  // the same, but only if sliding_window is not null
  kNullTheta,     // those whose entry of rope_parameters is null
  kZeroTheta,     // those whose entry of layer_rope_theta is 0
};

struct RotaryRules {
  PairLayout layout = PairLayout::kHalves;
  bool encoder = false;  // bidirectional; its windows are radii
  ScaleRule scale = ScaleRule::kHeadDim;
  SlideRule slides = SlideRule::kNone;
  int64_t every = 0;       // the n of `slides`
  Names every_keys = {};   // spellings of n in a config
  bool last_full = false;  // the last layer has full attention in any case
  StillRule still = StillRule::kNone;
  bool window_everywhere = false;  // sliding_window applies to every layer
  bool window_ignored = false;     // the model's own code ignores it
  bool sinks = false;              // in every layer
  bool sinks_sliding = false;      // in layers with a window
  bool softcap = false;            // attn_logit_softcapping
  bool temperature = false;        // llama_4_scaling_beta in rope_parameters
  bool backwards = false;          // rotates by the negative angle
  bool yarn_means_longrope = false;
  // M-RoPE: how pairs are assigned, and the default sections.
  std::optional<MRopeSections> dealing = {};
  std::array<int64_t, 3> sections = {};
  bool time_takes_rest = false;  // pairs beyond those of height and width
  SizeKeys sizes = {.length_required = false};
  Names ignored = {};  // keys of the class without effect
  const char* warning = nullptr;
};

void ReadByRules(Reader& r, const RotaryRules& rules);
std::function<void(Reader&)> ByRules(const RotaryRules& rules);

// M-RoPE (family_multimodal.cc): the sections of a config, or `sections` if it
// has none, and the assignment of pairs to time, height and width by them.
std::array<int64_t, 3> ReadSections(Reader& r, std::array<int64_t, 3> sections,
                                    MRopeSections dealing);
void SetSections(Reader& r, const std::array<int64_t, 3>& sections,
                 MRopeSections dealing);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_ROTARY_RULES_H_
