// The encodings as Python classes, one for each line of the list: constructors,
// parameters, embeddings.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <new>
#include <string>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "compute.h"
#include "encoding_fields.h"
#include "encoding_methods.h"
#include "locus/descriptor.h"
#include "locus/encodings/all.h"
#include "locus/rotary.h"
#include "memory.h"
#include "numbers.h"
#include "signature.h"
#include "values.h"

namespace locus::python {
namespace {

std::unique_ptr<Encoding> WithParams(const Encoding& encoding,
                                     const Arguments& a) {
  if (!nb::isinstance<nb::dict>(a["values"])) {
    RefuseType("values", "a dict of arrays by name", a["values"]);
  }
  const auto values = nb::borrow<nb::dict>(a["values"]);
  const std::vector<Param> params = encoding.Params();
  std::vector<Tensor> tensors;
  std::string known;
  for (const Param& param : params) {
    known += (known.empty() ? "" : ", ") + param.name;
    if (!values.contains(param.name.c_str())) {
      throw nb::value_error(
          ("the parameter " + param.name + " is missing").c_str());
    }
    const nb::object value = values[param.name.c_str()];
    if (value.is_none()) RefuseType(param.name, "an array", value);
    tensors.push_back(Table(param.name.c_str(), value));
  }
  for (const auto& [key, value] : values) {
    const std::string name = TextOf("a name among values", key);
    if (std::any_of(params.begin(), params.end(),
                    [&](const Param& param) { return param.name == name; })) {
      continue;
    }
    throw nb::value_error(("there is no parameter " + name + ": " +
                           std::string(encoding.Name()) + " has " +
                           (known.empty() ? "none" : known))
                              .c_str());
  }
  return encoding.WithParams(tensors);
}

// Rows E[pos], after a look at how wide one is.
nb::object Embed(const Encoding& self, const Arguments& a) {
  const int64_t first = 0;
  const int64_t width = self.Embed({&first, 1}).size(1);
  const int64_t bytes = width * static_cast<int64_t>(sizeof(double));
  const std::vector<int64_t> at =
      Integers("positions", a["positions"], {{-1}}, bytes);
  RequireMemory("embedding " + std::to_string(at.size()) + " positions",
                static_cast<int64_t>(at.size()), bytes);
  return ToNumpy(Compute([&] { return self.Embed(at); }));
}

std::string Represent(nb::handle_t<Encoding> self) {
  const auto& encoding = nb::cast<const Encoding&>(self);
  const std::string name = TypeName(self);
  std::string text = "locus." + name.substr(name.rfind('.') + 1) + "(";
  bool first = true;
  for (const Param& param : encoding.Params()) {
    text += (first ? "" : ", ") + param.name + ": " + param.value.Describe();
    first = false;
  }
  return text + ")";
}

// A class of encodings, which can be copied and pickled.
template <typename T>
void BindClass(nb::module_& m, const EncodingInfo& info) {
  const std::string name(info.class_name);
  nb::class_<T, Encoding> type(m, name.c_str(), DocumentOf(info).c_str());
  Constructor(type, SignatureOf(info).c_str(),
              [&info](T* self, const Arguments& a) {
                const auto made = info.make(ReadFields(info, a));
                new (self) T(static_cast<const T&>(*made));
              });
  type.def(
      "__reduce__",
      [&info](nb::handle_t<T> self) {
        return Reduced(self, nb::type<T>(),
                       FieldsDict(info, nb::cast<const T&>(self)));
      },
      nb::sig("def __reduce__(self) -> tuple"));
  if constexpr (requires { AddMethods(type); }) AddMethods(type);
}

}  // namespace

void BindEncodings(nb::module_& m) {
  BindBuckets(m);
  nb::class_<Encoding> encoding(
      m, "Encoding",
      "A positional encoding: parameters, and how they enter attention. Tables "
      "are shared, not copied; copy.deepcopy and pickle copy them. Threads "
      "may share an encoding.");
  encoding.def_prop_ro(
      "name", [](const Encoding& self) { return std::string(self.Name()); },
      "The name in the list, such as \"rope\".");
  Method(encoding, "params() -> dict",
         "The trainable parameters: name -> array, shared.",
         [](const Encoding& self, const Arguments&) { return ParamsOf(self); });
  Method(encoding, "with_params(values: dict) -> Encoding",
         "The same encoding with other parameter values, by name.",
         &WithParams);
  Method(encoding, "embed(positions: Any) -> Any",
         "For encodings of the input: the rows [n, d_model] (float64) that "
         "are added to x. Others raise ValueError.",
         &Embed);
  encoding.def("__repr__", &Represent);
#define LOCUS_ENCODING(name, Class) BindClass<Class>(m, FindEncoding(#Class));
#include "encodings/encodings.inc"
#undef LOCUS_ENCODING
  Function(m, "pack_position(t: int, h: int, w: int) -> int",
           "One int64 position from time, row and column, for MRope: 2^60 + t "
           "2^40 + h 2^20 + w. A text token p is at pack_position(p, p, p), or "
           "just at p.",
           [](const Arguments& a) {
             return PackPosition(a.Int("t"), a.Int("h"), a.Int("w"));
           });
}

}  // namespace locus::python
