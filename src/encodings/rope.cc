// RoPE: rotary position embedding.
//
//   f(x, m)_p = (x_a cos(m w_p) - x_b sin(m w_p),
//                x_a sin(m w_p) + x_b cos(m w_p)),   w_p = base^(-2p / r)
//   s = scale * f(q, m).f(k, n)       depends on m - n only
//
// for the pairs (a, b) of the first (or last) r channels of a head. Scalings
// change the frequencies w_p, and three separate scalars: a gain on cos and
// sin, a factor of the softmax scale, and a temperature of the query. Values
// may rotate too: o = R_m^-1 sum_j p_ij R_n v_j, or without the R_m^-1.
// Su et al., "RoFormer" (2021); Chen et al., "Position Interpolation" (2023);
// Peng et al., "YaRN" (2023); Ding et al., "LongRoPE" (2024).
#include "locus/encodings/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "encodings/common.h"

namespace locus {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// 1 / base^(2i / dim) in float32, as in the Hugging Face code.
std::vector<double> Float32Frequencies(int64_t dim, double base) {
  std::vector<double> theta;
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    theta.push_back(1.0F / std::pow(static_cast<float>(base), exponent));
  }
  return theta;
}

// NTK-aware scaling of the base: the slowest pair is interpolated by `ratio`,
// and the fastest is unchanged.
double StretchedBase(double base, double ratio, int64_t dim) {
  const double r = static_cast<double>(dim);
  return base * std::pow(ratio, r / (r - 2.0));
}

// YaRN's ramp: 0 for pairs that keep their frequency, 1 for interpolated pairs.
double YarnRamp(const YarnScaling& yarn, double base, int64_t dim, int64_t p) {
  const double r = static_cast<double>(dim);
  // The pair that makes `turns` full rotations over the original length.
  const auto pair_of = [&](double turns) {
    return r *
           std::log(static_cast<double>(yarn.original_length) /
                    (turns * kTwoPi)) /
           (2.0 * std::log(base));
  };
  double low = pair_of(yarn.beta_fast);
  double high = pair_of(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, r - 1.0);
  if (low == high) high += 0.001;  // a step, not a division by zero
  return std::clamp((static_cast<double>(p) - low) / (high - low), 0.0, 1.0);
}

// YaRN's magnitude 0.1 k ln(s) + 1.
double YarnMagnitude(double factor, double k) {
  return factor <= 1.0 ? 1.0 : 0.1 * k * std::log(factor) + 1.0;
}

double YarnGain(const YarnScaling& yarn) {
  if (yarn.attention_factor) return *yarn.attention_factor;
  if (yarn.mscale && yarn.mscale_all_dim) {
    return YarnMagnitude(yarn.factor, *yarn.mscale) /
           YarnMagnitude(yarn.factor, *yarn.mscale_all_dim);
  }
  return YarnMagnitude(yarn.factor, 1.0);
}

double LongRopeGain(const LongRopeScaling& s) {
  if (s.attention_factor) return *s.attention_factor;
  if (s.factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(s.factor) /
                             std::log(static_cast<double>(s.original_length)));
}

double Llama3Frequency(const Llama3Scaling& s, double w) {
  const double wavelength = kTwoPi / w;
  const double length = static_cast<double>(s.original_length);
  if (wavelength < length / s.high_freq_factor) return w;
  if (wavelength > length / s.low_freq_factor) return w / s.factor;
  const double smooth = (length / wavelength - s.low_freq_factor) /
                        (s.high_freq_factor - s.low_freq_factor);
  return (1.0 - smooth) * w / s.factor + smooth * w;
}

void CheckLength(const char* what, int64_t length) {
  if (length < 1) Fail("{} must be positive, got {}", what, length);
}

// Checks a scaling against a rotary dim.
struct CheckScaling {
  int64_t rotary_dim;
  int64_t head_dim;

  void Stretchable(const char* what) const {
    if (rotary_dim <= 2) {
      Fail("{} needs more than one rotary pair, got rotary_dim {}", what,
           rotary_dim);
    }
  }
  void operator()(std::monostate) const {}
  void operator()(const LinearScaling& s) const {
    CheckPositive("linear scaling's factor", s.factor);
  }
  void operator()(const DynamicScaling& s) const {
    CheckPositive("dynamic scaling's factor", s.factor);
    CheckLength("dynamic scaling's max_length", s.max_length);
    Stretchable("dynamic scaling");
  }
  void operator()(const AlphaScaling& s) const {
    CheckPositive("alpha scaling's alpha", s.alpha);
    Stretchable("alpha scaling");
  }
  void operator()(const YarnScaling& s) const {
    CheckPositive("YaRN's factor", s.factor);
    CheckPositive("YaRN's beta_fast", s.beta_fast);
    CheckPositive("YaRN's beta_slow", s.beta_slow);
    CheckLength("YaRN's original_length", s.original_length);
    CheckPositive("YaRN's attention_factor", YarnGain(s));
  }
  void operator()(const LongRopeScaling& s) const {
    CheckLength("LongRoPE's original_length", s.original_length);
    CheckPositive("LongRoPE's attention_factor", LongRopeGain(s));
    for (const auto* list : {&s.short_factor, &s.long_factor}) {
      if (static_cast<int64_t>(list->size()) != rotary_dim / 2) {
        Fail("LongRoPE needs {} factors in each list, got {}", rotary_dim / 2,
             list->size());
      }
      for (double f : *list) CheckPositive("a LongRoPE factor", f);
    }
  }
  void operator()(const Llama3Scaling& s) const {
    CheckPositive("llama3 scaling's factor", s.factor);
    CheckPositive("llama3 scaling's low_freq_factor", s.low_freq_factor);
    CheckLength("llama3 scaling's original_length", s.original_length);
    if (!(s.high_freq_factor > s.low_freq_factor)) {
      Fail(
          "llama3 scaling needs high_freq_factor > low_freq_factor, got {} "
          "and {}",
          s.high_freq_factor, s.low_freq_factor);
    }
  }
  void operator()(const ProportionalScaling& s) const {
    CheckPositive("proportional scaling's factor", s.factor);
    if (!(s.partial > 0.0 && s.partial <= 1.0)) {
      Fail("proportional scaling's partial must lie in (0, 1], got {}",
           s.partial);
    }
    if (rotary_dim != head_dim) {
      Fail("proportional scaling pairs the whole head of {}, got rotary_dim {}",
           head_dim, rotary_dim);
    }
  }
};

// Applies a scaling to the frequencies and the gain of a rotation.
struct ApplyScaling {
  Rotation& rotation;
  double base;
  int64_t length;

  std::vector<double> Frequencies(double with_base) const {
    return rotation.angles == AngleMode::kFloat32
               ? Float32Frequencies(rotation.rotary_dim, with_base)
               : RopeFrequencies(rotation.rotary_dim, with_base);
  }
  void operator()(std::monostate) const {}
  void operator()(const LinearScaling& s) const {
    for (double& w : rotation.theta) w /= s.factor;
  }
  void operator()(const DynamicScaling& s) const {
    if (length <= s.max_length) return;
    const double ratio = s.factor * static_cast<double>(length) /
                             static_cast<double>(s.max_length) -
                         (s.factor - 1.0);
    rotation.theta =
        Frequencies(StretchedBase(base, ratio, rotation.rotary_dim));
  }
  void operator()(const AlphaScaling& s) const {
    rotation.theta =
        Frequencies(StretchedBase(base, s.alpha, rotation.rotary_dim));
  }
  void operator()(const YarnScaling& s) const {
    for (size_t p = 0; p < rotation.theta.size(); ++p) {
      const double ramp =
          YarnRamp(s, base, rotation.rotary_dim, static_cast<int64_t>(p));
      double& w = rotation.theta[p];
      w = w / s.factor * ramp + w * (1.0 - ramp);
    }
    rotation.gain = YarnGain(s);
  }
  void operator()(const LongRopeScaling& s) const {
    const auto& divisors =
        length > s.original_length ? s.long_factor : s.short_factor;
    for (size_t p = 0; p < rotation.theta.size(); ++p) {
      rotation.theta[p] /= divisors[p];
    }
    rotation.gain = LongRopeGain(s);
  }
  void operator()(const Llama3Scaling& s) const {
    for (double& w : rotation.theta) w = Llama3Frequency(s, w);
  }
  void operator()(const ProportionalScaling& s) const {
    // The exponent runs over the whole head; pairs past the share do not
    // rotate.
    const size_t moving = static_cast<size_t>(
        s.partial * static_cast<double>(rotation.rotary_dim) / 2.0);
    for (size_t p = 0; p < rotation.theta.size(); ++p) {
      rotation.theta[p] = p < moving ? rotation.theta[p] / s.factor : 0.0;
    }
  }
};

}  // namespace

std::vector<double> RopeFrequencies(int64_t dim, double base) {
  std::vector<double> theta;
  for (int64_t i = 0; i < dim / 2; ++i) {
    theta.push_back(
        std::pow(base, -static_cast<double>(2 * i) / static_cast<double>(dim)));
  }
  return theta;
}

Rope::Rope(int64_t head_dim, PairLayout layout, RopeOptions options)
    : head_dim_(head_dim), layout_(layout), options_(std::move(options)) {
  CheckSize("RoPE's head_dim", head_dim);
  if (options_.rotary_dim == 0) options_.rotary_dim = head_dim;
  const int64_t r = options_.rotary_dim;
  if (r < 2 || r % 2 != 0 || r > head_dim) {
    Fail("rotary_dim must be even and at most head_dim {}, got {}", head_dim,
         r);
  }
  CheckPositive("RoPE's base", options_.base);
  CheckPositive("RoPE's softmax_factor", options_.softmax_factor);
  if (!std::isfinite(options_.temperature_beta) ||
      options_.temperature_span < 1) {
    Fail(
        "the query temperature needs a finite beta and a positive span, got "
        "{} and {}",
        options_.temperature_beta, options_.temperature_span);
  }
  std::visit(CheckScaling{r, head_dim}, options_.scaling);
  if (!options_.frequencies.empty()) {
    if (static_cast<int64_t>(options_.frequencies.size()) != r / 2) {
      Fail("rotary_dim {} needs {} frequencies, got {}", r, r / 2,
           options_.frequencies.size());
    }
    for (double w : options_.frequencies) {
      if (!std::isfinite(w)) Fail("a RoPE frequency is not finite: {}", w);
    }
    if (std::holds_alternative<DynamicScaling>(options_.scaling) ||
        std::holds_alternative<AlphaScaling>(options_.scaling)) {
      Fail(
          "given frequencies have no base to stretch: dynamic and alpha "
          "scaling need a base");
    }
  }
}

bool Rope::ChangesWithLength() const {
  return std::holds_alternative<DynamicScaling>(options_.scaling) ||
         std::holds_alternative<LongRopeScaling>(options_.scaling);
}

Rotation Rope::RotationFor(int64_t length) const {
  Rotation rotation;
  rotation.layout = layout_;
  rotation.rotary_dim = options_.rotary_dim;
  rotation.first_channel = options_.place == RotaryPlace::kTrailing
                               ? head_dim_ - options_.rotary_dim
                               : 0;
  rotation.angles = options_.angles;
  const ApplyScaling apply{rotation, options_.base, length};
  rotation.theta = options_.frequencies.empty()
                       ? apply.Frequencies(options_.base)
                       : options_.frequencies;
  std::visit(apply, options_.scaling);
  return rotation;
}

Lowered Rope::Lower(const Shape& shape) const {
  CheckCallDim("RoPE", head_dim_, shape);
  Lowered lowered = LowerPlain(shape);
  Scale& scale = lowered.terms.scale;
  scale.scale *= options_.softmax_factor;
  if (options_.temperature_beta != 0.0) {
    const QueryTemperature temperature{.beta = options_.temperature_beta,
                                       .shift = options_.temperature_shift,
                                       .span = options_.temperature_span};
    temperature.Set(shape, scale);
  }
  lowered.terms.rotate = RotationFor(shape.MaxPosition() + 1);
  if (options_.values == RotaryValues::kNone) return lowered;
  ValueRotation values{.rotation = *lowered.terms.rotate,
                       .relative = options_.values == RotaryValues::kRelative};
  if (options_.place == RotaryPlace::kTrailing) {
    values.rotation.first_channel =
        shape.value_dim.value_or(head_dim_) - options_.rotary_dim;
  }
  lowered.terms.rotate_values = std::move(values);
  return lowered;
}

namespace {

// The scaling of an example.
RopeScaling ScalingOf(const FieldValues& o, int64_t length) {
  const std::string& kind = o.Word("scaling");
  for (const char* name : {"factor", "original_length", "partial"}) {
    const bool used = std::string_view(name) == "partial"
                          ? kind == "proportional"
                          : kind != "none";
    if (o.Given(name) && !used) {
      Fail("rope option {} has no use with scaling={}", name, kind);
    }
  }
  const double factor = o.Real("factor");
  const int64_t original = o.IntOrNone("original_length").value_or(length);
  if (kind == "none") return {};
  if (kind == "linear") return LinearScaling{.factor = factor};
  if (kind == "dynamic") {
    return DynamicScaling{.factor = factor, .max_length = original};
  }
  if (kind == "ntk") return AlphaScaling{.alpha = factor};
  if (kind == "yarn") {
    return YarnScaling{.factor = factor, .original_length = original};
  }
  if (kind == "llama3") {
    return Llama3Scaling{.factor = factor, .original_length = original};
  }
  return ProportionalScaling{.partial = o.Real("partial"), .factor = factor};
}

constexpr Field kRopeBase = BaseField("10000.0");
constexpr Field kRotaryDim = {
    .name = "rotary_dim",
    .fallback = "None",
    .optional = true,
    .sentence =
        "how many channels rotate, the first ones or (place=\"trailing\") "
        "the last; None: all"};
// In the order of RotaryValues.
constexpr Field kValues = {
    .name = "values",
    .type = FieldType::kChoice,
    .fallback = "none",
    .choices = "none|relative|absolute",
    .by_name = true,
    .sentence =
        "\"relative\" rotates values at the key and outputs back at the "
        "query (DeepSeek-V4), \"absolute\" leaves the outputs (RoFormer's "
        "rotary_value)"};
constexpr Field kRopeFields[] = {
    {.name = "head_dim", .sentence = "channels of a head"},
    kLayoutField,
    kRopeBase,
    kRotaryDim,
    {.name = "scaling",
     .type = FieldType::kObject,
     .fallback = "None",
     .optional = true,
     .sentence =
         "a dict as in config.json, such as {\"rope_type\": \"linear\", "
         "\"factor\": 4.0}; a key it does not use is a ValueError"},
    {.name = "angles",
     .type = FieldType::kChoice,
     .fallback = "exact",
     .choices = "exact|float32",
     .sentence = "\"exact\" (float64 from the integer position) or \"float32\" "
                 "(as Hugging Face computes them)"},
    {.name = "place",
     .type = FieldType::kChoice,
     .fallback = "leading",
     .choices = "leading|trailing",
     .by_name = true,
     .sentence = "of the channels that rotate"},
    {.name = "frequencies",
     .type = FieldType::kReals,
     .fallback = "None",
     .shape = "rotary_dim / 2",
     .optional = true,
     .by_name = true,
     .sentence = "radians per position, given"},
    {.name = "softmax_factor",
     .type = FieldType::kReal,
     .fallback = "1.0",
     .by_name = true,
     .sentence = "multiplies the scale of the scores (DeepSeek)"},
    {.name = "temperature_beta",
     .type = FieldType::kReal,
     .fallback = "0.0",
     .by_name = true,
     .sentence =
         "queries are multiplied by 1 + beta ln(1 + floor((m + shift) / "
         "span))"},
    {.name = "temperature_shift",
     .fallback = "0",
     .by_name = true,
     .sentence = "the shift of that"},
    {.name = "temperature_span",
     .fallback = "8192",
     .by_name = true,
     .sentence = "the span of that"},
    kValues};
constexpr Field kRopeOptions[] = {
    kLayoutOption,
    kRopeBase,
    kRotaryDim,
    {.name = "scaling",
     .type = FieldType::kChoice,
     .fallback = "none",
     .choices = "none|linear|dynamic|ntk|yarn|llama3|proportional",
     .sentence = "of the frequencies, for lengths past the trained one"},
    {.name = "factor",
     .type = FieldType::kReal,
     .fallback = "4.0",
     .sentence = "of the scaling",
     .slider = {1, 64, 2, /*logarithmic=*/true}},
    {.name = "original_length",
     .fallback = "None",
     .optional = true,
     .sentence = "of training, for the scaling",
     .slider = {16, 131072, 2, /*logarithmic=*/true}},
    {.name = "partial",
     .type = FieldType::kReal,
     .fallback = "0.25",
     .sentence = "the share that rotates, for scaling=proportional",
     .slider = {0, 1, 0.05}},
    kValues};
constexpr std::string_view kRopeVariants[] = {
    "layout=halves",        "scaling=linear",  "scaling=dynamic",
    "scaling=ntk",          "scaling=yarn",    "scaling=llama3",
    "scaling=proportional", "values=relative", "values=absolute"};

RopeOptions OptionsOf(const FieldValues& f) {
  RopeOptions options;
  options.base = f.Real("base");
  options.rotary_dim = f.IntOrNone("rotary_dim").value_or(0);
  options.angles = f.Choice<AngleMode>("angles");
  options.place = f.Choice<RotaryPlace>("place");
  options.scaling = f.Other<RopeScaling>("scaling");
  options.frequencies = f.Reals("frequencies");
  options.softmax_factor = f.Real("softmax_factor");
  options.temperature_beta = f.Real("temperature_beta");
  options.temperature_shift = f.Int("temperature_shift");
  options.temperature_span = f.Int("temperature_span");
  options.values = f.Choice<RotaryValues>("values");
  return options;
}

FieldValues SettingsOf(const Rope& rope) {
  const RopeOptions& o = rope.options();
  FieldValues values = {{"head_dim", rope.head_dim()},
                        {"layout", Enumerator(rope.layout())},
                        {"base", o.base},
                        {"rotary_dim", o.rotary_dim},
                        {"scaling", Object{o.scaling}},
                        {"angles", Enumerator(o.angles)},
                        {"place", Enumerator(o.place)},
                        {"softmax_factor", o.softmax_factor},
                        {"temperature_beta", o.temperature_beta},
                        {"temperature_shift", o.temperature_shift},
                        {"temperature_span", o.temperature_span},
                        {"values", Enumerator(o.values)}};
  if (!o.frequencies.empty()) values.Set("frequencies", o.frequencies);
  return values;
}

}  // namespace

LOCUS_DESCRIPTOR(Rope) = {
    .name = "rope",
    .class_name = "Rope",
    .title = "Rotary position embedding (RoPE)",
    .formula =
        "s = scale (R_m q).(R_n k), R_m rotates pair p by m base^(-2p/r)",
    .summary =
        "Su et al. (2021): pairs of channels of q and k rotated by pos * "
        "base^(-2i "
        "/ rotary_dim).",
    .paper =
        "Su et al., RoFormer: Enhanced Transformer with Rotary Position "
        "Embedding, 2021",
    .models = "LLaMA, Mistral, Qwen, Gemma, Phi, GPT-NeoX, GPT-J, DeepSeek",
    .reference = Reference::kRelative,
    .trainable = false,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "degrades past the length; scalings bring it back",
    .picture = Picture::kRotation,
    .fields = kRopeFields,
    .options = kRopeOptions,
    .variants = kRopeVariants,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<Rope>(
          f.Int("head_dim"), f.Choice<PairLayout>("layout"), OptionsOf(f));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      return SettingsOf(static_cast<const Rope&>(encoding));
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      return {
          {"head_dim", config.head_dim},
          {"layout", o.Word("layout")},
          {"base", o.Real("base")},
          {"rotary_dim", o.IntOrNone("rotary_dim").value_or(config.head_dim)},
          {"scaling", Object{ScalingOf(o, config.length)}},
          {"values", o.Word("values")}};
    },
};

}  // namespace locus
