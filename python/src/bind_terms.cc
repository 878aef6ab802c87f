// Terms and OffsetBias: encodings of a user's own arrays.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "compute.h"
#include "layout.h"
#include "memory.h"
#include "numbers.h"
#include "options.h"
#include "own_terms.h"
#include "signature.h"
#include "values.h"

namespace locus::python {
namespace {

constexpr const char* kTermsDoc =
    "An encoding of your own, from the terms of attention:\n\n"
    "    s_ij = scale g[h, m] (rot(q_i).rot(k_j) + a_i.c_j + q_i.Tq[b] + "
    "k_j.Tk[b]) + B[h, b]\n"
    "    o_i  = unrot_m(sum_j p_ij (rot_n(v_j) + Tv[b]))     b = row of m - "
    "n\n\n"
    "Every array is optional, shared and not copied, and has its gradient in "
    "the d_params of attention_backward under its own name. An axis of heads "
    "may be missing or 1: then all heads share the rows.\n\n"
    "scale: of the dot products, unless the call gives one; None is 1 / "
    "sqrt(D). scale_rows g [heads, positions].\n"
    "theta [pairs], [pairs, axes] or [heads, pairs, axes], which is for each "
    "key head: radians per position by which pairs of channels rotate. layout: "
    "\"interleaved\" or \"halves\", without a "
    "default. rotation: a dict of first_channel, axis [pairs], axes (a list of "
    "(divisor, modulus, offset): a coordinate is position / divisor % modulus "
    "+ offset), origin, packed_from, log_decay [pairs], gain and angles "
    "(\"exact\" or \"float32\").\n"
    "q_rows a, k_rows c [heads, positions, E]: more channels of the dot "
    "product.\n"
    "q_table Tq, k_table Tk [heads, rows, D], v_table Tv [heads, rows, Dv], "
    "bias B [heads, rows]: by offset.\n"
    "slopes, future_slopes [heads]: B = -slope |m - n|, as ALiBi.\n"
    "profile_distance u, profile_gain g, profile_knots, profile_base, "
    "profile_slope [heads, segments]: B = base[s] + slope[s] x with x = u[|m - "
    "n|] g[m] and s the number of knots <= x, as FIRE.\n"
    "value_rotation: a dict of theta, layout, relative and what rotation "
    "takes: values rotate at the key and, if relative, outputs back at the "
    "query. It does not train.\n"
    "input_add [positions, d_model]: rows that embed() gives; attention sees "
    "nothing of them.\n"
    "first_position: that of the first row of all arrays by position.\n\n"
    "Offsets find their rows by first_offset (row b belongs to first_offset + "
    "b; without it an odd number of rows is centred on 0), by buckets "
    "(first_offset + i takes row buckets[i]), or by offsets (row b serves "
    "offsets[b] up to offsets[b + 1] - 1). clip: offsets beyond either end "
    "take the row of that end, else they are a ValueError. Each of the four "
    "is for all tables, or a dict by the name of the table.";

constexpr const char* kOffsetBiasDoc =
    "s + table[h, m - n - first_offset]: a bias by offset, any function of m - "
    "n.\n\n"
    "table [heads, n] for the offsets first_offset .. first_offset + n - 1, "
    "shared and not copied; heads may be 1. Without first_offset an odd n is "
    "centred on 0. clip: offsets beyond either end take the value of that end; "
    "clip=False makes them a ValueError.";

// What a dict among the arguments holds; a key that is not asked for is an
// error.
class Entries {
 public:
  Entries(const char* name, nb::handle given) : name_(name) {
    if (given.is_none()) return;
    if (!nb::isinstance<nb::dict>(given)) RefuseType(name, "a dict", given);
    dict_ = nb::borrow<nb::dict>(given);
  }

  // The value of a key, or None.
  nb::object Take(const char* key) {
    known_.emplace_back(key);
    if (!dict_.contains(key)) return nb::none();
    return nb::borrow(dict_[key]);
  }
  std::string Label(const char* key) const {
    return std::string(name_) + "['" + key + "']";
  }
  // Refuses what nobody took.
  void Done() const {
    for (const auto& [key, value] : dict_) {
      const std::string text = TextOf("a key of " + std::string(name_), key);
      if (std::find(known_.begin(), known_.end(), text) != known_.end()) {
        continue;
      }
      std::string known;
      for (const std::string& each : known_) {
        known += (known.empty() ? "" : ", ") + each;
      }
      throw nb::value_error((std::string(name_) + " has no entry " + Line(key) +
                             ": it takes " + known)
                                .c_str());
    }
  }

 private:
  const char* name_;
  nb::dict dict_;
  std::vector<std::string> known_;
};

// (divisor, modulus) or (divisor, modulus, offset).
Axis AxisOf(const std::string& name, nb::handle given) {
  const nb::object items = nb::steal(PySequence_List(given.ptr()));
  if (!items.is_valid()) PyErr_Clear();
  const Py_ssize_t count = items.is_valid() ? PyList_Size(items.ptr()) : 0;
  if (nb::isinstance<nb::str>(given) || (count != 2 && count != 3)) {
    RefuseType("an axis of " + name,
               "a tuple (divisor, modulus) or (divisor, modulus, offset)",
               given);
  }
  const auto item = [&](Py_ssize_t i) {
    return nb::borrow(PyList_GetItem(items.ptr(), i));
  };
  return {.divisor = IntOf("a divisor of " + name, item(0)),
          .modulus = IntOf("a modulus of " + name, item(1)),
          .offset = count == 3 ? RealOf("an offset of " + name, item(2)) : 0.0};
}

void ReadAxes(const std::string& name, nb::handle given, Rotation& rotation) {
  if (given.is_none()) return;
  if (!nb::isinstance<nb::list>(given) && !nb::isinstance<nb::tuple>(given)) {
    RefuseType(name, "a list of (divisor, modulus, offset)", given);
  }
  for (const nb::handle axis : nb::borrow<nb::sequence>(given)) {
    rotation.axes.push_back(AxisOf(name, axis));
  }
}

// What rotation and value_rotation have in common.
void ReadRotation(Entries& entries, Rotation& rotation) {
  const auto integer = [&](const char* key, auto& to) {
    if (const nb::object value = entries.Take(key); !value.is_none()) {
      to = IntOf(entries.Label(key), value);
    }
  };
  integer("first_channel", rotation.first_channel);
  integer("origin", rotation.origin);
  integer("packed_from", rotation.packed_from);
  if (const nb::object axis = entries.Take("axis"); !axis.is_none()) {
    for (const int64_t each :
         Integers(entries.Label("axis").c_str(), axis, {{-1}})) {
      // Beyond int32 there is no axis either: the next check says so.
      rotation.axis.push_back(
          static_cast<int32_t>(std::clamp<int64_t>(each, -1, INT32_MAX)));
    }
  }
  ReadAxes(entries.Label("axes"), entries.Take("axes"), rotation);
  if (const nb::object angles = entries.Take("angles"); !angles.is_none()) {
    rotation.angles = WordOf(entries.Label("angles").c_str(), angles, kAngles);
  }
}

void ReadKeyRotation(const Arguments& a, OwnSettings& settings) {
  Rotation& rotation = settings.rotation;
  if (!a["layout"].is_none()) {
    rotation.layout = a.Choice("layout", kLayouts);
    settings.has_layout = true;
  }
  Entries entries("rotation", a["rotation"]);
  ReadRotation(entries, rotation);
  rotation.log_decay =
      RealRow(entries.Label("log_decay").c_str(), entries.Take("log_decay"));
  if (const nb::object gain = entries.Take("gain"); !gain.is_none()) {
    rotation.gain = RealOf(entries.Label("gain"), gain);
  }
  entries.Done();
  settings.has_layout = settings.has_layout || !a["rotation"].is_none();
}

void ReadValueRotation(const Arguments& a, OwnSettings& settings) {
  if (a["value_rotation"].is_none()) return;
  Entries entries("value_rotation", a["value_rotation"]);
  ValueRotation values;
  Rotation& rotation = values.rotation;
  rotation.theta =
      RealRow(entries.Label("theta").c_str(), entries.Take("theta"));
  rotation.rotary_dim = 2 * static_cast<int64_t>(rotation.theta.size());
  const nb::object layout = entries.Take("layout");
  const nb::object relative = entries.Take("relative");
  ReadRotation(entries, rotation);
  entries.Done();
  if (rotation.theta.empty()) {
    throw nb::value_error("value_rotation needs theta, its frequencies");
  }
  rotation.layout = WordOf(entries.Label("layout").c_str(), layout, kLayouts);
  if (!relative.is_none()) {
    values.relative = FlagOf(entries.Label("relative").c_str(), relative);
  }
  settings.rotate_values = std::move(values);
}

// An argument for all tables, or a dict by table: calls read(table, value) for
// each that it says something about.
template <typename Read>
void ForTables(const Arguments& a, const char* name, const OwnArrays& arrays,
               const Read& read) {
  const nb::handle given = a[name];
  if (given.is_none()) return;
  if (!nb::isinstance<nb::dict>(given)) {
    for (const OwnArray& each : OwnTables()) {
      if ((arrays.*each.array).defined()) {
        read(each.name, given, std::string(name));
      }
    }
    return;
  }
  for (const auto& [key, value] : nb::borrow<nb::dict>(given)) {
    const std::string table = TextOf("a key of " + std::string(name), key);
    if (value.is_none()) continue;
    read(table, value, std::string(name) + "['" + table + "']");
  }
}

std::vector<int64_t> IntegerRow(const std::string& label, nb::handle values) {
  std::vector<int64_t> row = Integers(label.c_str(), values, {{-1}});
  if (row.empty()) {
    throw nb::value_error((label + " must not be empty").c_str());
  }
  return row;
}

void ReadRules(const Arguments& a, const OwnArrays& arrays,
               std::map<std::string, RowRule>& rules) {
  ForTables(a, "first_offset", arrays,
            [&](const std::string& table, nb::handle value,
                const std::string& label) {
              rules[table].first_offset = IntOf(label, value);
            });
  ForTables(a, "buckets", arrays,
            [&](const std::string& table, nb::handle value,
                const std::string& label) {
              rules[table].buckets = IntegerRow(label, value);
            });
  ForTables(a, "offsets", arrays,
            [&](const std::string& table, nb::handle value,
                const std::string& label) {
              rules[table].offsets = IntegerRow(label, value);
            });
  ForTables(a, "clip", arrays,
            [&](const std::string& table, nb::handle value,
                const std::string& label) {
              rules[table].clip = FlagOf(label.c_str(), value);
            });
}

// Arrays that become vectors of float64 for each call. Strides can make an
// array longer than memory.
void RequireVectors(const OwnArrays& arrays) {
  for (const auto array :
       {&OwnArrays::theta, &OwnArrays::slopes, &OwnArrays::future_slopes,
        &OwnArrays::profile_distance, &OwnArrays::profile_gain,
        &OwnArrays::profile_base, &OwnArrays::profile_slope}) {
    const Tensor& each = arrays.*array;
    if (!each.defined()) continue;
    RequireMemory("an array " + each.Describe(), each.NumElements(),
                  2 * sizeof(double));
  }
}

void MakeTerms(OwnTerms* self, const Arguments& a) {
  OwnArrays arrays;
  for (const OwnArray& each : AllOwnArrays()) {
    arrays.*each.array = Table(each.name, a[each.name]);
  }
  RequireVectors(arrays);
  OwnSettings settings;
  settings.scale = a.RealOrNone("scale");
  settings.first_position = a.Int("first_position");
  settings.profile_knots = RealRow("profile_knots", a["profile_knots"]);
  ReadKeyRotation(a, settings);
  ReadValueRotation(a, settings);
  ReadRules(a, arrays, settings.rules);
  new (self) OwnTerms(std::move(arrays), std::move(settings));
}

// -------------------------------------------------------------- copies

// The entries that ReadRotation takes.
nb::dict RotationDict(const Rotation& r) {
  nb::dict dict;
  if (r.first_channel != 0) dict["first_channel"] = r.first_channel;
  if (r.origin) dict["origin"] = *r.origin;
  if (r.packed_from != 0) dict["packed_from"] = r.packed_from;
  if (!r.axis.empty()) dict["axis"] = r.axis;
  if (!r.axes.empty()) {
    nb::list axes;
    for (const Axis& axis : r.axes) {
      axes.append(nb::make_tuple(axis.divisor, axis.modulus, axis.offset));
    }
    dict["axes"] = axes;
  }
  if (!r.log_decay.empty()) dict["log_decay"] = r.log_decay;
  if (r.gain != 1.0) dict["gain"] = r.gain;
  if (r.angles != AngleMode::kExact)
    dict["angles"] = WordFor(r.angles, kAngles);
  return dict;
}

// What makes the encoding again, beside its arrays.
nb::dict SettingsOf(const OwnTerms& self) {
  const OwnSettings& s = self.settings();
  nb::dict dict;
  if (s.scale) dict["scale"] = *s.scale;
  if (s.first_position != 0) dict["first_position"] = s.first_position;
  if (!s.profile_knots.empty()) dict["profile_knots"] = s.profile_knots;
  if (self.arrays().theta.defined()) {
    dict["layout"] = WordFor(s.rotation.layout, kLayouts);
    const nb::dict rotation = RotationDict(s.rotation);
    if (rotation.size() > 0) dict["rotation"] = rotation;
  }
  if (s.rotate_values) {
    nb::dict values = RotationDict(s.rotate_values->rotation);
    values["theta"] = s.rotate_values->rotation.theta;
    values["layout"] = WordFor(s.rotate_values->rotation.layout, kLayouts);
    values["relative"] = s.rotate_values->relative;
    dict["value_rotation"] = values;
  }
  nb::dict first_offset, buckets, offsets, clip;
  for (const auto& [table, rule] : s.rules) {
    const char* const name = table.c_str();
    if (rule.first_offset) first_offset[name] = *rule.first_offset;
    if (!rule.buckets.empty()) buckets[name] = ToNumpy(rule.buckets);
    if (!rule.offsets.empty()) offsets[name] = ToNumpy(rule.offsets);
    if (!rule.clip) clip[name] = false;
  }
  if (first_offset.size() > 0) dict["first_offset"] = first_offset;
  if (buckets.size() > 0) dict["buckets"] = buckets;
  if (offsets.size() > 0) dict["offsets"] = offsets;
  if (clip.size() > 0) dict["clip"] = clip;
  return dict;
}

nb::dict SettingsOf(const OffsetBias& self) {
  nb::dict dict;
  if (self.rule().first_offset)
    dict["first_offset"] = *self.rule().first_offset;
  dict["clip"] = self.rule().clip;
  return dict;
}

// (rebuild of locus._copies, (the class bound here, the object's own, the
// arguments), what a subclass put into the object).
template <typename T>
nb::tuple Reduced(nb::handle_t<T> self) {
  const T& encoding = nb::cast<const T&>(self);
  nb::dict arguments = SettingsOf(encoding);
  for (const Param& param : encoding.Params()) {
    arguments[param.name.c_str()] = ToNumpy(param.value);
  }
  return nb::make_tuple(
      nb::module_::import_("locus_attn._copies").attr("rebuild"),
      nb::make_tuple(nb::type<T>(), self.type(), arguments),
      nb::getattr(self, "__dict__", nb::none()));
}

// "locus.Terms(bias: f32 [8, 33], 33 buckets, ...; layout='halves')".
std::string Represent(nb::handle_t<OwnTerms> self) {
  const auto& terms = nb::cast<const OwnTerms&>(self);
  const std::string name = TypeName(self);
  std::string text = "locus." + name.substr(name.rfind('.') + 1) + "(";
  std::string_view between;
  for (const Param& param : terms.Params()) {
    text += std::string(between) + param.name + ": " + param.value.Describe();
    const auto map = terms.maps().find(param.name);
    if (map != terms.maps().end()) text += ", " + map->second.Describe();
    between = "; ";
  }
  for (const char* key : {"scale", "layout", "rotation", "value_rotation",
                          "first_position", "profile_knots"}) {
    const nb::dict settings = SettingsOf(terms);
    if (!settings.contains(key)) continue;
    text += std::string(between) + key + "=" +
            nb::cast<std::string>(nb::repr(nb::object(settings[key])));
    between = "; ";
  }
  return text + ")";
}

std::string Represent(nb::handle_t<OffsetBias> self) {
  const auto& bias = nb::cast<const OffsetBias&>(self);
  const std::string name = TypeName(self);
  return "locus." + name.substr(name.rfind('.') + 1) +
         "(table: " + bias.Params()[0].value.Describe() + ", " +
         bias.map().Describe() + ")";
}

template <typename T>
nb::class_<T, Encoding> Class(nb::module_& m, const char* name,
                              const char* doc) {
  nb::class_<T, Encoding> type(m, name, doc);
  type.def("__reduce__", &Reduced<T>, nb::sig("def __reduce__(self) -> tuple"));
  type.def("__repr__", [](nb::handle_t<T> self) { return Represent(self); });
  return type;
}

nb::object Embed(const OwnTerms& self, const Arguments& a) {
  const Tensor& table = self.arrays().input_add;
  const int64_t width = table.defined() ? table.size(1) : 1;
  const auto bytes = width * static_cast<int64_t>(sizeof(double));
  const std::vector<int64_t> at =
      Integers("positions", a["positions"], {{-1}}, bytes);
  return ToNumpy(Compute([&] { return self.Embed(at); }));
}

// The offsets between which those of a call lie, for a table that is made for
// the call: (lowest, highest).
nb::object OffsetRange(const Arguments& a) {
  const auto tokens = [&](const char* length) {
    static const float nothing = 0.0F;  // only sizes are looked at
    return Tensor::Borrow(DType::kF32, {a.Int("batch"), 1, a.Int(length), 1},
                          {}, &nothing);
  };
  const Tensor q = tokens("q_len"), k = tokens("k_len");
  const Options options(a, q, k);
  const Shape shape = CallShape(q, k, k, options.options);
  return nb::make_tuple(shape.min_offset, shape.max_offset);
}

}  // namespace

void BindTerms(nb::module_& m) {
  auto terms = Class<OwnTerms>(m, "Terms", kTermsDoc);
  Constructor(
      terms,
      "Terms(*, scale: float | None = None, scale_rows: Any | None = None, "
      "theta: Any | None = None, layout: str | None = None, rotation: dict | "
      "None = None, q_rows: Any | None = None, k_rows: Any | None = None, "
      "q_table: Any | None = None, k_table: Any | None = None, bias: Any | "
      "None = None, slopes: Any | None = None, future_slopes: Any | None = "
      "None, profile_distance: Any | None = None, profile_gain: Any | None = "
      "None, profile_knots: Any | None = None, profile_base: Any | None = "
      "None, profile_slope: Any | None = None, v_table: Any | None = None, "
      "value_rotation: dict | None = None, input_add: Any | None = None, "
      "first_position: int = 0, first_offset: int | dict | None = None, "
      "buckets: Any | dict | None = None, offsets: Any | dict | None = None, "
      "clip: bool | dict = True)",
      &MakeTerms);
  Method(terms, "embed(positions: Any) -> Any",
         "The rows [n, d_model] (float64) of input_add, which are added to x.",
         &Embed);
  auto bias = Class<OffsetBias>(m, "OffsetBias", kOffsetBiasDoc);
  Constructor(bias,
              "OffsetBias(table: Any, first_offset: int | None = None, *, "
              "clip: bool = True)",
              [](OffsetBias* self, const Arguments& a) {
                RowRule rule{.first_offset = a.IntOrNone("first_offset"),
                             .clip = a.Flag("clip")};
                new (self)
                    OffsetBias(Table("table", a["table"]), std::move(rule));
              });
  Function(
      m,
      "_offset_range(batch: int, q_len: int, k_len: int, causal: bool, "
      "by_index: bool, window: Any, chunk: Any, q_positions: Any, k_positions: "
      "Any, key_lengths: Any, q_segments: Any, k_segments: Any, "
      "prefix_lengths: Any) -> tuple",
      "", &OffsetRange);
}

}  // namespace locus::python
