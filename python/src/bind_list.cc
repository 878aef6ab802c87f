// encodings(), check() and explain().
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>

#include "bind.h"
#include "compute.h"
#include "encoding_fields.h"
#include "locus/check.h"
#include "locus/descriptor.h"
#include "locus/encoding.h"
#include "locus/machine.h"
#include "locus/simd.h"
#include "locus/terms.h"
#include "locus/version.h"
#include "options.h"
#include "signature.h"
#include "values.h"

namespace locus::python {
namespace {

const char* ReferenceName(Reference reference) {
  switch (reference) {
    case Reference::kNone:
      return "none";
    case Reference::kAbsolute:
      return "absolute";
    case Reference::kRelative:
      return "relative";
  }
  return "";
}

const char* ExtrapolatesName(Extrapolates extrapolates) {
  switch (extrapolates) {
    case Extrapolates::kNo:
      return "no";
    case Extrapolates::kPartly:
      return "partly";
    case Extrapolates::kYes:
      return "yes";
  }
  return "";
}

uint64_t SeedOf(const Arguments& a) {
  const int64_t seed = a.Int("seed");
  if (seed < 0) {
    throw nb::value_error(
        ("seed must not be negative, got " + std::to_string(seed)).c_str());
  }
  return static_cast<uint64_t>(seed);
}

std::unique_ptr<Encoding> Example(const EncodingInfo& info,
                                  const Arguments& a) {
  ExampleConfig config{.heads = a.Int("heads"),
                       .head_dim = a.Int("head_dim"),
                       .length = a.Int("length"),
                       .seed = SeedOf(a)};
  for (const auto& [key, value] : a.rest()) {
    // As the command line spells them.
    const std::string name = TextOf("an option's name", key);
    PyObject* const p = value.ptr();
    if (!PyUnicode_Check(p) && !PyLong_Check(p) && !PyFloat_Check(p)) {
      RefuseType(name, "a string or a number", value);
    }
    config.options[name] = TextOf(name, nb::str(nb::borrow(value)));
  }
  return Compute([&] { return info.example(config); });
}

CheckReport CheckAny(const Arguments& a) {
  const int64_t heads = a.Int("heads"), head_dim = a.Int("head_dim"),
                length = a.Int("length");
  const uint64_t seed = SeedOf(a);
  const nb::handle encoding = a["encoding"];
  if (nb::isinstance<nb::str>(encoding)) {
    const EncodingInfo& info = FindEncoding(TextOf("encoding", encoding));
    return Compute([&] {
      return Check(info, {.heads = heads,
                          .head_dim = head_dim,
                          .length = length,
                          .seed = seed});
    });
  }
  const Encoding& position = EncodingOf(encoding);
  return Compute([&] {
    return Check(
        position,
        {.heads = heads, .head_dim = head_dim, .length = length, .seed = seed});
  });
}

std::string Text(const CheckReport& report) {
  std::string text = report.encoding + "\n";
  for (const Property& property : report.properties) {
    std::string name = property.name;
    name.resize(std::max<size_t>(name.size(), 17), ' ');
    std::string verdict(VerdictName(property.verdict));
    verdict.resize(std::max<size_t>(verdict.size(), 15), ' ');
    text += "  " + name + verdict + property.sentence + "\n";
  }
  return text;
}

void BindInfo(nb::module_& m) {
  nb::class_<EncodingInfo> info(m, "EncodingInfo", "One row of encodings().");
  info.def_prop_ro("name",
                   [](const EncodingInfo& i) { return std::string(i.name); })
      .def_prop_ro(
          "class_name",
          [](const EncodingInfo& i) { return std::string(i.class_name); })
      .def_prop_ro("title",
                   [](const EncodingInfo& i) { return std::string(i.title); })
      .def_prop_ro("formula",
                   [](const EncodingInfo& i) { return std::string(i.formula); })
      .def_prop_ro("paper",
                   [](const EncodingInfo& i) { return std::string(i.paper); })
      .def_prop_ro("models",
                   [](const EncodingInfo& i) { return std::string(i.models); })
      .def_prop_ro("reference",
                   [](const EncodingInfo& i) {
                     return std::string(ReferenceName(i.reference));
                   })
      .def_prop_ro("trainable",
                   [](const EncodingInfo& i) { return i.trainable; })
      .def_prop_ro("extrapolates",
                   [](const EncodingInfo& i) {
                     return std::string(ExtrapolatesName(i.extrapolates));
                   })
      .def_prop_ro("options",
                   [](const EncodingInfo& i) { return i.options_text(); })
      .def_prop_ro("summary",
                   [](const EncodingInfo& i) { return std::string(i.summary); })
      .def_prop_ro(
          "fields", [](const EncodingInfo& i) { return FieldsList(i.fields); },
          "The arguments of the class: dicts of name, type, default, choices, "
          "shape, optional, by_name, sentence and slider.")
      .def_prop_ro(
          "example_options",
          [](const EncodingInfo& i) { return FieldsList(i.options); },
          "The options of example(), likewise.")
      .def_prop_ro(
          "variants",
          [](const EncodingInfo& i) {
            return std::vector<std::string>(i.variants.begin(),
                                            i.variants.end());
          },
          "Options of example() worth comparing, such as "
          "\"kind=power\".")
      .def_prop_ro(
          "training",
          [](const EncodingInfo& i) { return TrainingList(i.training); },
          "How each parameter starts and trains in a model.")
      .def("__repr__", [](const EncodingInfo& i) {
        return "<" + std::string(i.name) + ": " + std::string(i.title) + ">";
      });
  Method(info,
         "example(heads: int = 8, head_dim: int = 64, length: int = 128, seed: "
         "int = 1, **options: Any) -> Encoding",
         "A ready-made instance: formulas with their usual constants, tables "
         "random. options: the encoding's own, see .options.",
         &Example);
  info.def(
      "__reduce__",
      [](const EncodingInfo& i) {
        return nb::make_tuple(
            nb::module_::import_("locus_attn._copies").attr("find"),
            nb::make_tuple(std::string(i.name)));
      },
      nb::sig("def __reduce__(self) -> tuple"));
}

void BindCheck(nb::module_& m) {
  nb::class_<Property>(m, "Property", "One question, measured.")
      .def_ro("name", &Property::name)
      .def_ro("question", &Property::question)
      .def_prop_ro(
          "verdict",
          [](const Property& p) { return std::string(VerdictName(p.verdict)); })
      .def_ro("value", &Property::value)
      .def_ro("measure", &Property::measure)
      .def_ro("threshold", &Property::threshold)
      .def_ro("sentence", &Property::sentence)
      .def("__repr__", [](const Property& p) {
        return "<" + p.name + ": " + std::string(VerdictName(p.verdict)) + ">";
      });
  nb::class_<CheckReport> report(m, "CheckReport", "What check() found.");
  report.def_ro("encoding", &CheckReport::encoding)
      .def_ro("properties", &CheckReport::properties)
      .def("__repr__", &Text);
  Method(report, "__getitem__(name: str) -> Property",
         "A property by its name.",
         [](const CheckReport& self, const Arguments& a) {
           return self.Find(a.Text("name"));
         });
  Function(m,
           "check(encoding: Encoding | str, heads: int = 8, head_dim: int = "
           "64, length: int = 128, seed: int = 1) -> CheckReport",
           "What an encoding can and cannot do, measured on random tokens: "
           "order, uniqueness, relativity, decay and more. encoding: an "
           "instance, or a name of encodings().",
           &CheckAny);
}

nb::dict Machine(const Arguments& a) {
  const int threads = a.Threads();
  const MachineLimits limits = Compute([&] { return MeasureMachine(threads); });
  nb::dict result;
  result["simd"] = std::string(SimdTarget());
  result["fma_gflops"] = limits.fma_gflops;
  result["read_gb_per_s"] = limits.read_gb_per_s;
  result["copy_gb_per_s"] = limits.copy_gb_per_s;
  result["update_gb_per_s"] = limits.update_gb_per_s;
  return result;
}

std::string Explain(const Arguments& a) {
  const Encoding& encoding = EncodingOf(a["encoding"]);
  const int64_t heads = a.Int("heads"), head_dim = a.Int("head_dim"),
                length = a.Int("length");
  const bool causal = a.Flag("causal");
  return Compute([&] {
    const Shape shape = Shape::SelfAttention(heads, head_dim, length, causal);
    return std::string(encoding.Name()) + "\n" +
           Describe(encoding.Lower(shape).terms);
  });
}

}  // namespace

void BindList(nb::module_& m) {
  BindInfo(m);
  Function(m, "encodings() -> list[EncodingInfo]",
           "Every encoding, with its formula, paper and properties.",
           [](const Arguments&) {
             nb::list list;
             for (const EncodingInfo& info : Encodings()) {
               list.append(nb::cast(&info, nb::rv_policy::reference));
             }
             return list;
           });
  BindCheck(m);
  Function(m, "machine(threads: int | None = None) -> dict",
           "What this machine can do, measured now in some tenth of a second: "
           "float32 multiply-adds (GFLOP/s), and bandwidth of reading, copying "
           "and updating in place (GB/s).",
           &Machine);
  Function(m,
           "explain(encoding: Encoding, heads: int = 8, head_dim: int = 64, "
           "length: int = 128, causal: bool = False) -> str",
           "The terms that an encoding becomes for a call of these sizes, in "
           "words.",
           &Explain);
}

}  // namespace locus::python
