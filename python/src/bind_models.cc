// from_config: real models' configs and checkpoints.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "layout.h"
#include "locus/checkpoint.h"
#include "locus/locus.h"
#include "locus/models.h"
#include "options.h"

namespace locus::python {
namespace {

using models::LayerPosition;
using models::NeededTensor;
using models::Scheme;
using nb::literals::operator""_a;

constexpr Word<AngleMode> kAngles[] = {{"exact", AngleMode::kExact},
                                       {"float32", AngleMode::kFloat32}};

// A layer's position, and the tensors that its schemes are made of.
struct ModelPosition {
  LayerPosition facts;
  std::shared_ptr<const Encoding> attention;  // null: tensors are missing
  std::shared_ptr<const Encoding> input;
};

// Where tensors come from: None, a checkpoint file, or name -> array.
models::TensorLookup LookupOf(const nb::object& tensors,
                              std::optional<models::Checkpoint>& file) {
  if (tensors.is_none()) return {};
  if (!nb::isinstance<nb::dict>(tensors)) {
    const auto path = nb::cast<std::string>(
        nb::module_::import_("os").attr("fspath")(tensors));
    file = models::Checkpoint::Open(path);
    return file->Lookup();
  }
  const auto dict = nb::borrow<nb::dict>(tensors);
  return [dict](const NeededTensor& need) {
    // A state_dict may put the model's own prefix before the name.
    for (const auto& [key, value] : dict) {
      const auto name = nb::cast<std::string>(key);
      if (name == need.name || name.ends_with("." + need.name)) {
        nb::object array = nb::borrow(value);
        if (nb::hasattr(array, "detach")) array = array.attr("detach")();
        return Table(need.name.c_str(), array);
      }
    }
    throw nb::value_error(
        ("there is no tensor " + need.name + " among those given").c_str());
  };
}

std::shared_ptr<const Encoding> BuildScheme(
    const Scheme& scheme, const models::TensorLookup& lookup) {
  if (scheme.encoding) return scheme.encoding;
  if (!lookup) return nullptr;
  return models::Build(scheme, lookup);
}

bool EndsWith(const std::string& text, const char* end) {
  return text.ends_with(end);
}

LayerPosition Read(const nb::object& config,
                   const models::ReadOptions& options) {
  if (nb::isinstance<nb::dict>(config)) {
    const auto json = nb::cast<std::string>(
        nb::module_::import_("json").attr("dumps")(config));
    return models::FromConfig(json, options);
  }
  const nb::object os = nb::module_::import_("os");
  if (!nb::isinstance<nb::str>(config) && !nb::hasattr(config, "__fspath__")) {
    throw nb::type_error(
        ("config must be a path or a dict, got " + TypeName(config)).c_str());
  }
  auto path = nb::cast<std::string>(os.attr("fspath")(config));
  if (nb::cast<bool>(os.attr("path").attr("isdir")(path))) {
    path += "/config.json";
  }
  if (EndsWith(path, ".gguf")) return models::FromGguf(path, options);
  return models::FromConfigFile(path, options);
}

ModelPosition FromConfig(const nb::object& config, int64_t layer,
                         const nb::object& tensors,
                         const std::optional<std::string>& part, bool lenient,
                         int64_t length, std::pair<int64_t, int64_t> grid,
                         const std::string& angles) {
  models::ReadOptions options;
  options.layer = layer;
  options.part = part.value_or("");
  options.lenient = lenient;
  options.length = length;
  options.grid_height = grid.first;
  options.grid_width = grid.second;
  options.angles = WordOf("angles", angles, kAngles);
  ModelPosition position;
  position.facts = Read(config, options);
  std::optional<models::Checkpoint> file;
  const models::TensorLookup lookup = LookupOf(tensors, file);
  position.attention = BuildScheme(position.facts.attention, lookup);
  position.input = BuildScheme(position.facts.input, lookup);
  return position;
}

std::shared_ptr<Encoding> Built(const std::shared_ptr<const Encoding>& encoding,
                                const Scheme& scheme) {
  if (encoding) return std::const_pointer_cast<Encoding>(encoding);
  std::string names;
  for (const NeededTensor& need : scheme.tensors) {
    names += (names.empty() ? "" : ", ") + need.name;
  }
  throw nb::value_error((scheme.name +
                         " is made of tensors of the checkpoint (" + names +
                         "): give from_config(..., tensors=)")
                            .c_str());
}

nb::list Needs(const LayerPosition& facts) {
  nb::list list;
  for (const Scheme* scheme : {&facts.input, &facts.attention}) {
    for (const NeededTensor& need : scheme->tensors) {
      nb::dict row;
      row["name"] = need.name;
      row["shape"] = need.shape;
      row["use"] = need.use;
      list.append(row);
    }
  }
  return list;
}

nb::dict CallOptions(const LayerPosition& facts) {
  nb::dict options;
  options["causal"] = facts.causal;
  options["scale"] = facts.scale;
  if (facts.window) {
    options["window"] = nb::make_tuple(facts.window->left, facts.window->right);
  }
  if (facts.softcap > 0.0) options["softcap"] = facts.softcap;
  return options;
}

nb::object Rotary(const LayerPosition& facts) {
  if (!facts.rotary) return nb::none();
  const models::RotaryFacts& r = *facts.rotary;
  nb::dict row;
  row["layout"] = r.layout == PairLayout::kHalves ? "halves" : "interleaved";
  row["rotary_dim"] = r.rotary_dim;
  row["first_channel"] = r.first_channel;
  row["base"] = r.base;
  row["scaling"] = r.scaling;
  row["factor"] = r.factor;
  row["original_length"] = r.original_length;
  row["changes_with_length"] = r.changes_with_length;
  row["frequencies"] = r.theta;
  row["gain"] = r.gain;
  return row;
}

template <typename T>
auto Fact(T LayerPosition::*member) {
  return [member](const ModelPosition& p) { return p.facts.*member; };
}

void BindPosition(nb::module_& m) {
  nb::class_<ModelPosition>(
      m, "LayerPosition",
      "The positions of one layer of a model, from from_config. It may be "
      "passed wherever an encoding is; options() has the rest of the call:\n\n"
      "    locus.attention(q, k, v, layer.encoding, **layer.options())")
      .def_prop_ro(
          "encoding",
          [](const ModelPosition& p) {
            return Built(p.attention, p.facts.attention);
          },
          "What acts inside attention.")
      .def_prop_ro(
          "input",
          [](const ModelPosition& p) { return Built(p.input, p.facts.input); },
          "What is added to x.")
      .def(
          "options",
          [](const ModelPosition& p) { return CallOptions(p.facts); },
          "causal, scale, window and softcap, as keywords of attention.")
      .def_prop_ro(
          "needs", [](const ModelPosition& p) { return Needs(p.facts); },
          "Tensors of the checkpoint that the schemes are made of.")
      .def_prop_ro(
          "rotary", [](const ModelPosition& p) { return Rotary(p.facts); },
          "What rotates: layout, base, scaling, frequencies; None if nothing.")
      .def_prop_ro(
          "words", [](const ModelPosition& p) { return p.facts.Main().words; },
          "The scheme in one line.")
      .def_prop_ro("model_type", Fact(&LayerPosition::model_type))
      .def_prop_ro("family", Fact(&LayerPosition::family))
      .def_prop_ro("part", Fact(&LayerPosition::part))
      .def_prop_ro("layer_type", Fact(&LayerPosition::layer_type))
      .def_prop_ro("layer", Fact(&LayerPosition::layer))
      .def_prop_ro("layers", Fact(&LayerPosition::layers))
      .def_prop_ro("q_heads", Fact(&LayerPosition::q_heads))
      .def_prop_ro("kv_heads", Fact(&LayerPosition::kv_heads))
      .def_prop_ro("head_dim", Fact(&LayerPosition::head_dim))
      .def_prop_ro("value_dim", Fact(&LayerPosition::value_dim))
      .def_prop_ro("model_dim", Fact(&LayerPosition::model_dim))
      .def_prop_ro("chunk", Fact(&LayerPosition::chunk),
                   "Tokens see only their own chunk of so many; 0 is all.")
      .def_prop_ro("scale", Fact(&LayerPosition::scale))
      .def_prop_ro("softmax_factor", Fact(&LayerPosition::softmax_factor))
      .def_prop_ro("trained_length", Fact(&LayerPosition::trained_length))
      .def_prop_ro("warnings", Fact(&LayerPosition::warnings))
      .def("__repr__", [](const ModelPosition& p) {
        return "<layer " + std::to_string(p.facts.layer) + " of " +
               p.facts.family + ": " + p.facts.Main().words + ">";
      });
}

}  // namespace

const Encoding* EncodingOfModel(nb::handle object) {
  const ModelPosition* position = nullptr;
  if (!nb::try_cast<const ModelPosition*>(object, position, false) ||
      position == nullptr) {
    return nullptr;
  }
  return Built(position->attention, position->facts.attention).get();
}

void BindModels(nb::module_& m) {
  BindPosition(m);
  m.def(
      "from_config", &FromConfig, "config"_a, "layer"_a = 0, nb::kw_only(),
      "tensors"_a = nb::none(), "part"_a = nb::none(), "lenient"_a = false,
      "length"_a = 0, "grid"_a = std::pair<int64_t, int64_t>{0, 0},
      "angles"_a = "exact",
      "The positions of a layer of a real model, exactly, or a ValueError.\n\n"
      "config: a Hugging Face config.json (path, folder or dict) or a .gguf "
      "file. A position-related key that nothing uses is an error naming it; "
      "lenient makes it a warning. tensors: for schemes made of weights "
      "(learned tables, T5's bias), a .safetensors or .gguf file, or a dict "
      "such as a state_dict. part: \"encoder\" or \"decoder\" where a model "
      "has "
      "both. length: positions that tables made from sinusoids must serve. "
      "grid: (height, width) of an image in patches, if not as trained. "
      "angles: \"float32\" for parity with the arithmetic of Hugging Face.");
  m.def(
      "convert_layout",
      [](const nb::object& weight, int64_t heads, int64_t head_dim,
         const std::string& from, const std::string& to,
         std::optional<int64_t> rotary_dim, int64_t first_channel) {
        const Borrowed in("weight", weight);
        const models::HeadRows rows{.heads = heads,
                                    .head_dim = head_dim,
                                    .rotary_dim = rotary_dim.value_or(head_dim),
                                    .first_channel = first_channel};
        return ToArray(
            models::ConvertLayout(in, rows, LayoutOf(from), LayoutOf(to)),
            weight);
      },
      "weight"_a, "heads"_a, "head_dim"_a, nb::kw_only(), "from_layout"_a,
      "to_layout"_a, "rotary_dim"_a = nb::none(), "first_channel"_a = 0,
      "The rows of a q or k projection [heads * head_dim, in] (or its bias) "
      "reordered from one pair layout to the other. k has its own number of "
      "heads where heads are grouped.");
  m.def(
      "families",
      [] {
        nb::list list;
        for (const models::FamilyInfo& family : models::Families()) {
          nb::dict row;
          row["name"] = std::string(family.name);
          nb::list types;
          for (const std::string_view type : family.model_types) {
            types.append(std::string(type));
          }
          row["model_types"] = types;
          row["scheme"] = std::string(family.scheme);
          row["traps"] = std::string(family.traps);
          list.append(row);
        }
        return list;
      },
      "The model families that from_config knows.");
}

}  // namespace locus::python
