#include "rope_scaling.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "locus/text.h"
#include "numbers.h"
#include "values.h"

namespace locus::python {
namespace {

// A dict whose reads are counted.
class Fields {
 public:
  explicit Fields(nb::dict dict) : dict_(std::move(dict)) {}

  template <typename T>
  std::optional<T> Find(const char* key) {
    used_.insert(key);
    if (!dict_.contains(key)) return std::nullopt;
    const nb::object value = dict_[key];
    if (value.is_none()) return std::nullopt;
    const std::string name = std::string("scaling[\"") + key + "\"]";
    if constexpr (std::is_same_v<T, bool>) {
      return FlagOf(name.c_str(), value);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      return IntOf(name, value);
    } else if constexpr (std::is_same_v<T, double>) {
      return RealOf(name, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      return TextOf(name, value);
    } else {
      return RealRow(name.c_str(), value);
    }
  }
  template <typename T>
  T Need(const char* key) {
    std::optional<T> value = Find<T>(key);
    if (!value) {
      throw nb::value_error(
          (std::string("scaling needs \"") + key + '"').c_str());
    }
    return *value;
  }
  void Done(const std::string& kind) const {
    for (const auto& [key, value] : dict_) {
      const std::string name = TextOf("a key of scaling", key);
      if (used_.contains(name)) continue;
      throw nb::value_error(("scaling of the type \"" + kind +
                             "\" does not use \"" + Printable(name) + '"')
                                .c_str());
    }
  }

 private:
  nb::dict dict_;
  std::set<std::string> used_;
};

int64_t OriginalLength(Fields& fields) {
  return fields.Need<int64_t>("original_max_position_embeddings");
}

YarnScaling Yarn(Fields& fields) {
  YarnScaling yarn;
  yarn.factor = fields.Need<double>("factor");
  yarn.original_length = OriginalLength(fields);
  // 0 stands for the default.
  const auto beta = [&](const char* key, double& to) {
    const double value = fields.Find<double>(key).value_or(0.0);
    if (value != 0.0) to = value;
  };
  beta("beta_fast", yarn.beta_fast);
  beta("beta_slow", yarn.beta_slow);
  yarn.truncate = fields.Find<bool>("truncate").value_or(true);
  yarn.attention_factor = fields.Find<double>("attention_factor");
  yarn.mscale = fields.Find<double>("mscale");
  yarn.mscale_all_dim = fields.Find<double>("mscale_all_dim");
  return yarn;
}

LongRopeScaling LongRope(Fields& fields) {
  LongRopeScaling scaling;
  scaling.short_factor = fields.Need<std::vector<double>>("short_factor");
  scaling.long_factor = fields.Need<std::vector<double>>("long_factor");
  scaling.original_length = OriginalLength(fields);
  const auto factor = fields.Find<double>("factor");
  const auto longest = fields.Find<int64_t>("max_position_embeddings");
  scaling.attention_factor = fields.Find<double>("attention_factor");
  if (factor) {
    scaling.factor = *factor;
  } else if (longest && scaling.original_length > 0) {
    scaling.factor = static_cast<double>(*longest) /
                     static_cast<double>(scaling.original_length);
  } else if (!scaling.attention_factor) {
    throw nb::value_error(
        "scaling of the type \"longrope\" needs \"factor\", or "
        "\"max_position_embeddings\" to divide by the original length");
  }
  return scaling;
}

Llama3Scaling Llama3(Fields& fields) {
  return {.factor = fields.Need<double>("factor"),
          .low_freq_factor = fields.Need<double>("low_freq_factor"),
          .high_freq_factor = fields.Need<double>("high_freq_factor"),
          .original_length = OriginalLength(fields)};
}

DynamicScaling Dynamic(Fields& fields) {
  const auto longest = fields.Find<int64_t>("max_position_embeddings");
  const auto original =
      fields.Find<int64_t>("original_max_position_embeddings");
  if (!longest && !original) {
    throw nb::value_error(
        "scaling of the type \"dynamic\" needs \"max_position_embeddings\"");
  }
  return {.factor = fields.Need<double>("factor"),
          .max_length = longest ? *longest : *original};
}

}  // namespace

void ReadScaling(nb::handle scaling, RopeOptions& options) {
  if (scaling.is_none()) return;
  if (!nb::isinstance<nb::dict>(scaling)) {
    RefuseType("scaling", "a dict as in config.json", scaling);
  }
  Fields fields(nb::borrow<nb::dict>(scaling));
  const auto new_name = fields.Find<std::string>("rope_type");
  const auto old_name = fields.Find<std::string>("type");
  if (new_name && old_name && *new_name != *old_name) {
    throw nb::value_error(("scaling has the rope_type \"" +
                           Printable(*new_name) + "\" and the type \"" +
                           Printable(*old_name) + '"')
                              .c_str());
  }
  if (!new_name && !old_name) {
    throw nb::value_error("scaling needs \"rope_type\"");
  }
  const std::string kind = new_name ? *new_name : *old_name;
  if (const auto base = fields.Find<double>("rope_theta")) options.base = *base;
  if (kind == "default") {
    options.scaling = std::monostate();
  } else if (kind == "linear") {
    options.scaling = LinearScaling{.factor = fields.Need<double>("factor")};
  } else if (kind == "dynamic") {
    options.scaling = Dynamic(fields);
  } else if (kind == "alpha") {
    options.scaling = AlphaScaling{.alpha = fields.Need<double>("alpha")};
  } else if (kind == "yarn") {
    options.scaling = Yarn(fields);
  } else if (kind == "longrope" || kind == "su") {
    options.scaling = LongRope(fields);
  } else if (kind == "llama3") {
    options.scaling = Llama3(fields);
  } else if (kind == "proportional") {
    options.scaling = ProportionalScaling{
        .partial = fields.Find<double>("partial_rotary_factor").value_or(1.0),
        .factor = fields.Find<double>("factor").value_or(1.0)};
  } else {
    throw nb::value_error(
        ("there is no scaling of the type \"" + Printable(kind) +
         "\"; known values: default, linear, dynamic, alpha, yarn, longrope, "
         "llama3, proportional")
            .c_str());
  }
  fields.Done(kind);
}

namespace {

// Leaves out what is absent.
void Set(nb::dict& dict, const char* key, const std::optional<double>& value) {
  if (value) dict[key] = *value;
}

nb::object DictOf(const std::monostate& /*none*/) { return nb::none(); }

nb::object DictOf(const LinearScaling& s) {
  nb::dict dict;
  dict["rope_type"] = "linear";
  dict["factor"] = s.factor;
  return dict;
}

nb::object DictOf(const DynamicScaling& s) {
  nb::dict dict;
  dict["rope_type"] = "dynamic";
  dict["factor"] = s.factor;
  dict["max_position_embeddings"] = s.max_length;
  return dict;
}

nb::object DictOf(const AlphaScaling& s) {
  nb::dict dict;
  dict["rope_type"] = "alpha";
  dict["alpha"] = s.alpha;
  return dict;
}

nb::object DictOf(const YarnScaling& s) {
  nb::dict dict;
  dict["rope_type"] = "yarn";
  dict["factor"] = s.factor;
  dict["original_max_position_embeddings"] = s.original_length;
  dict["beta_fast"] = s.beta_fast;
  dict["beta_slow"] = s.beta_slow;
  dict["truncate"] = s.truncate;
  Set(dict, "attention_factor", s.attention_factor);
  Set(dict, "mscale", s.mscale);
  Set(dict, "mscale_all_dim", s.mscale_all_dim);
  return dict;
}

nb::object DictOf(const LongRopeScaling& s) {
  nb::dict dict;
  dict["rope_type"] = "longrope";
  dict["short_factor"] = s.short_factor;
  dict["long_factor"] = s.long_factor;
  dict["original_max_position_embeddings"] = s.original_length;
  dict["factor"] = s.factor;
  Set(dict, "attention_factor", s.attention_factor);
  return dict;
}

nb::object DictOf(const Llama3Scaling& s) {
  nb::dict dict;
  dict["rope_type"] = "llama3";
  dict["factor"] = s.factor;
  dict["low_freq_factor"] = s.low_freq_factor;
  dict["high_freq_factor"] = s.high_freq_factor;
  dict["original_max_position_embeddings"] = s.original_length;
  return dict;
}

nb::object DictOf(const ProportionalScaling& s) {
  nb::dict dict;
  dict["rope_type"] = "proportional";
  dict["partial_rotary_factor"] = s.partial;
  dict["factor"] = s.factor;
  return dict;
}

}  // namespace

nb::object ScalingDict(const RopeScaling& scaling) {
  return std::visit([](const auto& s) { return DictOf(s); }, scaling);
}

}  // namespace locus::python
