#include "models/rotary_rules.h"

#include <cmath>

#include "models/tuned.h"

namespace locus::models {
namespace {

constexpr double kMostTheta = 1e18;

// What a layer does instead of attention; null if it attends.
const char* InsteadOfAttention(const std::string& type) {
  if (type == kLinear) {
    return "no attention: a state space or linear attention, which has no "
           "positions of its own";
  }
  if (type == "conv") return "no attention: a short convolution";
  if (type == "recurrent") return "no attention: a recurrent block";
  if (type == "moe" || type == "mlp")
    return "no attention: a feed-forward layer";
  return nullptr;
}

bool SlidesByRule(const Reader& r, const RotaryRules& rules, int64_t every,
                  bool has_window) {
  const int64_t layer = r.out.layer;
  if (rules.last_full && layer + 1 == r.out.layers) return false;
  switch (rules.slides) {
    case SlideRule::kNone:
      return false;
    case SlideRule::kNotEveryN:
      return every == 0 || (layer + 1) % every != 0;
    case SlideRule::kNotNth:
      return layer % every != 0;
    case SlideRule::kNotLast:
      return (r.out.layers - 1 - layer) % every != 0;
    case SlideRule::kLate:
      return has_window &&
             layer >= r.c.IntOr("max_window_layers", 28, 0, kMostLayers);
    case SlideRule::kWindow:
      return has_window;
    case SlideRule::kUnknown:
      Fail("{} is missing: the type of each layer", r.c.Path("layer_types"));
  }
  return false;
}

// Overrides for a single layer, from per_layer_config, whose keys are
// zero-padded indices.
struct LayerOverrides {
  std::optional<int64_t> heads, kv_heads, head_dim;
  bool has_window = false;
  int64_t window = 0;  // 0: none
};

LayerOverrides ReadOverrides(Reader& r) {
  LayerOverrides o;
  const auto all = r.c.MaybeObject("per_layer_config");
  if (!all) return o;
  for (const std::string& key : all->Keys()) {
    // Entries of other layers are marked as used but not read.
    int64_t index = -1;
    if (!key.empty() && key.size() <= 6 &&
        key.find_first_not_of("0123456789") == std::string::npos) {
      index = std::stoll(key);
    }
    if (index < 0 || index >= r.out.layers) {
      Fail("{} is not a layer, 0 .. {}", all->Path(key), r.out.layers - 1);
    }
    const auto one = all->MaybeObject(key.c_str());
    if (!one) continue;
    const auto heads = one->MaybeInt("num_attention_heads", 1, kMostHeads);
    const auto kv = one->MaybeInt("num_key_value_heads", 1, kMostHeads);
    const auto dim = one->MaybeInt("head_dim", 1, kMostHeadDim);
    const bool windowed = !one->Absent("sliding_window");
    const int64_t window = one->IntOr("sliding_window", 0, 1, kMostLength);
    if (index != r.out.layer) continue;
    o = {heads, kv, dim, windowed, window};
  }
  return o;
}

void SetWindow(Reader& r, const RotaryRules& rules, int64_t width) {
  if (rules.encoder) {
    r.out.window = Window{.left = width, .right = width};
  } else {
    r.CausalWindow(width);
  }
}

void SetScale(Reader& r, const RotaryRules& rules) {
  switch (rules.scale) {
    case ScaleRule::kHeadDim:
      return;
    case ScaleRule::kOne:
      r.out.scale = 1.0;
      return;
    case ScaleRule::kMultiplier:
      r.out.scale =
          r.c.NumberOr("attention_multiplier", r.out.scale, 1e-9, 1e9);
      return;
    case ScaleRule::kQueryScalar:
      r.out.scale = 1.0 / std::sqrt(r.c.NumberOr(
                              "query_pre_attn_scalar",
                              static_cast<double>(r.out.head_dim), 1e-9, 1e9));
      return;
  }
}

// The base of this layer from layer_rope_theta; 0 if it does not rotate.
std::optional<double> ListedTheta(Reader& r, const RotaryRules& rules) {
  if (rules.still != StillRule::kZeroTheta) return std::nullopt;
  const auto list =
      r.c.MaybeNumbers("layer_rope_theta", static_cast<size_t>(kMostLayers));
  if (!list) return std::nullopt;
  if (static_cast<int64_t>(list->size()) != r.out.layers) {
    Fail("{} has {} entries for {} layers", r.c.Path("layer_rope_theta"),
         list->size(), r.out.layers);
  }
  const double theta = (*list)[static_cast<size_t>(r.out.layer)];
  if (theta != 0.0 && !(theta > 1.0 && theta <= kMostTheta)) {
    Fail("an entry of {} must be 0 or above 1, got {}",
         r.c.Path("layer_rope_theta"), theta);
  }
  return theta;
}

// Sections of M-RoPE from the config.
void DealPairs(Reader& r, const RotaryRules& rules) {
  auto sections = ReadSections(r, rules.sections, *rules.dealing);
  if (rules.time_takes_rest) {
    sections[0] = r.out.rotary->rotary_dim / 2 - sections[1] - sections[2];
  }
  SetSections(r, sections, *rules.dealing);
}

void SetTemperature(Reader& r) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto object = r.c.MaybeObject(key);
    if (!object) continue;
    object->Find("max_position_embeddings");  // a copy of the one beside
    const auto beta = object->MaybeNumber("llama_4_scaling_beta", 0.0, 1e6);
    if (!beta || *beta == 0.0) continue;
    const auto span =
        object->MaybeInt("original_max_position_embeddings", 1, kMostLength);
    if (!span) {
      Fail("{} is needed beside llama_4_scaling_beta",
           object->Path("original_max_position_embeddings"));
    }
    r.out.temperature = {.beta = *beta, .shift = 0, .span = *span};
  }
}

// Negates every angle.
void TurnBack(Reader& r) {
  for (double& w : r.out.rotary->theta) w = -w;
  const RotaryFacts& facts = *r.out.rotary;
  Rotation rotation;
  rotation.layout = facts.layout;
  rotation.rotary_dim = facts.rotary_dim;
  rotation.theta = facts.theta;
  rotation.gain = facts.gain;
  rotation.angles = r.options.angles;
  r.Attend("rope", r.out.attention.words + ", backwards",
           std::make_shared<Tuned>(r.out.attention.encoding, QueryTemperature{},
                                   std::move(rotation)));
}

// Whether the entry of this layer's type is present and null (Beam).
bool NullEntry(Reader& r) {
  const Json* object = r.c.Find("rope_parameters");
  if (object == nullptr || !object->is_object()) return false;
  const auto at = object->find(r.out.layer_type);
  return at != object->end() && at->is_null();
}

}  // namespace

void ReadByRules(Reader& r, const RotaryRules& rules) {
  if (rules.encoder) {
    r.out.part = "encoder";
    r.out.causal = false;
  }
  r.Sizes(rules.sizes);
  r.Ignore(rules.ignored);
  const LayerOverrides own = ReadOverrides(r);
  if (own.heads || own.kv_heads || own.head_dim) {
    r.Heads(r.out.model_dim, own.heads.value_or(r.out.q_heads),
            own.kv_heads.value_or(r.out.kv_heads),
            own.head_dim.value_or(r.out.head_dim));
  }

  // 0: no window.
  int64_t width = r.c.IntOr("sliding_window", 0, 1, kMostLength);
  if (!r.c.FlagOr("use_sliding_window", true)) width = 0;
  if (own.has_window) width = own.window;
  const int64_t every = rules.every_keys.empty()
                            ? rules.every
                            : r.c.MaybeIntOf(rules.every_keys, 0, kMostLayers)
                                  .value_or(rules.every);
  r.c.MaybeInt("max_window_layers", 0, kMostLayers);
  std::string type = r.LayerType({kFull, kSliding, kLinear, "conv", "moe",
                                  "mlp", "recurrent", "indexed_attention"});
  if (type.empty()) {
    type = SlidesByRule(r, rules, every, width != 0) ? kSliding : kFull;
  }
  r.out.layer_type = type;
  const bool slides = type == kSliding;
  if (rules.window_ignored) {
    if (width != 0) r.IgnoredUpstream("sliding_window");
  } else if (slides || (rules.window_everywhere && width != 0)) {
    if (width == 0) {
      Fail("layer {} slides, but {} is missing", r.out.layer,
           r.c.Path("sliding_window"));
    }
    SetWindow(r, rules, width);
  }
  SetScale(r, rules);
  if (rules.softcap) {
    const double cap = r.c.NumberOr("attn_logit_softcapping", 0.0, 0.0, 1e9);
    if (cap > 0.0) r.out.softcap = cap;
  }
  if (rules.temperature) SetTemperature(r);
  if (rules.warning != nullptr) r.Warn("{}", rules.warning);

  const auto theta = ListedTheta(r, rules);
  const bool nothing = rules.still == StillRule::kNullTheta && NullEntry(r);
  // Without the list, the class derives it from the layer types.
  const bool by_type = rules.still == StillRule::kZeroTheta && !theta &&
                       rules.slides == SlideRule::kNotLast && !slides;
  const bool still =
      nothing || by_type || (theta && *theta == 0.0) ||
      (!slides && (rules.still == StillRule::kFull ||
                   (rules.still == StillRule::kFullIfWindow && width != 0)));
  // Read even if nothing rotates, so that its fields count as used.
  r.Rope({.layout = rules.layout,
          .layer_type = type,
          .yarn_means_longrope = rules.yarn_means_longrope,
          .listed_base = theta.value_or(0.0)});
  if (rules.dealing) DealPairs(r, rules);
  if (const char* instead = InsteadOfAttention(type)) {
    r.NoAttention(instead);
    return;
  }
  if (rules.backwards) TurnBack(r);
  if (still) {
    r.out.rotary.reset();
    r.NoPosition("no position in this layer");
  }
  if (rules.sinks || (rules.sinks_sliding && slides)) {
    r.Sinks();
  }
}

std::function<void(Reader&)> ByRules(const RotaryRules& rules) {
  return [rules](Reader& r) { ReadByRules(r, rules); };
}

}  // namespace locus::models
