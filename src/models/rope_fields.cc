// Reads the fields of RoPE in their many spellings.
//
//   rope_scaling | rope_parameters: flat, or one object per layer type
//   type | rope_type; rope_theta and the original length inside or beside
//
// Values inside take precedence over those beside, except for the original
// length, for which the Hugging Face code prefers the top level. Contradictions
// are errors.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/parity.h"
#include "models/reader.h"

namespace locus::models {
namespace {

constexpr double kLargest = 1e18;

// The object with the scaling of this layer, if there is one.
std::optional<Config> ScalingObject(Reader& r, const RopeDefaults& d) {
  auto old = r.c.MaybeObject("rope_scaling");
  auto current = r.c.MaybeObject("rope_parameters");
  if (old && !old->Keys().empty() && current && !current->Keys().empty()) {
    if (*r.c.Find("rope_scaling") != *r.c.Find("rope_parameters")) {
      r.Refuse("{} and {} are both there and differ", r.c.Path("rope_scaling"),
               r.c.Path("rope_parameters"));
    }
    // If they are equal, the old spelling is used and the other's keys are
    // known.
    for (const std::string& key : current->Keys()) current->Find(key.c_str());
    return old;
  }
  if (old && !old->Keys().empty()) return old;
  if (!current || current->Keys().empty()) return std::nullopt;
  if (d.layer_type.empty()) return current;
  // Nested by layer type if any key is a type: then all are.
  const auto is_type = [](const std::string& key) {
    return key == kFull || key == kSliding || key == kLinear ||
           key == "chunked_attention" || key == "hybrid" ||
           key == "hybrid_sliding" || key == "main" || key == "compress";
  };
  const auto keys = current->Keys();
  if (std::ranges::none_of(keys, is_type)) return current;
  for (const std::string& key : keys) {
    const Json* value = current->Find(key.c_str());
    if (!is_type(key)) {
      r.Refuse("{} is not a type of layer", current->Path(key));
    } else if (value != nullptr && !value->is_object()) {
      Fail("{} must be an object, got {}", current->Path(key), Shown(*value));
    }
  }
  return current->MaybeObject(d.layer_type.c_str());
}

// Frequencies of the whole head, of which only the first share is nonzero
// (Gemma 4).
bool IsProportional(const std::optional<Config>& scaling) {
  return scaling &&
         scaling->MaybeText("rope_type").value_or("") == "proportional";
}

// A number inside the scaling's object, or beside it.
std::optional<double> InsideOrBeside(Reader& r,
                                     const std::optional<Config>& scaling,
                                     const char* inside_key,
                                     const Names& beside_keys, double lowest,
                                     double highest) {
  const auto inside = scaling
                          ? scaling->MaybeNumber(inside_key, lowest, highest)
                          : std::nullopt;
  const auto beside = r.c.MaybeNumberOf(beside_keys, lowest, highest);
  if (inside && beside && *inside != *beside) {
    r.Refuse("{} = {} contradicts {} = {}", scaling->Path(inside_key), *inside,
             r.c.Path(beside_keys.front()), *beside);
  }
  return inside ? inside : beside;
}

double Magnitude(double factor, double k) {
  return factor <= 1.0 ? 1.0 : 0.1 * k * std::log(factor) + 1.0;
}

struct ScalingReader {
  Reader& r;
  const Config& s;
  const RopeDefaults& d;
  RotaryFacts& facts;
  int64_t pairs;
  double partial;

  double Factor() const {
    const auto factor = s.MaybeNumber("factor", 1e-9, kLargest);
    if (!factor) Fail("{} is missing", s.Path("factor"));
    if (*factor < 1.0) {
      r.Refuse("{} must be at least 1, got {}", s.Path("factor"), *factor);
    }
    return *factor;
  }

  // Original length: the one beside, else the one inside, else the trained
  // length.
  int64_t OriginalLength() const {
    const char* key = "original_max_position_embeddings";
    const auto inside = s.MaybeInt(key, 1, kMostLength);
    const auto beside = r.c.MaybeInt(key, 1, kMostLength);
    if (inside && beside && *inside != *beside) {
      r.Refuse("{} = {} contradicts {} = {}", s.Path(key), *inside,
               r.c.Path(key), *beside);
    }
    const int64_t length = beside   ? *beside
                           : inside ? *inside
                                    : r.out.trained_length;
    if (length < 2) {
      Fail("{} is needed: the length before scaling, at least 2", s.Path(key));
    }
    facts.original_length = length;
    return length;
  }

  double Ratio(int64_t original) const {
    return static_cast<double>(r.out.trained_length) /
           static_cast<double>(original);
  }

  RopeScaling Yarn() {
    YarnScaling yarn;
    yarn.original_length = OriginalLength();
    const double ratio = Ratio(yarn.original_length);
    if (s.Has("factor")) {
      yarn.factor = Factor();
      if (ratio != yarn.factor && ratio != 1.0 && r.out.trained_length != 0) {
        r.Warn("{} = {} is not the ratio of the lengths, {} / {} = {}",
               s.Path("factor"), yarn.factor, r.out.trained_length,
               yarn.original_length, ratio);
      }
    } else {
      if (ratio < 1.0) Fail("{} is missing", s.Path("factor"));
      yarn.factor = ratio;
    }
    // 0 means the default.
    const auto positive = [&](const char* key) {
      const auto value = s.MaybeNumber(key, 0.0, 1e9);
      return value && *value != 0.0 ? value : std::nullopt;
    };
    yarn.beta_fast = positive("beta_fast").value_or(32.0);
    yarn.beta_slow = positive("beta_slow").value_or(1.0);
    if (yarn.beta_fast < yarn.beta_slow) {
      r.Refuse("{} = {} must not be below {} = {}", s.Path("beta_fast"),
               yarn.beta_fast, s.Path("beta_slow"), yarn.beta_slow);
    }
    yarn.truncate = s.FlagOr("truncate", true);
    yarn.attention_factor = s.MaybeNumber("attention_factor", 1e-9, 1e9);
    if (!yarn.attention_factor) yarn.attention_factor = d.yarn_gain;
    yarn.mscale = positive("mscale");
    yarn.mscale_all_dim = positive("mscale_all_dim");
    if (yarn.mscale && !yarn.mscale_all_dim) {
      r.Warn("{} has no effect on cos and sin without mscale_all_dim",
             s.Path("mscale"));
    }
    if (d.mscale_squared && yarn.mscale_all_dim) {
      const double m = Magnitude(yarn.factor, *yarn.mscale_all_dim);
      r.out.softmax_factor = m * m;
    }
    facts.factor = yarn.factor;
    return yarn;
  }

  RopeScaling LongRope() {
    LongRopeScaling longrope;
    longrope.original_length = OriginalLength();
    const auto list = [&](const char* key) {
      const auto numbers = s.MaybeNumbers(key, static_cast<size_t>(kMostWidth));
      if (!numbers) Fail("{} is missing", s.Path(key));
      if (static_cast<int64_t>(numbers->size()) != pairs) {
        Fail("{} must have {} entries, one a pair, got {}", s.Path(key), pairs,
             numbers->size());
      }
      for (double f : *numbers) {
        if (!(f > 0.0)) Fail("an entry of {} is {}", s.Path(key), f);
      }
      return *numbers;
    };
    longrope.short_factor = list("short_factor");
    longrope.long_factor = list("long_factor");
    longrope.factor =
        s.Has("factor") ? Factor() : Ratio(longrope.original_length);
    longrope.attention_factor = s.MaybeNumber("attention_factor", 1e-9, 1e9);
    facts.factor = longrope.factor;
    return longrope;
  }

  RopeScaling Llama3() {
    Llama3Scaling llama;
    llama.factor = Factor();
    const auto need = [&](const char* key) {
      const auto value = s.MaybeNumber(key, 1e-9, 1e9);
      if (!value) Fail("{} is missing", s.Path(key));
      return *value;
    };
    llama.low_freq_factor = need("low_freq_factor");
    llama.high_freq_factor = need("high_freq_factor");
    if (llama.high_freq_factor < llama.low_freq_factor) {
      Fail("{} = {} must not be below {} = {}", s.Path("high_freq_factor"),
           llama.high_freq_factor, s.Path("low_freq_factor"),
           llama.low_freq_factor);
    }
    llama.original_length = OriginalLength();
    facts.factor = llama.factor;
    return llama;
  }

  RopeScaling Dynamic() {
    if (r.out.trained_length == 0) {
      Fail("dynamic scaling needs max_position_embeddings");
    }
    if (const auto alpha = s.MaybeNumber("alpha", 1e-9, kLargest)) {
      // HunYuan: a fixed scaling of the base.
      s.Find("factor");
      facts.scaling = "alpha";
      facts.factor = *alpha;
      return AlphaScaling{.alpha = *alpha};
    }
    facts.factor = Factor();
    facts.changes_with_length = true;
    r.Warn(
        "dynamic scaling changes every frequency with the longest sequence "
        "past {} tokens: cached keys must be rotated again",
        r.out.trained_length);
    return DynamicScaling{.factor = facts.factor,
                          .max_length = r.out.trained_length};
  }

  RopeScaling Read() {
    const auto type = s.MaybeText("rope_type");
    const auto old_type = s.MaybeText("type");
    if (type && old_type && *type != *old_type && *old_type != "mrope") {
      r.Refuse("{} = '{}' contradicts {} = '{}'", s.Path("rope_type"), *type,
               s.Path("type"), *old_type);
    }
    std::string kind = type ? *type : old_type.value_or("default");
    if (kind == "su" || (kind == "yarn" && d.yarn_means_longrope)) {
      kind = "longrope";
    }
    if (kind == "default" || kind == "mrope") return {};
    if (!type && !d.layer_type.empty()) {
      r.Warn(
          "{} is the old spelling: newer releases of the model's code look at "
          "rope_type only and would not scale this layer",
          s.Path("type"));
    }
    facts.scaling = kind;
    if (kind == "linear") {
      facts.factor = Factor();
      return LinearScaling{.factor = facts.factor};
    }
    if (kind == "dynamic") return Dynamic();
    if (kind == "yarn") return Yarn();
    if (kind == "llama3") return Llama3();
    if (kind == "proportional") {
      facts.factor = s.Has("factor") ? Factor() : 1.0;
      return ProportionalScaling{.partial = partial, .factor = facts.factor};
    }
    if (kind == "longrope") {
      RopeScaling scaling = LongRope();
      facts.changes_with_length = true;
      r.Warn("{}", LongRopeWarning(facts.original_length));
      return scaling;
    }
    Fail(
        "{} = '{}' is not a known scaling; known values: default, linear, "
        "dynamic, "
        "yarn, longrope, llama3, proportional",
        s.Path(type ? "rope_type" : "type"), Printable(kind));
  }
};

// llama3 scaling with equal bounds (Llama 4) has no blend: frequencies with
// wavelengths above the bound are divided, and the others are unchanged.
void TakeStep(RopeOptions& rope) {
  const auto* llama = std::get_if<Llama3Scaling>(&rope.scaling);
  if (llama == nullptr || llama->high_freq_factor != llama->low_freq_factor) {
    return;
  }
  const double bound =
      static_cast<double>(llama->original_length) / llama->low_freq_factor;
  rope.frequencies = RopeFrequencies(rope.rotary_dim, rope.base);
  for (double& w : rope.frequencies) {
    if (2.0 * std::numbers::pi / w > bound) w /= llama->factor;
  }
  rope.scaling = {};
}

std::string Words(const RotaryFacts& facts, const LayerPosition& out) {
  std::string words = fmt::format("RoPE, {}, ", LayoutWords(facts.layout));
  words += facts.rotary_dim == out.head_dim
               ? fmt::format("all {} channels", out.head_dim)
               : fmt::format("{} {} of {} channels",
                             facts.first_channel == 0 ? "first" : "last",
                             facts.rotary_dim, out.head_dim);
  words += fmt::format(", base {}", facts.base);
  if (facts.scaling != "none") {
    words += fmt::format(", {} scaling by {}", facts.scaling, facts.factor);
  }
  if (facts.original_length != 0) {
    words += fmt::format(" from {} tokens", facts.original_length);
  }
  return words;
}

}  // namespace

void Reader::Rope(const RopeDefaults& d) {
  auto scaling = ScalingObject(*this, d);
  // The old spelling applies to the other layers: it is only marked as used.
  std::optional<Config> elsewhere;
  if (d.unscaled && c.Has("rope_scaling")) std::swap(scaling, elsewhere);
  RotaryFacts facts;
  facts.layout = options.layout.value_or(d.layout);
  facts.base =
      InsideOrBeside(*this, scaling, "rope_theta", d.base_keys, 1.0001,
                     kLargest)
          .value_or(c.NumberOr("default_theta", d.base, 1.0001, kLargest));
  if (d.listed_base != 0.0) facts.base = d.listed_base;
  const double partial =
      InsideOrBeside(*this, scaling, "partial_rotary_factor", d.partial_keys,
                     1e-6, 1.0)
          .value_or(c.NumberOr("default_partial", d.partial, 1e-6, 1.0));
  facts.rotary_dim = d.rotary_dim;
  if (IsProportional(scaling)) facts.rotary_dim = out.head_dim;
  if (facts.rotary_dim == 0) {
    const int64_t of = d.partial_of == 0 ? out.head_dim : d.partial_of;
    // Truncated, as by Python's int().
    facts.rotary_dim = static_cast<int64_t>(static_cast<double>(of) * partial);
  }
  if (facts.rotary_dim < 2 || facts.rotary_dim % 2 != 0 ||
      facts.rotary_dim > out.head_dim) {
    Fail(
        "{} of {} channels would rotate; they must be even, at least 2 and at "
        "most the head",
        facts.rotary_dim, out.head_dim);
  }
  facts.first_channel =
      d.place == RotaryPlace::kTrailing ? out.head_dim - facts.rotary_dim : 0;

  RopeOptions rope;
  rope.base = facts.base;
  rope.rotary_dim = facts.rotary_dim;
  rope.place = d.place;
  rope.values = d.values;
  rope.angles = options.angles;
  if (scaling) {
    rope.scaling =
        ScalingReader{*this, *scaling, d, facts, facts.rotary_dim / 2, partial}
            .Read();
  }
  if (elsewhere) {
    LayerPosition other = out;
    RotaryFacts unused = facts;
    Reader reader(c, options, other);
    ScalingReader{reader, *elsewhere, d, unused, facts.rotary_dim / 2, partial}
        .Read();
    elsewhere->Find("rope_theta");
  }
  rope.softmax_factor = out.softmax_factor;
  rope.temperature_beta = out.temperature.beta;
  rope.temperature_shift = out.temperature.shift;
  rope.temperature_span = out.temperature.span;
  TakeStep(rope);
  if (options.angles == AngleMode::kFloat32) {
    MatchFloat32(out.head_dim, facts.layout, rope);
  }
  auto encoding =
      std::make_shared<locus::Rope>(out.head_dim, facts.layout, rope);
  const Rotation rotation =
      encoding->RotationFor(std::max<int64_t>(out.trained_length, 1));
  facts.theta = rotation.theta;
  facts.gain = rotation.gain;
  std::string words = Words(facts, out);
  if (d.values != RotaryValues::kNone) words += ", values too";
  Attend("rope", std::move(words), std::move(encoding));
  out.rotary = std::move(facts);
}

}  // namespace locus::models
