// The check used for every encoding of the input: its rows against the paper's,
// and their effect on the scores after the projections.
#ifndef LOCUS_TESTS_SUPPORT_INPUT_CHECKS_H_
#define LOCUS_TESTS_SUPPORT_INPUT_CHECKS_H_

#include <functional>

#include "locus/locus.h"
#include "support/formulas.h"
#include "support/tensors.h"

namespace locus::testing {

// The row of a position, [dim + widen], by the paper.
using PaperRow = std::function<std::vector<double>(int64_t position)>;

struct InputCase {
  int64_t dim = 8;    // width of x
  int64_t widen = 0;  // channels appended to x
  int64_t length = 17;
  int64_t first_position = 0;
  bool causal = false;
  uint64_t seed = 11;
};

// The largest relative error of three comparisons with the paper's rows p:
//   Embed(positions), the rows of Lower(shape).terms.input_add, and the scores
//   of q = Wq (x + E), k = Wk (x + E) with random projections against
//   scale * (xWq.Wkx + xWq.Wkp + pWq.Wkx + pWq.Wkp).
inline double InputError(const Encoding& encoding, const InputCase& c,
                         const PaperRow& paper) {
  constexpr int64_t kHeadDim = 4;
  const int64_t width = c.dim + c.widen;
  const std::vector<int64_t> positions =
      PositionsFrom(c.first_position, c.length);
  Shape shape = Shape::SelfAttention(/*heads=*/1, kHeadDim, c.length, c.causal);
  shape.min_q_pos = shape.min_k_pos = positions.front();
  shape.max_q_pos = shape.max_k_pos = positions.back();
  const Terms terms = encoding.Lower(shape).terms;
  const InputAdd& add = terms.input_add.value();
  EXPECT_EQ(add.widen, c.widen);

  // x is [dim] random channels and `widen` zeros.
  const Tensor narrow = RandomTensor({c.length, c.dim}, c.seed);
  const auto x = [&](int64_t i, int64_t d) {
    return d < c.dim ? narrow.At(i, d) : 0.0;
  };
  Tensor rows = Tensor::Zeros(DType::kF64, {c.length, width});
  Tensor lowered = Tensor::Zeros(DType::kF64, {c.length, width});
  for (int64_t i = 0; i < c.length; ++i) {
    const int64_t position = positions[static_cast<size_t>(i)];
    const std::vector<double> p = paper(position);
    for (int64_t d = 0; d < width; ++d) {
      rows.MutableData<double>()[i * width + d] = p.at(static_cast<size_t>(d));
      lowered.MutableData<double>()[i * width + d] =
          add.table.At(position - add.first_position, d);
    }
  }

  const Tensor wq = RandomTensor({kHeadDim, width}, c.seed + 1);
  const Tensor wk = RandomTensor({kHeadDim, width}, c.seed + 2);
  using Source = std::function<double(int64_t i, int64_t d)>;
  const auto project = [&](const Tensor& w, const Source& source) {
    Tensor out = Tensor::Zeros(DType::kF64, {1, 1, c.length, kHeadDim});
    for (int64_t i = 0; i < c.length; ++i) {
      for (int64_t e = 0; e < kHeadDim; ++e) {
        double& sum = out.MutableData<double>()[i * kHeadDim + e];
        for (int64_t d = 0; d < width; ++d) sum += w.At(e, d) * source(i, d);
      }
    }
    return out;
  };
  const Source added = [&](int64_t i, int64_t d) {
    return x(i, d) + lowered.At(i, d);
  };
  AttentionOptions options{.causal = c.causal};
  options.q_positions = positions;
  options.k_positions = positions;
  const Tensor scores =
      reference::Scorer(project(wq, added), project(wk, added), terms, options)
          .Of(0, 0);

  const Source content = x;
  const Source place = [&](int64_t i, int64_t d) { return rows.At(i, d); };
  const Tensor xq = project(wq, content), pq = project(wq, place);
  const Tensor xk = project(wk, content), pk = project(wk, place);
  Tensor expected = Tensor::Zeros(DType::kF64, {c.length, c.length});
  for (int64_t i = 0; i < c.length; ++i) {
    for (int64_t j = 0; j < c.length; ++j) {
      double sum = 0.0;
      for (int64_t e = 0; e < kHeadDim; ++e) {
        sum += xq.At(0, 0, i, e) * xk.At(0, 0, j, e) +
               xq.At(0, 0, i, e) * pk.At(0, 0, j, e) +
               pq.At(0, 0, i, e) * xk.At(0, 0, j, e) +
               pq.At(0, 0, i, e) * pk.At(0, 0, j, e);
      }
      expected.MutableData<double>()[i * c.length + j] =
          c.causal && j > i ? -std::numeric_limits<double>::infinity()
                            : sum / std::sqrt(double{kHeadDim});
    }
  }
  return std::max({RelativeError(encoding.Embed(positions), rows),
                   RelativeError(lowered, rows),
                   RelativeError(scores, expected)});
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_SUPPORT_INPUT_CHECKS_H_
