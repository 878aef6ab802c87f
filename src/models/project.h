// Small float64 algebra on checkpoint tensors: how stored weights become the
// tables of an encoding.
#ifndef LOCUS_SRC_MODELS_PROJECT_H_
#define LOCUS_SRC_MODELS_PROJECT_H_

#include <vector>

#include "locus/tensor.h"

namespace locus::models {

// x [n, in], weight [out, in], bias [out] or absent -> x weight^T + bias,
// [n, out] f64.
Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

// Normalises every row of x [n, d] to mean 0 and variance 1, then scales and
// shifts: (x - mean) / sqrt(var + epsilon) * weight + bias.
Tensor LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                 double epsilon);

// [n, heads * dim] -> [heads, n, dim].
Tensor SplitHeads(const Tensor& x, int64_t heads, int64_t dim);

// The same numbers in another shape, contiguous.
Tensor WithShape(const Tensor& x, std::vector<int64_t> shape);

// Relative keys of Transformer-XL: w s_o for offsets o = -(reach - 1) .. reach
// - 1, [heads, 2 reach - 1, dim] f64. s_o [model_dim] is [sin, cos] of o
// 10000^(-2i/d), with |o| clamped at `clamp` if that is positive. w holds
// heads * dim rows of model_dim, in any shape.
struct RelativeProjection {
  Tensor w = {};
  int64_t heads = 0;
  int64_t dim = 0;
  int64_t model_dim = 0;
};
Tensor RelativeKeys(const RelativeProjection& by, int64_t reach, int64_t clamp);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_PROJECT_H_
