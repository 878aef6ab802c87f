// Attention once more, independent of the reference: whole matrices, complex
// numbers for rotations, offsets instead of positions, no shared code but the
// bucket maps, which tests/terms proves.
#ifndef LOCUS_TESTS_REFERENCE_NAIVE_H_
#define LOCUS_TESTS_REFERENCE_NAIVE_H_

#include <complex>
#include <limits>

#include "locus/locus.h"
#include "support/tensors.h"

namespace locus::testing {

// One call: inputs, terms, and options with the storage of their spans.
struct Call {
  Tensor q = {}, k = {}, v = {};
  Terms terms = {};
  AttentionOptions options = {};
  std::vector<int64_t> q_pos = {}, k_pos = {};  // [B * L], always given
  std::vector<int64_t> q_seg = {}, k_seg = {}, key_lengths = {};

  // Options pointing to this object's spans.
  AttentionOptions Options() const {
    AttentionOptions o = options;
    o.q_positions = q_pos;
    o.k_positions = k_pos;
    o.q_segments = q_seg;
    o.k_segments = k_seg;
    o.key_lengths = key_lengths;
    return o;
  }
};

inline bool NaiveVisible(const Call& c, int64_t b, int64_t i, int64_t j) {
  const size_t qi = static_cast<size_t>(b * c.q.size(2) + i);
  const size_t kj = static_cast<size_t>(b * c.k.size(2) + j);
  const int64_t offset = c.q_pos[qi] - c.k_pos[kj];
  const bool exists =
      c.key_lengths.empty() || j < c.key_lengths[static_cast<size_t>(b)];
  const bool together = c.q_seg.empty() || c.q_seg[qi] == c.k_seg[kj];
  const bool in_past = !c.options.causal || offset >= 0;
  const bool near = !c.options.window || (offset <= c.options.window->left &&
                                          offset >= -c.options.window->right);
  return exists && together && in_past && near;
}

// The bias of one pair, from the words of terms.h.
inline double NaiveBias(const Bias& bias, int64_t h, int64_t m, int64_t n) {
  if (const auto* t = std::get_if<BiasTable>(&bias)) {
    return t->values.At(t->values.size(0) == 1 ? 0 : h, t->buckets(m, n));
  }
  if (const auto* r = std::get_if<BiasRamp>(&bias)) {
    const double past = static_cast<double>(std::max<int64_t>(m - n, 0));
    const double future = static_cast<double>(std::max<int64_t>(n - m, 0));
    return -r->past[static_cast<size_t>(h)] * past -
           r->future[static_cast<size_t>(h)] * future;
  }
  const auto& p = std::get<BiasProfile>(bias);
  const double x = p.distance[static_cast<size_t>(std::abs(m - n))] *
                   p.row_gain[static_cast<size_t>(m - p.first_position)];
  int64_t segment = 0;
  for (double knot : p.knots) segment += knot <= x ? 1 : 0;
  const int64_t row = p.base.size(0) == 1 ? 0 : h;
  return p.base.At(row, segment) + p.slope.At(row, segment) * x;
}

// rot(q).rot(k) as sum over pairs of Re( q conj(k) exp(i (m - n) theta) ).
inline double NaiveRotatedDot(const Rotation& r, const std::vector<double>& q,
                              const std::vector<double>& k, int64_t m,
                              int64_t n) {
  std::vector<bool> turned(q.size(), false);
  double sum = 0.0;
  for (size_t p = 0; p < r.theta.size(); ++p) {
    const int64_t pair = static_cast<int64_t>(p);
    const size_t d0 = static_cast<size_t>(
        r.first_channel +
        (r.layout == PairLayout::kInterleaved ? 2 * pair : pair));
    const size_t d1 =
        d0 + (r.layout == PairLayout::kInterleaved ? 1 : r.theta.size());
    turned[d0] = turned[d1] = true;
    int64_t turns = m - n;
    if (!r.axes.empty()) {
      const Axis& a =
          r.axes[static_cast<size_t>(r.axis.empty() ? 0 : r.axis[p])];
      const auto coordinate = [&](int64_t x) {
        if (x < r.packed_from) return x;
        return a.modulus == 0 ? x / a.divisor : x / a.divisor % a.modulus;
      };
      turns = coordinate(m) - coordinate(n);
    }
    const std::complex<double> z =
        std::complex(q[d0], q[d1]) * std::conj(std::complex(k[d0], k[d1])) *
        std::polar(r.gain * r.gain, static_cast<double>(turns) * r.theta[p]);
    sum += z.real() *
           (r.log_decay.empty()
                ? 1.0
                : std::exp(r.log_decay[p] * static_cast<double>(m - n)));
  }
  for (size_t d = 0; d < q.size(); ++d) {
    if (!turned[d]) sum += q[d] * k[d];
  }
  return sum;
}

inline std::vector<double> RowOf(const Tensor& x, int64_t b, int64_t h,
                                 int64_t i) {
  std::vector<double> row;
  for (int64_t d = 0; d < x.size(3); ++d) row.push_back(x.At(b, h, i, d));
  return row;
}

inline double TableDot(const std::vector<double>& x, const Tensor& rows,
                       int64_t h, int64_t row) {
  double sum = 0.0;
  for (size_t d = 0; d < x.size(); ++d) {
    sum +=
        x[d] * rows.At(rows.size(0) == 1 ? 0 : h, row, static_cast<int64_t>(d));
  }
  return sum;
}

inline double NaiveScore(const Call& c, int64_t b, int64_t h, int64_t i,
                         int64_t j) {
  const int64_t g = h / (c.q.size(1) / c.k.size(1));
  const std::vector<double> q = RowOf(c.q, b, h, i), k = RowOf(c.k, b, g, j);
  const int64_t m = c.q_pos[static_cast<size_t>(b * c.q.size(2) + i)];
  const int64_t n = c.k_pos[static_cast<size_t>(b * c.k.size(2) + j)];
  double dots =
      NaiveRotatedDot(c.terms.rotate.value_or(Rotation{}), q, k, m, n);
  if (const auto& e = c.terms.extra_dot) {
    std::vector<double> a;
    for (int64_t d = 0; d < e->q_rows.size(2); ++d) {
      a.push_back(e->q_rows.At(e->q_rows.size(0) == 1 ? 0 : h,
                               m - e->first_position, d));
    }
    dots += TableDot(a, e->k_rows, h, n - e->first_position);
  }
  if (const auto& t = c.terms.q_table) {
    dots += TableDot(q, t->rows, h, t->buckets(m, n));
  }
  if (const auto& t = c.terms.k_table) {
    dots += TableDot(k, t->rows, h, t->buckets(m, n));
  }
  const Scale& s = c.terms.scale;
  double scale = s.scale;
  if (s.beta != 0.0) {
    const double steps = std::floor(static_cast<double>(m + s.shift) /
                                    static_cast<double>(s.span));
    scale *= 1.0 + s.beta * std::log(1.0 + steps);
  }
  double score = scale * dots;
  if (c.terms.bias) score += NaiveBias(*c.terms.bias, h, m, n);
  const std::optional<double> cap = c.options.softcap;
  return cap ? *cap * std::tanh(score / *cap) : score;
}

inline reference::Forward NaiveAttention(const Call& c) {
  const int64_t batch = c.q.size(0), heads = c.q.size(1), rows = c.q.size(2);
  const int64_t group = heads / c.k.size(1), dim = c.v.size(3);
  std::vector<double> out, lse;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < rows; ++i) {
        std::vector<int64_t> seen;
        std::vector<double> scores;
        for (int64_t j = 0; j < c.k.size(2); ++j) {
          if (!NaiveVisible(c, b, i, j)) continue;
          seen.push_back(j);
          scores.push_back(NaiveScore(c, b, h, i, j));
        }
        std::vector<double> o(static_cast<size_t>(dim), 0.0);
        const double top =
            seen.empty() ? 0.0 : *std::ranges::max_element(scores);
        double sum = 0.0;
        for (double s : scores) sum += std::exp(s - top);
        for (size_t n = 0; n < seen.size(); ++n) {
          std::vector<double> value = RowOf(c.v, b, h / group, seen[n]);
          if (const auto& t = c.terms.v_table) {
            const int64_t bucket = t->buckets(
                c.q_pos[static_cast<size_t>(b * rows + i)],
                c.k_pos[static_cast<size_t>(b * c.k.size(2) + seen[n])]);
            for (size_t d = 0; d < value.size(); ++d) {
              value[d] += t->rows.At(t->rows.size(0) == 1 ? 0 : h, bucket,
                                     static_cast<int64_t>(d));
            }
          }
          for (size_t d = 0; d < value.size(); ++d) {
            o[d] += std::exp(scores[n] - top) / sum * value[d];
          }
        }
        out.insert(out.end(), o.begin(), o.end());
        lse.push_back(seen.empty() ? -std::numeric_limits<double>::infinity()
                                   : top + std::log(sum));
      }
    }
  }
  return {.out = Tensor::From({batch, heads, rows, dim}, std::move(out)),
          .lse = Tensor::From({batch, heads, rows}, std::move(lse))};
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_REFERENCE_NAIVE_H_
