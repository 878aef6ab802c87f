#include "encoding_fields.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <variant>
#include <vector>

#include "arrays.h"
#include "numbers.h"
#include "rope_scaling.h"
#include "values.h"
#include "words.h"

namespace locus::python {
namespace {

// Fields that only their encoding reads: the type that Python shows, and the
// way there and back.
struct ObjectField {
  std::string_view name;
  const char* type;
  void (*read)(nb::handle value, FieldValues& fields);
  nb::object (*write)(const Object& object);
};

void ReadScalingField(nb::handle value, FieldValues& fields) {
  RopeOptions options{.base = fields.Real("base")};
  ReadScaling(value, options);
  fields.Set("base", options.base);
  fields.Set("scaling", Object{options.scaling});
}

nb::object WriteScaling(const Object& object) {
  return ScalingDict(std::any_cast<const RopeScaling&>(object.value));
}

void ReadBuckets(nb::handle value, FieldValues& fields) {
  const Buckets* buckets = nullptr;
  if (!nb::try_cast<const Buckets*>(value, buckets, false) || !buckets) {
    RefuseType("buckets", "None, or those of another Tupe", value);
  }
  fields.Set("buckets", Object{std::optional<BucketMap>(buckets->map)});
}

nb::object WriteBuckets(const Object& object) {
  const auto& map =
      std::any_cast<const std::optional<BucketMap>&>(object.value);
  return map ? nb::cast(Buckets{*map}) : nb::none();
}

constexpr ObjectField kObjects[] = {
    {"scaling", "dict", &ReadScalingField, &WriteScaling},
    {"buckets", "Any", &ReadBuckets, &WriteBuckets}};

const ObjectField& ObjectOf(const Field& field) {
  const auto* object =
      std::ranges::find(kObjects, field.name, &ObjectField::name);
  if (object == std::end(kObjects)) {
    throw nb::key_error(std::string(field.name).c_str());
  }
  return *object;
}

std::string TypeOf(const Field& field) {
  std::string type;
  switch (field.type) {
    case FieldType::kInt:
      type = "int";
      break;
    case FieldType::kReal:
      type = "float";
      break;
    case FieldType::kFlag:
      type = "bool";
      break;
    case FieldType::kChoice:
      type = "str";
      break;
    case FieldType::kInts:
      type = "Sequence[int]";
      break;
    case FieldType::kReals:
      type = "Sequence[float]";
      break;
    case FieldType::kTable:
      type = "Any";
      break;
    case FieldType::kObject:
      type = ObjectOf(field).type;
      break;
  }
  return field.optional ? type + " | None" : type;
}

std::string DefaultOf(const Field& field) {
  const std::string text(field.fallback);
  return field.type == FieldType::kChoice ? "'" + text + "'" : text;
}

// A word of the field's choices.
std::string ChoiceOf(const Field& field, nb::handle value) {
  const std::string name(field.name);
  const std::string word = TextOf(name, value);
  std::vector<std::string> known;
  std::vector<const char*> texts;
  for (std::string_view choice : ChoicesOf(field)) {
    if (word == choice) return word;
    known.emplace_back(choice);
  }
  for (const std::string& text : known) texts.push_back(text.c_str());
  NoSuchWord(name.c_str(), value, texts);
}

FieldValue ReadField(const Field& field, nb::handle value) {
  const std::string name(field.name);
  if (field.optional && value.is_none()) return {};
  switch (field.type) {
    case FieldType::kInt:
      return IntOf(name, value);
    case FieldType::kReal:
      return RealOf(name, value);
    case FieldType::kFlag:
      return FlagOf(name.c_str(), value);
    case FieldType::kChoice:
      return ChoiceOf(field, value);
    case FieldType::kInts:
      return Integers(name.c_str(), value,
                      {{std::stoll(std::string(field.shape))}});
    case FieldType::kReals:
      return RealRow(name.c_str(), value);
    case FieldType::kTable:
      return Table(name.c_str(), value);
    case FieldType::kObject:
      break;
  }
  return {};
}

struct Write {
  const Field& field;

  nb::object operator()(std::monostate /*none*/) const { return nb::none(); }
  nb::object operator()(const Tensor& table) const {
    return table.defined() ? ToNumpy(table) : nb::none();
  }
  nb::object operator()(const Object& object) const {
    return ObjectOf(field).write(object);
  }
  template <typename T>
  nb::object operator()(const T& value) const {
    return nb::cast(value);
  }
};

using Pieces = std::vector<std::array<int64_t, 3>>;

nb::tuple ReducedBuckets(const Buckets& self) {
  const BucketMap& map = self.map;
  Pieces pieces;
  for (const BucketMap::Piece& piece : map.pieces) {
    pieces.push_back({piece.start, piece.first_bucket, piece.step});
  }
  return nb::make_tuple(
      nb::module_::import_("locus_attn._copies").attr("rebuild_buckets"),
      nb::make_tuple(map.count, map.min_offset, map.max_offset, pieces));
}

Buckets RebuildBuckets(int32_t count, int64_t lowest, int64_t highest,
                       const Pieces& pieces) {
  BucketMap map;
  map.count = count;
  map.min_offset = lowest;
  map.max_offset = highest;
  for (const auto& [start, first, step] : pieces) {
    map.pieces.push_back({.start = start,
                          .first_bucket = static_cast<int32_t>(first),
                          .step = static_cast<int32_t>(step)});
  }
  return {map};
}

nb::dict SliderDict(const Slider& slider) {
  nb::dict dict;
  dict["lowest"] = slider.lowest;
  dict["highest"] = slider.highest;
  dict["step"] = slider.step;
  dict["logarithmic"] = slider.logarithmic;
  return dict;
}

nb::object Text(std::string_view text) { return nb::cast(std::string(text)); }

// None where there is no bound.
nb::object Bound(double value) {
  return std::isfinite(value) ? nb::cast(value) : nb::none();
}

}  // namespace

std::string SignatureOf(const EncodingInfo& info) {
  std::string text = std::string(info.class_name) + "(";
  bool by_name = false;
  for (const Field& field : info.fields) {
    if (&field != info.fields.data()) text += ", ";
    if (field.by_name && !by_name) text += "*, ";
    by_name = by_name || field.by_name;
    text += std::string(field.name) + ": " + TypeOf(field);
    if (!field.fallback.empty()) text += " = " + DefaultOf(field);
  }
  return text + ")";
}

std::string DocumentOf(const EncodingInfo& info) {
  std::string text(info.summary);
  for (const Field& field : info.fields) {
    text += &field == info.fields.data() ? "\n\n" : "\n";
    text += field.name;
    if (!field.shape.empty()) text += " [" + std::string(field.shape) + "]";
    text += ": " + std::string(field.sentence) + ".";
  }
  return text;
}

FieldValues ReadFields(const EncodingInfo& info, const Arguments& a) {
  FieldValues values;
  for (const Field& field : info.fields) {
    const std::string name(field.name);
    const nb::handle value = a[name.c_str()];
    if (field.type == FieldType::kObject) {
      if (!value.is_none()) ObjectOf(field).read(value, values);
    } else {
      values.Set(name, ReadField(field, value));
    }
  }
  return values;
}

nb::dict FieldsDict(const EncodingInfo& info, const Encoding& encoding) {
  FieldValues values = info.fields_of(encoding);
  values.Complete(info.class_name, info.fields);
  nb::dict dict;
  for (const Field& field : info.fields) {
    const std::string name(field.name);
    dict[name.c_str()] = std::visit(Write{field}, values.values().at(name));
  }
  return dict;
}

nb::list FieldsList(std::span<const Field> fields) {
  nb::list list;
  for (const Field& field : fields) {
    nb::list choices;
    for (std::string_view choice : ChoicesOf(field))
      choices.append(Text(choice));
    nb::dict dict;
    dict["name"] = Text(field.name);
    dict["type"] = Text(FieldTypeName(field.type));
    dict["default"] =
        field.fallback.empty() ? nb::none() : Text(field.fallback);
    dict["choices"] = choices;
    dict["shape"] = Text(field.shape);
    dict["optional"] = field.optional;
    dict["by_name"] = field.by_name;
    dict["sentence"] = Text(field.sentence);
    dict["slider"] = field.slider.defined()
                         ? nb::object(SliderDict(field.slider))
                         : nb::none();
    list.append(dict);
  }
  return list;
}

nb::list TrainingList(std::span<const ParamTraining> training) {
  nb::list list;
  for (const ParamTraining& row : training) {
    nb::dict dict;
    dict["name"] = Text(row.name);
    dict["start"] = Text(StartName(row.start));
    dict["size"] = row.size;
    dict["rate"] = row.rate;
    dict["decays"] = row.decays;
    dict["lowest"] = Bound(row.lowest);
    dict["highest"] = Bound(row.highest);
    dict["highest_for"] = Text(row.highest_for);
    dict["shared_by_heads"] = row.shared_by_heads;
    dict["projection"] = Text(row.projection);
    list.append(dict);
  }
  return list;
}

void BindBuckets(nb::module_& m) {
  nb::class_<Buckets>(m, "_Buckets").def("__reduce__", &ReducedBuckets);
  m.def("_rebuild_buckets", &RebuildBuckets);
}

nb::dict ParamsOf(const Encoding& encoding) {
  nb::dict result;
  for (const Param& param : encoding.Params()) {
    result[param.name.c_str()] = ToNumpy(param.value);
  }
  return result;
}

nb::tuple Reduced(nb::handle self, nb::handle native,
                  const nb::dict& arguments) {
  const nb::object rebuild =
      nb::module_::import_("locus_attn._copies").attr("rebuild");
  return nb::make_tuple(rebuild, nb::make_tuple(native, self.type(), arguments),
                        nb::getattr(self, "__dict__", nb::none()));
}

}  // namespace locus::python
