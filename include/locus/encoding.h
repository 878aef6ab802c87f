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

// The result of Encoding::Lower. Its tensors share or own their buffers, so it
// may outlive the encoding.
struct Lowered {
  Terms terms = {};
};

// A trainable parameter, or the gradient of one.
struct Param {
  std::string name = {};
  Tensor value = {};
};
using ParamGrads = std::vector<Param>;

// The result of AttentionBackward (attention.h) for an encoding.
struct EncodingGrads {
  Tensor d_q = {};  // with the shapes and types of q, k and v
  Tensor d_k = {};
  Tensor d_v = {};
  OperandGrads operands = {};
  ParamGrads params = {};  // as Encoding::Params(), f64; empty: none
};

// A positional encoding: its parameters, and how they are lowered to terms.
// Encodings are immutable, so threads may share one.
class Encoding {
 public:
  virtual ~Encoding() = default;

  // The name in the list, such as "rope".
  virtual std::string_view Name() const = 0;

  // The terms for a call of this shape. Throws Error if the encoding does not
  // support it (too few rows, wrong number of heads, ...).
  virtual Lowered Lower(const Shape& shape) const = 0;

  // The trainable parameters, in a fixed order. Tensors are shared, not copied.
  virtual std::vector<Param> Params() const { return {}; }

  // The same encoding with other parameter values, in the order of Params().
  virtual std::unique_ptr<Encoding> WithParams(
      std::span<const Tensor> values) const;

  // The gradients of the parameters, given those of the terms of Lower(shape):
  // names, order and shapes of Params(), f64.
  virtual ParamGrads PullBack(const Shape& shape, const TermGrads& grads) const;

  // For encodings of the input: the rows E[pos] to add to x, [n, model_dim]
  // f64. Other encodings throw Error.
  virtual Tensor Embed(std::span<const int64_t> positions) const;
};

}  // namespace locus

#endif  // LOCUS_ENCODING_H_
