// The interface of an encoding; descriptor.h lists all of them.
#ifndef LOCUS_ENCODING_H_
#define LOCUS_ENCODING_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "locus/api.h"
#include "locus/attention.h"
#include "locus/tensor.h"
#include "locus/terms.h"

namespace LOCUS_API locus {

// What Lower returns. The tensors inside share or own every buffer they need,
// so a Lowered outlives the encoding that made it.
struct Lowered {
  Terms terms = {};
};

// A trainable parameter, or the gradient of one.
struct Param {
  std::string name = {};
  Tensor value = {};
};
using ParamGrads = std::vector<Param>;

// What AttentionBackward (attention.h) returns for an encoding.
struct EncodingGrads {
  Tensor d_q = {};  // in the shapes and types of q, k and v
  Tensor d_k = {};
  Tensor d_v = {};
  OperandGrads operands = {};
  ParamGrads params = {};  // as Encoding::Params(), f64; empty: none
};

// A positional encoding: parameters, and how they become terms.
class Encoding {
 public:
  virtual ~Encoding() = default;

  // The name in the list, such as "rope".
  virtual std::string_view Name() const = 0;

  // The terms for a call of this shape. Throws Error if the encoding cannot
  // serve it (too few rows, wrong head count, ...).
  virtual Lowered Lower(const Shape& shape) const = 0;

  // The trainable parameters, in a fixed order. Tensors are shared, not copied.
  virtual std::vector<Param> Params() const { return {}; }

  // The same encoding with other parameter values, in the order of Params().
  virtual std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const;

  // Gradients of the parameters, from the gradients of what Lower(shape) gave:
  // same names, order and sizes as Params(), in f64.
  virtual ParamGrads PullBack(const Shape& shape, const TermGrads& grads) const;

  // For encodings of the input: the rows E[pos], [n, model_dim] f64, that are
  // added to x. Other encodings throw Error.
  virtual Tensor Embed(std::span<const int64_t> positions) const;
};

}  // namespace locus

#endif  // LOCUS_ENCODING_H_
