// encodings(), check() and explain().
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "locus/locus.h"
#include "options.h"

namespace locus::python {
namespace {

using nb::literals::operator""_a;

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

ExampleConfig Config(int64_t heads, int64_t head_dim, int64_t length,
                     uint64_t seed, const nb::kwargs& options) {
  ExampleConfig config{
      .heads = heads, .head_dim = head_dim, .length = length, .seed = seed};
  for (const auto& [key, value] : options) {
    config.options[nb::cast<std::string>(key)] =
        nb::cast<std::string>(nb::str(value));
  }
  return config;
}

CheckReport CheckAny(const nb::object& encoding, int64_t heads,
                     int64_t head_dim, int64_t length, uint64_t seed) {
  if (nb::isinstance<nb::str>(encoding)) {
    const EncodingInfo& info = FindEncoding(nb::cast<std::string>(encoding));
    const nb::gil_scoped_release release;
    return Check(
        info,
        {.heads = heads, .head_dim = head_dim, .length = length, .seed = seed});
  }
  const Encoding& position = EncodingOf(encoding);
  const nb::gil_scoped_release release;
  return Check(
      position,
      {.heads = heads, .head_dim = head_dim, .length = length, .seed = seed});
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
  nb::class_<EncodingInfo>(m, "EncodingInfo", "One row of encodings().")
      .def_prop_ro("name",
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
                   [](const EncodingInfo& i) { return std::string(i.options); })
      .def(
          "example",
          [](const EncodingInfo& info, int64_t heads, int64_t head_dim,
             int64_t length, uint64_t seed, const nb::kwargs& options) {
            return info.example(Config(heads, head_dim, length, seed, options));
          },
          "heads"_a = 8, "head_dim"_a = 64, "length"_a = 128, "seed"_a = 1,
          "options"_a,
          "A ready-made instance: formulas with their usual constants, tables "
          "random. options: the encoding's own, see .options.")
      .def("__repr__", [](const EncodingInfo& i) {
        return "<" + std::string(i.name) + ": " + std::string(i.title) + ">";
      });
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
  nb::class_<CheckReport>(m, "CheckReport", "What check() found.")
      .def_ro("encoding", &CheckReport::encoding)
      .def_ro("properties", &CheckReport::properties)
      .def(
          "__getitem__",
          [](const CheckReport& report, const std::string& name) {
            return report.Find(name);
          },
          "name"_a)
      .def("__repr__", &Text);
  m.def("check", &CheckAny, "encoding"_a, "heads"_a = 8, "head_dim"_a = 64,
        "length"_a = 128, "seed"_a = 1,
        "What an encoding can and cannot do, measured on random tokens: order, "
        "uniqueness, relativity, decay and more. encoding: an instance, or a "
        "name of encodings().");
}

}  // namespace

void BindList(nb::module_& m) {
  BindInfo(m);
  m.def(
      "encodings",
      [] {
        nb::list list;
        for (const EncodingInfo& info : Encodings()) {
          list.append(nb::cast(&info, nb::rv_policy::reference));
        }
        return list;
      },
      "Every encoding, with its formula, paper and properties.");
  BindCheck(m);
  m.def(
      "machine",
      [](std::optional<int> threads) {
        MachineLimits limits;
        const int n = ThreadsOf(threads);
        {
          const nb::gil_scoped_release release;
          limits = MeasureMachine(n);
        }
        nb::dict result;
        result["simd"] = std::string(SimdTarget());
        result["fma_gflops"] = limits.fma_gflops;
        result["read_gb_per_s"] = limits.read_gb_per_s;
        result["copy_gb_per_s"] = limits.copy_gb_per_s;
        result["update_gb_per_s"] = limits.update_gb_per_s;
        return result;
      },
      "threads"_a = nb::none(),
      "What this machine can do, measured now in some tenth of a second: "
      "float32 "
      "multiply-adds (GFLOP/s), and bandwidth of reading, copying and updating "
      "in place (GB/s).");
  m.def(
      "explain",
      [](const Encoding& encoding, int64_t heads, int64_t head_dim,
         int64_t length, bool causal) {
        return std::string(encoding.Name()) + "\n" +
               Describe(encoding
                            .Lower(Shape::SelfAttention(heads, head_dim, length,
                                                        causal))
                            .terms);
      },
      "encoding"_a, "heads"_a = 8, "head_dim"_a = 64, "length"_a = 128,
      "causal"_a = false,
      "The terms that an encoding becomes for a call of these sizes, in "
      "words.");
}

}  // namespace locus::python
