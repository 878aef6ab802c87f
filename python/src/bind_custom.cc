// locus.Custom.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "compute.h"
#include "custom.h"
#include "numbers.h"
#include "signature.h"
#include "values.h"

namespace locus::python {
namespace {

constexpr const char* kCustomDoc =
    "A custom encoding, from functions of the offset m - n:\n\n"
    "    locus.Custom(lambda offsets: -np.abs(offsets) / 8)\n\n"
    "Each function is called once per call, with every offset from the lowest "
    "to the highest that occurs, int64 [n], and returns one row per offset, as "
    "float32 or float64. That is O(N) rows, and attention stays fused. For "
    "PyTorch functions with trained parameters see "
    "locus.torch.RelativeBias.\n\n"
    "terms: a function, taken as the bias; or a Terms (or a dict of its "
    "arguments) with everything that is not a function.\n"
    "bias: returns B [heads, n].\n"
    "q_table, k_table: return Tq, Tk [heads, n, D], whose dot products with "
    "queries and keys join the scores.\n"
    "v_table: returns Tv [heads, n, Dv], which is added to the values.\n\n"
    "The heads axis may be missing or 1: then all heads share the rows. "
    "In d_params of attention_backward, the name of a table has the gradient "
    "of what its function returned; the chain rule leads from there to the "
    "function's own parameters.";

const OwnTerms& TermsOf(nb::handle given, nb::object& keep) {
  const nb::object type = nb::borrow(nb::type<OwnTerms>());
  if (given.is_none()) {
    keep = type();
  } else if (nb::isinstance<nb::dict>(given)) {
    keep = type(**nb::borrow<nb::dict>(given));
  } else {
    keep = nb::borrow(given);
  }
  const OwnTerms* terms = nullptr;
  if (!nb::try_cast<const OwnTerms*>(keep, terms, false) || terms == nullptr) {
    RefuseType("terms", "a Terms, a dict of its arguments or a function",
               given);
  }
  return *terms;
}

void MakeCustom(Custom* self, const Arguments& a) {
  const auto is_function = [](nb::handle given) {
    return PyCallable_Check(given.ptr()) != 0;
  };
  nb::handle terms = a["terms"];
  nb::handle bias = a["bias"];
  if (!terms.is_none() && is_function(terms)) {
    if (!bias.is_none()) {
      throw nb::value_error("terms and bias are both functions for the bias");
    }
    bias = std::exchange(terms, nb::none());
  }
  std::vector<TableFunction> functions;
  for (const OwnArray& each : OwnTables()) {
    const bool first = each.array == &OwnArrays::bias;
    const nb::handle given = first ? bias : a[each.name];
    if (given.is_none()) continue;
    if (!is_function(given)) RefuseType(each.name, "a function", given);
    functions.push_back({&each, nb::borrow(given)});
  }
  nb::object keep;
  const OwnTerms& own = TermsOf(terms, keep);
  new (self) Custom(own, std::move(functions));
}

nb::tuple Reduced(nb::handle_t<Custom> self) {
  const auto& custom = nb::cast<const Custom&>(self);
  nb::dict arguments;
  if (!custom.terms().Params().empty() || custom.terms().settings().scale ||
      custom.terms().settings().rotate_values) {
    arguments["terms"] = nb::cast(custom.terms(), nb::rv_policy::copy);
  }
  for (const TableFunction& each : custom.functions()) {
    arguments[each.table->name] = each.function;
  }
  return nb::make_tuple(
      nb::module_::import_("locus_attn._copies").attr("rebuild"),
      nb::make_tuple(nb::type<Custom>(), self.type(), arguments),
      nb::getattr(self, "__dict__", nb::none()));
}

// "locus.Custom(locus.Terms(...), bias=<function f at 0x7f>)".
std::string Represent(nb::handle_t<Custom> self) {
  const nb::dict arguments =
      nb::borrow<nb::dict>(nb::borrow<nb::tuple>(Reduced(self)[1])[2]);
  const std::string name = TypeName(self);
  std::string text = "locus." + name.substr(name.rfind('.') + 1) + "(";
  std::string between;
  for (const auto& [key, value] : arguments) {
    const auto word = nb::cast<std::string>(key);
    text += between + (word == "terms" ? "" : word + "=") +
            nb::cast<std::string>(nb::repr(value));
    between = ", ";
  }
  return text + ")";
}

}  // namespace

void BindCustom(nb::module_& m) {
  nb::class_<Custom, Encoding> custom(m, "Custom", kCustomDoc);
  Constructor(
      custom,
      "Custom(terms: Terms | dict | Callable[[Any], Any] | None = None, *, "
      "bias: Callable[[Any], Any] | None = None, q_table: Callable[[Any], Any] "
      "| None = None, k_table: Callable[[Any], Any] | None = None, v_table: "
      "Callable[[Any], Any] | None = None)",
      &MakeCustom);
  custom.def("__reduce__", &Reduced, nb::sig("def __reduce__(self) -> tuple"));
  custom.def("__repr__",
             [](nb::handle_t<Custom> self) { return Represent(self); });
}

}  // namespace locus::python
