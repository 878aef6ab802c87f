// Checks used by the test of every encoding: its formula against the reference,
// and its PullBack against finite differences.
#ifndef LOCUS_TESTS_SUPPORT_ENCODING_CHECKS_H_
#define LOCUS_TESTS_SUPPORT_ENCODING_CHECKS_H_

#include <gtest/gtest.h>

#include <functional>

#include "locus/locus.h"
#include "support/tensors.h"

// Marks the entry `name` of encodings.inc as tested. The list of all entries in
// coverage_test.cc refers to this symbol: without it the tests do not link.
#define LOCUS_COVERS(name)         \
  namespace locus::testing {       \
  extern const bool covers_##name; \
  const bool covers_##name = true; \
  }                                \
  static_assert(true, "end with a semicolon")

namespace locus::testing {

// The logit of one pair by the paper: head h, raw rows q and k, positions m, n.
using PaperScore =
    std::function<double(int64_t h, const std::vector<double>& q,
                         const std::vector<double>& k, int64_t m, int64_t n)>;
// The term that is added to v_j for a pair; returns [value_dim].
using PaperValue =
    std::function<std::vector<double>(int64_t h, int64_t m, int64_t n)>;

struct PaperCase {
  int64_t batch = 2, heads = 4, kv_heads = 2, length = 17, head_dim = 8;
  bool causal = false;
  int64_t first_position = 0;
  std::optional<double> scale = {};
  uint64_t seed = 7;
};

// Plain softmax attention over the paper's logits, in float64 and without any
// of the library's terms, compared with the reference running the encoding's
// terms. Returns the relative error.
inline double PaperError(const Encoding& encoding, const PaperCase& c,
                         const PaperScore& score,
                         const PaperValue& value = nullptr) {
  const Tensor q =
      RandomTensor({c.batch, c.heads, c.length, c.head_dim}, c.seed);
  const Tensor k =
      RandomTensor({c.batch, c.kv_heads, c.length, c.head_dim}, c.seed + 1);
  const Tensor v =
      RandomTensor({c.batch, c.kv_heads, c.length, c.head_dim}, c.seed + 2);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < c.length; ++i) {
    positions.push_back(c.first_position + i);
  }
  AttentionOptions options;
  options.causal = c.causal;
  options.scale = c.scale;
  options.q_positions = positions;
  options.k_positions = positions;
  const reference::Forward forward =
      reference::Attention(q, k, v, encoding, options);

  Tensor expected = Tensor::Zeros(DType::kF64, q.shape());
  double* out = expected.MutableData<double>();
  const auto row = [&](const Tensor& x, int64_t b, int64_t h, int64_t i) {
    std::vector<double> r;
    for (int64_t d = 0; d < c.head_dim; ++d) r.push_back(x.At(b, h, i, d));
    return r;
  };
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t g = h / (c.heads / c.kv_heads);
      for (int64_t i = 0; i < c.length; ++i) {
        const int64_t m = c.first_position + i;
        const int64_t end = c.causal ? i + 1 : c.length;
        std::vector<double> p;
        for (int64_t j = 0; j < end; ++j) {
          p.push_back(score(h, row(q, b, h, i), row(k, b, g, j), m,
                            c.first_position + j));
        }
        const double max = *std::ranges::max_element(p);
        double sum = 0.0;
        for (double& s : p) sum += s = std::exp(s - max);
        double* o = out + ((b * c.heads + h) * c.length + i) * c.head_dim;
        for (int64_t j = 0; j < end; ++j) {
          std::vector<double> vj = row(v, b, g, j);
          if (value) {
            const std::vector<double> extra = value(h, m, c.first_position + j);
            for (size_t d = 0; d < vj.size(); ++d) vj[d] += extra[d];
          }
          for (size_t d = 0; d < vj.size(); ++d) {
            o[d] += p[static_cast<size_t>(j)] / sum * vj[d];
          }
        }
      }
    }
  }
  return RelativeError(forward.out, expected);
}

// Largest difference between PullBack and central differences of
// sum(w * out) over every element of every parameter, relative to the largest
// gradient of that parameter (at least 1).
inline double PullBackError(const Encoding& encoding, const PaperCase& c,
                            double step = 1e-5) {
  const Tensor q =
      RandomTensor({c.batch, c.heads, c.length, c.head_dim}, c.seed);
  const Tensor k =
      RandomTensor({c.batch, c.kv_heads, c.length, c.head_dim}, c.seed + 1);
  const Tensor v =
      RandomTensor({c.batch, c.kv_heads, c.length, c.head_dim}, c.seed + 2);
  const Tensor w = RandomTensor(q.shape(), c.seed + 3);
  AttentionOptions options;
  options.causal = c.causal;
  options.scale = c.scale;
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < c.length; ++i) {
    positions.push_back(c.first_position + i);
  }
  options.q_positions = positions;
  options.k_positions = positions;
  const auto loss = [&](const Encoding& e) {
    const std::vector<double> out =
        reference::Attention(q, k, v, e, options).out.ToVector();
    const std::vector<double> weight = w.ToVector();
    double sum = 0.0;
    for (size_t n = 0; n < out.size(); ++n) sum += out[n] * weight[n];
    return sum;
  };
  const auto grads =
      reference::AttentionBackward(w, q, k, v, encoding, options).params;
  const std::vector<Param> params = encoding.Params();
  EXPECT_EQ(grads.size(), params.size());
  EXPECT_FALSE(params.empty());
  double worst = 0.0;
  for (size_t n = 0; n < params.size(); ++n) {
    EXPECT_EQ(grads[n].name, params[n].name);
    EXPECT_EQ(grads[n].value.shape(), params[n].value.shape());
    std::vector<double> values = params[n].value.ToVector();
    const std::vector<double> analytic = grads[n].value.ToVector();
    std::vector<double> numeric(values.size());
    for (size_t e = 0; e < values.size(); ++e) {
      const auto at = [&](double delta) {
        std::vector<double> moved = values;
        moved[e] += delta;
        std::vector<Tensor> tensors;
        for (const Param& p : params) tensors.push_back(p.value);
        tensors[n] = Tensor::From(params[n].value.shape(), std::move(moved));
        return loss(*encoding.WithParams(tensors));
      };
      numeric[e] = (at(step) - at(-step)) / (2.0 * step);
    }
    worst = std::max(
        worst, RelativeError(Tensor::From(params[n].value.shape(), analytic),
                             Tensor::From(params[n].value.shape(), numeric)));
  }
  return worst;
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_SUPPORT_ENCODING_CHECKS_H_
