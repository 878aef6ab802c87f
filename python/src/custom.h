// Functions of the offset as an encoding: locus.Custom.
#ifndef LOCUS_PYTHON_SRC_CUSTOM_H_
#define LOCUS_PYTHON_SRC_CUSTOM_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "own_terms.h"

namespace locus::python {

// A table of Terms as a Python function from offsets m - n, int64 [n], to its
// rows: [heads, n] or [n] for the bias, [heads, n, D] or [n, D] for the others.
struct TableFunction {
  const OwnArray* table = nullptr;
  nanobind::object function = {};
};

// Terms, and functions for tables that the terms lack. Each function is called
// once per call, with every offset from the lowest to the highest that occurs.
class Custom final : public Encoding {
 public:
  // Throws Error if the terms already have a table that has a function.
  Custom(OwnTerms terms, std::vector<TableFunction> functions);

  std::string_view Name() const override { return "custom"; }
  const OwnTerms& terms() const { return terms_; }
  const std::vector<TableFunction>& functions() const { return functions_; }
  // Takes the GIL to call the functions, and propagates what they raise.
  Lowered Lower(const Shape& shape) const override;
  // The parameters of the terms; functions have none that are visible here.
  std::vector<Param> Params() const override;
  std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const override;
  // The gradients of the parameters, then those of the tables that the
  // functions returned, by the names of the tables.
  ParamGrads PullBack(const Shape& shape,
                      const TermGrads& grads) const override;
  Tensor Embed(std::span<const int64_t> positions) const override;

 private:
  OwnTerms terms_;
  std::vector<TableFunction> functions_;
};

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_CUSTOM_H_
