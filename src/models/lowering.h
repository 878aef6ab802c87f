// Encodings of a single model, defined by their terms.
#ifndef LOCUS_SRC_MODELS_LOWERING_H_
#define LOCUS_SRC_MODELS_LOWERING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "locus/encoding.h"

namespace locus::models {

// An encoding given as a function from the shape of a call to terms.
class Lowering final : public Encoding {
 public:
  Lowering(std::string name, std::function<Terms(const Shape&)> lower)
      : name_(std::move(name)), lower_(std::move(lower)) {}

  std::string_view Name() const override { return name_; }
  Lowered Lower(const Shape& shape) const override {
    return {.terms = lower_(shape)};
  }

 private:
  std::string name_;
  std::function<Terms(const Shape&)> lower_;
};

// g(h, m): a factor of the scale of head h at query position m.
using QueryFactor = std::function<double(int64_t h, int64_t m)>;

// Sets the rows of `scale` to g for the query positions of a call; `heads` is 1
// if all heads have the same. Throws Error for positions below `lowest`.
void SetQueryRows(const Shape& shape, int64_t heads, int64_t lowest,
                  const QueryFactor& g, Scale& scale);

// The same encoding with rows of g; requires positions >= 0.
std::shared_ptr<const Encoding> WithQueryRows(
    std::shared_ptr<const Encoding> base, int64_t heads, QueryFactor g);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_LOWERING_H_
