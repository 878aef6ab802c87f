#include "custom.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "arrays.h"
#include "locus/error.h"
#include "memory.h"
#include "numbers.h"
#include "row_rule.h"

namespace locus::python {
namespace {

namespace nb = nanobind;

// Converts integers, such as -abs(offsets), to float64.
nb::object AsReal(nb::object array) {
  if (!IsNumpy(array)) return array;
  const auto kind = nb::cast<nb::str>(array.attr("dtype").attr("kind"));
  const std::string_view word = kind.c_str();
  return word == "i" || word == "u" ? array.attr("astype")("float64") : array;
}

// The rows that a function returns for the offsets first, first + 1, ...
Tensor RowsOf(const TableFunction& given, int64_t first, int64_t count) {
  std::vector<int64_t> offsets(static_cast<size_t>(count));
  for (int64_t n = 0; n < count; ++n) {
    offsets[static_cast<size_t>(n)] = first + n;
  }
  const std::string name = std::string(given.table->name) + "(offsets)";
  const Tensor rows =
      Table(name.c_str(), AsReal(given.function(ToNumpy(std::move(offsets)))));
  const bool bias = given.table->array == &OwnArrays::bias;
  const int rank = bias ? 2 : 3;
  const int axis = bias ? -1 : -2;  // of the offsets
  if (!rows.defined() || rows.rank() < rank - 1 || rows.rank() > rank ||
      rows.size(axis) != count) {
    const std::string sizes =
        bias ? std::to_string(count) : std::to_string(count) + ", D";
    throw Error(name + " must be [" + sizes + "] or [heads, " + sizes +
                "] for " + std::to_string(count) + " offsets, got " +
                (rows.defined() ? rows.Describe() : "None"));
  }
  return rows;
}

Tensor GradOf(const OwnArray& table, const TermGrads& grads) {
  if (table.array == &OwnArrays::q_table) return grads.q_table;
  if (table.array == &OwnArrays::k_table) return grads.k_table;
  if (table.array == &OwnArrays::v_table) return grads.v_table;
  return std::get<BiasTableGrads>(*grads.bias).values;
}

}  // namespace

Custom::Custom(OwnTerms terms, std::vector<TableFunction> functions)
    : terms_(std::move(terms)), functions_(std::move(functions)) {
  const OwnArrays& a = terms_.arrays();
  for (const TableFunction& each : functions_) {
    const bool bias = each.table->array == &OwnArrays::bias;
    if ((a.*each.table->array).defined() ||
        (bias && (a.slopes.defined() || a.profile_base.defined()))) {
      throw Error(std::string("terms already has a ") + each.table->name +
                  ", and there is a function for it as well");
    }
  }
}

Lowered Custom::Lower(const Shape& shape) const {
  if (functions_.empty()) return terms_.Lower(shape);
  const int64_t first = shape.min_offset;
  const int64_t last = std::max(shape.max_offset, first);
  const nb::gil_scoped_acquire gil;
  RequireMemory("a table of the offsets " + std::to_string(first) + " .. " +
                    std::to_string(last),
                last - first + 1, 4 * sizeof(double));
  OwnArrays arrays = terms_.arrays();
  OwnSettings settings = terms_.settings();
  for (const TableFunction& each : functions_) {
    arrays.*each.table->array = RowsOf(each, first, last - first + 1);
    settings.rules[each.table->name] = {.first_offset = first};
  }
  return OwnTerms(std::move(arrays), std::move(settings)).Lower(shape);
}

std::vector<Param> Custom::Params() const { return terms_.Params(); }

std::unique_ptr<Encoding> Custom::WithParams(
    std::span<const Tensor> values) const {
  const std::unique_ptr<Encoding> terms = terms_.WithParams(values);
  return std::make_unique<Custom>(static_cast<const OwnTerms&>(*terms),
                                  functions_);
}

ParamGrads Custom::PullBack(const Shape& shape, const TermGrads& grads) const {
  ParamGrads all = terms_.PullBack(shape, grads);
  for (const TableFunction& each : functions_) {
    all.push_back({each.table->name, GradOf(*each.table, grads)});
  }
  return all;
}

Tensor Custom::Embed(std::span<const int64_t> positions) const {
  return terms_.Embed(positions);
}

}  // namespace locus::python
