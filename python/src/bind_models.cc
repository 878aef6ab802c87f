// from_config: real models' configs and checkpoints.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "compute.h"
#include "layout.h"
#include "locus/attention.h"
#include "locus/checkpoint.h"
#include "locus/encoding.h"
#include "locus/error.h"
#include "locus/files.h"
#include "locus/models.h"
#include "locus/tensor.h"
#include "locus/terms.h"
#include "numbers.h"
#include "options.h"
#include "signature.h"
#include "values.h"

namespace locus::python {
namespace {

using models::LayerPosition;
using models::NeededTensor;
using models::Scheme;

// A layer's position, and the tensors that its schemes are made of.
struct ModelPosition {
  LayerPosition facts;
  std::shared_ptr<const Encoding> attention;  // null: tensors are missing
  std::shared_ptr<const Encoding> input;
  // What it was read from, for copies: the text of a config.json, or nothing.
  std::string json;
  models::ReadOptions options;
};

// The path of a str or an object with __fspath__.
std::string PathOf(const char* name, const char* wanted, nb::handle object) {
  if (!nb::isinstance<nb::str>(object) && !nb::hasattr(object, "__fspath__")) {
    RefuseType(name, wanted, object);
  }
  const nb::object path = nb::steal(PyOS_FSPath(object.ptr()));
  if (!path.is_valid()) throw nb::python_error();
  return TextOf(name, path);
}

// Where tensors come from: None, a checkpoint file, or name -> array.
models::TensorLookup LookupOf(nb::handle tensors,
                              std::optional<models::Checkpoint>& file) {
  if (tensors.is_none()) return {};
  if (!nb::isinstance<nb::dict>(tensors)) {
    file = models::Checkpoint::Open(
        PathOf("tensors", "a path or a dict of arrays by name", tensors));
    return file->Lookup();
  }
  const auto dict = nb::borrow<nb::dict>(tensors);
  return [dict](const NeededTensor& need) {
    // A state_dict may put the model's own prefix before the name.
    for (const auto& [key, value] : dict) {
      const std::string name = TextOf("a name among tensors", key);
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

// All of a file that was read once already.
std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The facts, and the text that they come from unless that is a .gguf file.
void Read(nb::handle config, ModelPosition& position) {
  if (nb::isinstance<nb::dict>(config)) {
    position.json =
        TextOf("config", nb::module_::import_("json").attr("dumps")(config));
    position.facts = models::FromConfig(position.json, position.options);
    return;
  }
  std::string path = PathOf("config", "a path or a dict", config);
  const nb::object isdir =
      nb::module_::import_("os").attr("path").attr("isdir");
  if (nb::cast<bool>(isdir(path))) path += "/config.json";
  if (path.ends_with(".gguf")) {
    position.facts = models::FromGguf(path, position.options);
    return;
  }
  position.facts = models::FromConfigFile(path, position.options);
  position.json = FileText(path);
}

ModelPosition FromConfig(const Arguments& a) {
  ModelPosition position;
  models::ReadOptions& options = position.options;
  options.layer = a.Int("layer");
  options.part = a.TextOrNone("part").value_or("");
  options.lenient = a.Flag("lenient");
  options.length = a.Int("length");
  std::tie(options.grid_height, options.grid_width) = a.IntPair("grid");
  options.angles = a.Choice("angles", kAngles);
  Read(a["config"], position);
  std::optional<models::Checkpoint> file;
  const models::TensorLookup lookup = LookupOf(a["tensors"], file);
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

// An encoding of a layer as Python sees it, or None.
nb::object AsObject(const std::shared_ptr<const Encoding>& encoding) {
  if (!encoding) return nb::none();
  return nb::cast(std::const_pointer_cast<Encoding>(encoding));
}

nb::tuple Reduced(const ModelPosition& p) {
  if (p.json.empty()) {
    throw nb::type_error(
        "a LayerPosition of a .gguf file cannot be pickled or copied: pickle "
        "its encoding and its options() instead");
  }
  const models::ReadOptions& o = p.options;
  return nb::make_tuple(
      nb::module_::import_("locus_attn._copies").attr("rebuild_layer"),
      nb::make_tuple(p.json, o.layer, o.part, o.lenient, o.length,
                     o.grid_height, o.grid_width, WordFor(o.angles, kAngles),
                     AsObject(p.attention), AsObject(p.input)));
}

ModelPosition RebuildLayer(std::string json, int64_t layer, std::string part,
                           bool lenient, int64_t length, int64_t height,
                           int64_t width, nb::handle angles,
                           std::shared_ptr<Encoding> attention,
                           std::shared_ptr<Encoding> input) {
  ModelPosition position;
  position.json = std::move(json);
  position.options.layer = layer;
  position.options.part = std::move(part);
  position.options.lenient = lenient;
  position.options.length = length;
  position.options.grid_height = height;
  position.options.grid_width = width;
  position.options.angles = WordOf("angles", angles, kAngles);
  position.facts = models::FromConfig(position.json, position.options);
  position.attention = std::move(attention);
  position.input = std::move(input);
  return position;
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

// Positions of a call, [length] or [batch, length], or none.
struct Positions {
  Positions(const char* name, nb::handle given)
      : ids(IntegersOrNone(name, given, {{-1}, {-1, -1}})) {
    if (given.is_none()) return;
    for (const nb::handle size : nb::borrow<nb::tuple>(
             nb::module_::import_("numpy").attr("shape")(given))) {
      shape.push_back(nb::cast<size_t>(size));
    }
  }

  std::vector<int64_t> ids;
  std::vector<size_t> shape;
};

// Segments in the shape of the positions that they were made of.
nb::object SegmentArray(std::vector<int64_t> ids, const Positions& positions) {
  auto kept = std::make_unique<std::vector<int64_t>>(std::move(ids));
  const std::vector<size_t> shape = positions.shape.empty()
                                        ? std::vector<size_t>{kept->size()}
                                        : positions.shape;
  int64_t* const data = kept->data();
  const nb::capsule owner(kept.release(), [](void* p) noexcept {
    delete static_cast<std::vector<int64_t>*>(p);
  });
  return nb::cast(
      nb::ndarray<nb::numpy, int64_t>(data, shape.size(), shape.data(), owner));
}

nb::dict Keywords(const AttentionOptions& options) {
  nb::dict keywords;
  keywords["causal"] = options.causal;
  keywords["scale"] = *options.scale;
  if (options.window) {
    keywords["window"] =
        nb::make_tuple(options.window->left, options.window->right);
  }
  if (options.softcap) keywords["softcap"] = *options.softcap;
  return keywords;
}

nb::dict CallOptions(const ModelPosition& layer, const Arguments& a) {
  const nb::handle q_positions = a["q_positions"];
  const nb::handle k_positions = a["k_positions"];
  const Positions q("q_positions", q_positions), k("k_positions", k_positions);
  std::optional<int64_t> q_len = a.IntOrNone("q_len");
  std::optional<int64_t> k_len = a.IntOrNone("k_len");
  if (!q_len && !q.shape.empty()) q_len = q.shape.back();
  if (!k_len && !k.shape.empty()) k_len = k.shape.back();
  if (!q_len && !k_len) return Keywords(layer.facts.CallOptions());
  models::TokenOptions call = layer.facts.CallOptions(
      models::CallTokens{.q_len = q_len ? *q_len : *k_len,
                         .k_len = k_len ? *k_len : *q_len,
                         .q_positions = q.ids,
                         .k_positions = k.ids});
  nb::dict keywords = Keywords(call.options);
  if (!q_positions.is_none()) keywords["q_positions"] = q_positions;
  if (!k_positions.is_none()) keywords["k_positions"] = k_positions;
  if (!call.q_segments.empty()) {
    keywords["q_segments"] = SegmentArray(std::move(call.q_segments), q);
    keywords["k_segments"] = SegmentArray(std::move(call.k_segments), k);
  }
  return keywords;
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
  nb::class_<ModelPosition> type(
      m, "LayerPosition",
      "The positions of one layer of a model, from from_config. It may be "
      "passed wherever an encoding is; options() has the rest of the call:\n\n"
      "    locus.attention(q, k, v, layer.encoding, **layer.options())");
  Method(type,
         "options(q_len: int | None = None, k_len: int | None = None, *, "
         "q_positions: Any | None = None, k_positions: Any | None = None) -> "
         "dict",
         "causal, scale, window and softcap, as keywords of attention. A layer "
         "that attends in chunks (Llama 4) needs the lengths of the call, or "
         "its positions, which are then among the keywords; chunks become "
         "segments, or a window where all queries have one position.",
         &CallOptions);
  type.def("__reduce__", &Reduced, nb::sig("def __reduce__(self) -> tuple"));
  m.def("_rebuild_layer", &RebuildLayer, nb::arg(), nb::arg(), nb::arg(),
        nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
        nb::arg().none());
  type.def_prop_ro(
          "encoding",
          [](const ModelPosition& p) {
            return Built(p.attention, p.facts.attention);
          },
          "What acts inside attention.")
      .def_prop_ro(
          "input",
          [](const ModelPosition& p) { return Built(p.input, p.facts.input); },
          "What is added to x.")
      .def_prop_ro(
          "needs", [](const ModelPosition& p) { return Needs(p.facts); },
          "Tensors of the checkpoint that the schemes are made of.")
      .def_prop_ro(
          "rotary", [](const ModelPosition& p) { return Rotary(p.facts); },
          "What rotates: layout, base, scaling, frequencies; None if nothing.")
      .def_prop_ro(
          "words", [](const ModelPosition& p) { return p.facts.Main().words; },
          "The scheme in one line.")
      .def_prop_ro(
          "scheme", [](const ModelPosition& p) { return p.facts.Main().name; },
          "The scheme's name in the list of encodings.")
      .def_prop_ro("model_type", Fact(&LayerPosition::model_type))
      .def_prop_ro("family", Fact(&LayerPosition::family))
      .def_prop_ro("part", Fact(&LayerPosition::part))
      .def_prop_ro("other_part", Fact(&LayerPosition::other_part),
                   "Whether the model has an encoder and a decoder.")
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
      .def_prop_ro("attends", Fact(&LayerPosition::attends),
                   "False for state spaces, linear attention, convolutions.")
      .def_prop_ro("sinks", Fact(&LayerPosition::sinks),
                   "The tensor that goes into attention(sinks=); empty: none.")
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

const LayerPosition* LayerOfModel(nb::handle object) {
  const ModelPosition* position = nullptr;
  if (!nb::try_cast<const ModelPosition*>(object, position, false)) {
    return nullptr;
  }
  return position == nullptr ? nullptr : &position->facts;
}

namespace {

nb::object Convert(const Arguments& a) {
  const nb::handle weight = a["weight"];
  const Borrowed in("weight", weight);
  const int64_t head_dim = a.Int("head_dim");
  const models::HeadRows rows{
      .heads = a.Int("heads"),
      .head_dim = head_dim,
      .rotary_dim = a.IntOrNone("rotary_dim").value_or(head_dim),
      .first_channel = a.Int("first_channel")};
  const PairLayout from = a.Choice("from_layout", kLayouts),
                   to = a.Choice("to_layout", kLayouts);
  return ToArray(
      Compute([&] { return models::ConvertLayout(in, rows, from, to); }),
      weight);
}

nb::list FamilyList(const Arguments& /*none*/) {
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
}

}  // namespace

void BindModels(nb::module_& m) {
  BindPosition(m);
  Function(
      m,
      "from_config(config: Any, layer: int = 0, *, tensors: Any | None = None, "
      "part: str | None = None, lenient: bool = False, length: int = 0, grid: "
      "tuple[int, int] = (0, 0), angles: str = 'exact') -> LayerPosition",
      "The positions of a layer of a real model, exactly, or a ValueError.\n\n"
      "config: a Hugging Face config.json (path, folder or dict) or a .gguf "
      "file. A key that nothing uses and that is not known to be harmless is "
      "an error naming it; "
      "lenient makes it a warning. tensors: for schemes made of weights "
      "(learned tables, T5's bias), a .safetensors or .gguf file, or a dict "
      "such as a state_dict. part: \"encoder\" or \"decoder\" where a model "
      "has both, or the key of one of its configs (\"vision_config\"). length: "
      "positions that tables made from sinusoids must serve. "
      "grid: (height, width) of an image in patches, if not as trained. "
      "angles: \"float32\" for parity with the arithmetic of Hugging Face.",
      &FromConfig);
  Function(m,
           "convert_layout(weight: Any, heads: int, head_dim: int, *, "
           "from_layout: str, to_layout: str, rotary_dim: int | None = None, "
           "first_channel: int = 0) -> Any",
           "The rows of a q or k projection [heads * head_dim, in] (or its "
           "bias) reordered from one pair layout to the other. k has its own "
           "number of heads where heads are grouped.",
           &Convert);
  Function(m, "families() -> list[dict]",
           "The model families that from_config knows.", &FamilyList);
}

}  // namespace locus::python
