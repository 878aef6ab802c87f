// A second implementation of attention, independent of the reference: full
// matrices, complex numbers for rotations, offsets instead of positions, and no
// shared code except the bucket maps, which tests/terms verifies.
#ifndef LOCUS_TESTS_REFERENCE_NAIVE_H_
#define LOCUS_TESTS_REFERENCE_NAIVE_H_

#include <complex>
#include <limits>
#include <utility>

#include "locus/locus.h"
#include "support/tensors.h"

namespace locus::testing {

// One call: inputs, terms, and options with the storage of their spans.
struct Call {
  Tensor q = {}, k = {}, v = {};
  Terms terms = {};
  AttentionOptions options = {};
  std::vector<int64_t> q_pos = {}, k_pos = {};  // [B * L], always given
  std::vector<int64_t> q_seg = {}, k_seg = {}, key_lengths = {}, prefix = {};
  std::vector<uint8_t> pairs = {};  // of options.mask

  // Options pointing to this object's spans.
  AttentionOptions Options() const {
    AttentionOptions o = options;
    o.q_positions = q_pos;
    o.k_positions = k_pos;
    o.q_segments = q_seg;
    o.k_segments = k_seg;
    o.key_lengths = key_lengths;
    o.prefix_lengths = prefix;
    if (!pairs.empty()) o.mask.data = pairs.data();
    return o;
  }
};

// An element of an operand [B or 1, H or 1, L or 1, keys].
inline double NaiveOperand(const Tensor& x, int64_t b, int64_t h, int64_t i,
                           int64_t j) {
  if (!x.defined()) return 0.0;
  const auto pick = [&x](int axis, int64_t at) {
    return x.size(axis) == 1 ? 0 : at;
  };
  return x.rank() == 3 ? x.At(pick(0, b), pick(1, h), j)
                       : x.At(pick(0, b), pick(1, h), pick(2, i), j);
}

// Whether the bytes of a mask leave a pair visible.
inline bool NaivePair(const Call& c, int64_t b, int64_t h, int64_t i,
                      int64_t j) {
  if (c.pairs.empty()) return true;
  const int64_t at[] = {b, h, i, j};
  int64_t byte = 0;
  for (size_t axis = 0; axis < 4; ++axis) {
    if (c.options.mask.shape[axis] > 1) {
      byte += at[axis] * c.options.mask.strides[axis];
    }
  }
  return c.pairs[static_cast<size_t>(byte)] != 0;
}

// Whether dropout keeps a weight: the hash step by step, in 64 bits.
inline bool NaiveKept(const Dropout& d, int64_t b, int64_t h, int64_t i,
                      int64_t j) {
  const auto split_mix = [](uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
  };
  uint64_t row = split_mix(d.seed + 0x9E3779B97F4A7C15U);
  for (int64_t number : {b, h, d.first_query + i * d.query_stride}) {
    row = split_mix(row + static_cast<uint64_t>(number));
  }
  const uint64_t low = row % (uint64_t{1} << 32), high = row >> 32;
  const auto key = static_cast<uint64_t>(d.first_key + j * d.key_stride);
  uint64_t x = (low + key * 2654435769U) % 4294967296U;
  x = ((x ^ (x / 65536)) * 2146121005U) % 4294967296U;
  x ^= x / 32768;
  x = ((x ^ high) * 2221713035U) % 4294967296U;
  // As a signed number.
  const double hash = static_cast<double>(x) - (x < 2147483648U ? 0.0 : 0x1p32);
  return hash < std::round((1.0 - d.rate) * 0x1p32) - 0x1p31;
}

inline bool NaiveVisible(const Call& c, int64_t b, int64_t h, int64_t i,
                         int64_t j) {
  const size_t qi = static_cast<size_t>(b * c.q.size(2) + i);
  const size_t kj = static_cast<size_t>(b * c.k.size(2) + j);
  const int64_t offset = c.q_pos[qi] - c.k_pos[kj];
  const bool exists =
      c.key_lengths.empty() || j < c.key_lengths[static_cast<size_t>(b)];
  const bool together = c.q_seg.empty() || c.q_seg[qi] == c.k_seg[kj];
  const bool in_past = !c.options.causal || offset >= 0;
  const bool near = !c.options.window || (offset <= c.options.window->left &&
                                          offset >= -c.options.window->right);
  const auto chunk = [&](int64_t position) {
    return std::floor(static_cast<double>(position) /
                      static_cast<double>(*c.options.chunk));
  };
  const bool beside =
      !c.options.chunk || chunk(c.q_pos[qi]) == chunk(c.k_pos[kj]);
  const bool prefix = !c.prefix.empty() && j < c.prefix[static_cast<size_t>(b)];
  return exists && together && NaivePair(c, b, h, i, j) &&
         (prefix || (in_past && near && beside));
}

// The bias of one pair, by the definition in terms.h.
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

// The two channels of pair p.
inline std::pair<size_t, size_t> NaivePair(const Rotation& r, int64_t p) {
  const bool interleaved = r.layout == PairLayout::kInterleaved;
  const int64_t first = r.first_channel + (interleaved ? 2 * p : p);
  return {static_cast<size_t>(first),
          static_cast<size_t>(first + (interleaved ? 1 : r.rotary_dim / 2))};
}

// A token that rotates by its position, or that does not rotate at all.
struct Place {
  int64_t position = 0;
  bool turns = true;
};

// The angle of pair p of key head g at m minus that at n, by the definition in
// terms.h. Offsets cancel unless one of the two does not rotate.
inline double NaiveAngle(const Rotation& r, int64_t g, int64_t p, Place m,
                         Place n) {
  const int64_t origin = r.origin.value_or(0);
  m.turns = m.turns && (!r.origin || m.position >= origin);
  n.turns = n.turns && (!r.origin || n.position >= origin);
  const int64_t from_m = m.turns ? m.position - origin : 0;
  const int64_t from_n = n.turns ? n.position - origin : 0;
  const size_t pair = static_cast<size_t>(p);
  const size_t of_head = r.theta.size() / static_cast<size_t>(r.heads);
  const size_t first = r.heads == 1 ? 0 : static_cast<size_t>(g) * of_head;
  if (r.axes.empty()) {
    return static_cast<double>(from_m - from_n) * r.theta[first + pair];
  }
  const bool mixed = static_cast<int64_t>(of_head) > r.rotary_dim / 2;
  const size_t own = r.axis.empty() ? 0 : static_cast<size_t>(r.axis[pair]);
  double angle = 0.0;
  for (size_t a = 0; a < r.axes.size(); ++a) {
    if (!mixed && a != own) continue;
    const Axis& axis = r.axes[a];
    const auto coordinate = [&](int64_t x) {
      if (x < r.packed_from) return x;
      return axis.modulus == 0 ? x / axis.divisor
                               : x / axis.divisor % axis.modulus;
    };
    double steps = static_cast<double>(coordinate(from_m) - coordinate(from_n));
    if (m.turns != n.turns) steps += m.turns ? axis.offset : -axis.offset;
    angle += steps * r.theta[first + (mixed ? pair * r.axes.size() + a : pair)];
  }
  return angle;
}

// rot(q).rot(k) as sum over pairs of Re( q conj(k) exp(i (m - n) theta) ).
inline double NaiveRotatedDot(const Rotation& r, int64_t g,
                              const std::vector<double>& q,
                              const std::vector<double>& k, int64_t m,
                              int64_t n) {
  std::vector<bool> turned(q.size(), false);
  double sum = 0.0;
  for (int64_t p = 0; p < r.rotary_dim / 2; ++p) {
    const auto [d0, d1] = NaivePair(r, p);
    turned[d0] = turned[d1] = true;
    const std::complex<double> z =
        std::complex(q[d0], q[d1]) * std::conj(std::complex(k[d0], k[d1])) *
        std::polar(r.gain * r.gain, NaiveAngle(r, g, p, {m}, {n}));
    sum += z.real() * (r.log_decay.empty()
                           ? 1.0
                           : std::exp(r.log_decay[static_cast<size_t>(p)] *
                                      static_cast<double>(m - n)));
  }
  for (size_t d = 0; d < q.size(); ++d) {
    if (!turned[d]) sum += q[d] * k[d];
  }
  return sum;
}

// Every pair of a row times exp(i (angle at m - angle at n)).
inline void NaiveTurn(const Rotation& r, int64_t g, Place m, Place n,
                      std::vector<double>& row) {
  for (int64_t p = 0; p < r.rotary_dim / 2; ++p) {
    const auto [d0, d1] = NaivePair(r, p);
    const std::complex<double> z = std::complex(row[d0], row[d1]) *
                                   std::polar(1.0, NaiveAngle(r, g, p, m, n));
    row[d0] = z.real();
    row[d1] = z.imag();
  }
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
      NaiveRotatedDot(c.terms.rotate.value_or(Rotation{}), g, q, k, m, n);
  if (const auto& e = c.terms.extra_dot) {
    std::vector<double> a;
    for (int64_t d = 0; d < e->q_rows.size(2); ++d) {
      a.push_back(e->q_rows.At(e->q_rows.size(0) == 1 ? 0 : h,
                               m - e->first_position, d));
    }
    dots += TableDot(a, e->k_rows, h, n - e->first_position);
  }
  if (const auto& t = c.terms.q_table) {
    const Tensor& r = c.options.table_queries;
    dots += TableDot(r.defined() ? RowOf(r, b, h, i) : q, t->rows, h,
                     t->buckets(m, n));
  }
  if (const auto& t = c.terms.k_table) {
    dots += TableDot(k, t->rows, h, t->buckets(m, n));
  }
  const Scale& s = c.terms.scale;
  double scale = s.scale;
  if (s.rows.defined()) {
    scale *= s.rows.At(s.rows.size(0) == 1 ? 0 : h, m - s.first_position);
  }
  double score = scale * dots + NaiveOperand(c.options.key_bias, b, h, i, j) +
                 NaiveOperand(c.options.pair_bias, b, h, i, j);
  if (c.terms.bias) score += NaiveBias(*c.terms.bias, h, m, n);
  const std::optional<double> cap = c.options.softcap;
  return cap ? *cap * std::tanh(score / *cap) : score;
}

inline reference::Forward NaiveAttention(const Call& c) {
  const int64_t batch = c.q.size(0), heads = c.q.size(1), rows = c.q.size(2);
  const int64_t group = heads / c.k.size(1), dim = c.v.size(3);
  std::vector<double> out, lse, weights;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < rows; ++i) {
        std::vector<int64_t> seen;
        std::vector<double> scores;
        for (int64_t j = 0; j < c.k.size(2); ++j) {
          if (!NaiveVisible(c, b, h, i, j)) continue;
          seen.push_back(j);
          scores.push_back(NaiveScore(c, b, h, i, j));
        }
        std::vector<double> o(static_cast<size_t>(dim), 0.0);
        const double top =
            seen.empty() ? 0.0 : *std::ranges::max_element(scores);
        double sum = 0.0;
        for (double s : scores) sum += std::exp(s - top);
        const Tensor& sinks = c.options.sinks;
        if (sinks.defined()) sum += std::exp(sinks.At(h) - top);
        const size_t row = weights.size();
        weights.resize(row + static_cast<size_t>(c.k.size(2)), 0.0);
        for (size_t n = 0; n < seen.size(); ++n) {
          const Dropout& dropout = c.options.dropout;
          if (!NaiveKept(dropout, b, h, i, seen[n])) continue;
          const double weight =
              std::exp(scores[n] - top) / sum / (1.0 - dropout.rate);
          weights[row + static_cast<size_t>(seen[n])] = weight;
          std::vector<double> value = RowOf(c.v, b, h / group, seen[n]);
          const int64_t q_pos = c.q_pos[static_cast<size_t>(b * rows + i)];
          const int64_t k_pos =
              c.k_pos[static_cast<size_t>(b * c.k.size(2) + seen[n])];
          std::vector<double> added(value.size(), 0.0);
          if (const auto& t = c.terms.v_table) {
            for (size_t d = 0; d < value.size(); ++d) {
              added[d] =
                  t->rows.At(t->rows.size(0) == 1 ? 0 : h,
                             t->buckets(q_pos, k_pos), static_cast<int64_t>(d));
            }
          }
          if (const auto& r = c.terms.rotate_values) {
            // R_m^-1 R_n v and R_m^-1 Tv, or R_n v and Tv.
            const Place back{.position = q_pos, .turns = r->relative};
            NaiveTurn(r->rotation, h / group, {k_pos}, back, value);
            NaiveTurn(r->rotation, h / group, {.turns = false}, back, added);
          }
          for (size_t d = 0; d < value.size(); ++d) value[d] += added[d];
          for (size_t d = 0; d < value.size(); ++d) {
            o[d] += weight * value[d];
          }
        }
        out.insert(out.end(), o.begin(), o.end());
        lse.push_back(top + std::log(sum));  // log(0): no key is visible
      }
    }
  }
  return {.out = Tensor::From({batch, heads, rows, dim}, std::move(out)),
          .lse = Tensor::From({batch, heads, rows}, std::move(lse)),
          .weights = Tensor::From({batch, heads, rows, c.k.size(2)},
                                  std::move(weights))};
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_REFERENCE_NAIVE_H_
