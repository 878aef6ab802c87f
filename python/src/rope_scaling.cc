#include "rope_scaling.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "arrays.h"

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
    T result;
    // True is an int to Python, and never a length or a factor.
    const bool wrong_bool =
        PyBool_Check(value.ptr()) && !std::is_same_v<T, bool>;
    if (wrong_bool || !nb::try_cast<T>(value, result)) {
      PyErr_Clear();
      throw nb::type_error(
          (std::string("scaling[\"") + key +
           "\"] has the wrong type: " + nb::cast<std::string>(nb::repr(value)))
              .c_str());
    }
    return result;
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
      const auto name = nb::cast<std::string>(nb::str(key));
      if (used_.contains(name)) continue;
      throw nb::value_error(
          ("scaling of the type \"" + kind + "\" does not use \"" + name + '"')
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
    throw nb::type_error(
        ("scaling must be a dict as in config.json, got " + TypeName(scaling))
            .c_str());
  }
  Fields fields(nb::borrow<nb::dict>(scaling));
  const auto new_name = fields.Find<std::string>("rope_type");
  const auto old_name = fields.Find<std::string>("type");
  if (new_name && old_name && *new_name != *old_name) {
    throw nb::value_error(("scaling has the rope_type \"" + *new_name +
                           "\" and the type \"" + *old_name + '"')
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
        ("scaling of the type \"" + kind +
         "\" is unknown: default, linear, dynamic, alpha, yarn, longrope, "
         "llama3 and proportional are known")
            .c_str());
  }
  fields.Done(kind);
}

}  // namespace locus::python
