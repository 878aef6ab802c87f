// The algebra of terms.h, one pair at a time, in float64.
//
//   s_ij = scale_i * ( rot(q_i).rot(k_j) + a_i.c_j + q_i.Tq[b] + k_j.Tk[b] )
//          + B[h, b]
//   c_ij = cap * tanh(s_ij / cap)
//   p_ij = exp(c_ij - lse_i),   lse_i = log sum_j exp(c_ij)
//   o_i  = sum_j p_ij (v_j + Tv[b])
#include <cmath>
#include <limits>

#include "core/fail.h"
#include "core/threads.h"
#include "locus/reference.h"
#include "terms/call.h"

namespace locus::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double Dot(const double* x, const double* y, int64_t n) {
  double sum = 0.0;
  for (int64_t d = 0; d < n; ++d) sum += x[d] * y[d];
  return sum;
}

// y += a * x
void Axpy(double a, const double* x, double* y, int64_t n) {
  for (int64_t d = 0; d < n; ++d) y[d] += a * x[d];
}

// A table in float64, [heads or 1, rows, dim], with gradient storage alongside.
struct Table {
  Table() = default;
  explicit Table(const Tensor& t)
      : data(t.To(DType::kF64)),
        heads(t.size(0)),
        rows(t.size(1)),
        dim(t.size(2)) {}

  int64_t At(int64_t h, int64_t row) const {
    return ((heads == 1 ? 0 : h) * rows + row) * dim;
  }
  const double* Row(int64_t h, int64_t row) const {
    return data.Data<double>() + At(h, row);
  }

  Tensor data;
  int64_t heads = 0, rows = 0, dim = 0;
};

double* GradRow(Tensor& grad, const Table& table, int64_t h, int64_t row) {
  return grad.MutableData<double>() + table.At(h, row);
}

// A call with everything in float64: what both directions share.
class Problem {
 public:
  Problem(const Tensor& q, const Tensor& k, const Tensor& v, const Terms& terms,
          const AttentionOptions& options)
      : sizes(CheckCall(q, k, v, options)),
        mask(sizes, options),
        terms(terms),
        softcap(options.softcap),
        q(q.To(DType::kF64)),
        k(k.To(DType::kF64)),
        v(v.To(DType::kF64)) {
    CheckScale(terms, options);
    Validate(terms, mask.ShapeOf(sizes, options));
    if (terms.v_table && terms.v_table->rows.size(2) != sizes.value_dim) {
      Fail("the value table {} does not match v {}",
           terms.v_table->rows.Describe(), v.Describe());
    }
    if (terms.extra_dot) {
      a = Table(terms.extra_dot->q_rows);
      c = Table(terms.extra_dot->k_rows);
    }
    if (terms.q_table) tq = Table(terms.q_table->rows);
    if (terms.k_table) tk = Table(terms.k_table->rows);
    if (terms.v_table) tv = Table(terms.v_table->rows);
    rq = Rotated(this->q, sizes.q_heads, sizes.q_len, /*is_query=*/true);
    rk = Rotated(this->k, sizes.kv_heads, sizes.k_len, /*is_query=*/false);
  }

  int64_t KvHead(int64_t h) const {
    return h / (sizes.q_heads / sizes.kv_heads);
  }
  int64_t QAt(int64_t b, int64_t h, int64_t i) const {
    return ((b * sizes.q_heads + h) * sizes.q_len + i) * sizes.head_dim;
  }
  int64_t KAt(int64_t b, int64_t h, int64_t j) const {
    return ((b * sizes.kv_heads + KvHead(h)) * sizes.k_len + j) *
           sizes.head_dim;
  }
  int64_t VAt(int64_t b, int64_t h, int64_t j) const {
    return ((b * sizes.kv_heads + KvHead(h)) * sizes.k_len + j) *
           sizes.value_dim;
  }
  int64_t OutAt(int64_t b, int64_t h, int64_t i) const {
    return ((b * sizes.q_heads + h) * sizes.q_len + i) * sizes.value_dim;
  }
  int64_t ExtraRow(int64_t position) const {
    return position - terms.extra_dot->first_position;
  }

  // rot(q_i).rot(k_j). A decay multiplies each pair of channels by
  // exp(log_decay * (m - n)).
  double RotatedDot(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const double* x = rq.data() + QAt(b, h, i);
    const double* y = rk.data() + KAt(b, h, j);
    if (decay_.empty()) return Dot(x, y, sizes.head_dim);
    const double offset =
        static_cast<double>(mask.QPos(b, i) - mask.KPos(b, j));
    double sum = 0.0;
    for (int64_t d = 0; d < sizes.head_dim; ++d) {
      sum += x[d] * y[d] * std::exp(decay_[static_cast<size_t>(d)] * offset);
    }
    return sum;
  }

  // d(rot(q_i).rot(k_j)) / d rot(q_i) is rot(k_j) times the decay, and the same
  // with the roles exchanged.
  void AddRotatedDotGrads(int64_t b, int64_t h, int64_t i, int64_t j, double g,
                          double* d_rq, double* d_rk) const {
    const double* x = rq.data() + QAt(b, h, i);
    const double* y = rk.data() + KAt(b, h, j);
    const double offset =
        static_cast<double>(mask.QPos(b, i) - mask.KPos(b, j));
    for (int64_t d = 0; d < sizes.head_dim; ++d) {
      const double w =
          decay_.empty()
              ? g
              : g * std::exp(decay_[static_cast<size_t>(d)] * offset);
      d_rq[d] += w * y[d];
      d_rk[d] += w * x[d];
    }
  }

  // s_ij
  double Score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t m = mask.QPos(b, i);
    const int64_t n = mask.KPos(b, j);
    double dots = RotatedDot(b, h, i, j);
    if (terms.extra_dot) {
      dots += Dot(a.Row(h, ExtraRow(m)), c.Row(h, ExtraRow(n)), a.dim);
    }
    if (terms.q_table) {
      const int32_t bucket = terms.q_table->buckets(m, n);
      dots += Dot(q.Data<double>() + QAt(b, h, i), tq.Row(h, bucket), tq.dim);
    }
    if (terms.k_table) {
      const int32_t bucket = terms.k_table->buckets(m, n);
      dots += Dot(k.Data<double>() + KAt(b, h, j), tk.Row(h, bucket), tk.dim);
    }
    double s = terms.scale.At(m) * dots;
    if (terms.bias) s += BiasAt(*terms.bias, h, m, n);
    return s;
  }

  double Capped(double s) const {
    return softcap ? *softcap * std::tanh(s / *softcap) : s;
  }

  // One row of probabilities. Returns lse_i; p_j = 0 where masked.
  double Probabilities(int64_t b, int64_t h, int64_t i,
                       std::vector<double>& capped,
                       std::vector<double>& p) const {
    double max = -kInf;
    for (int64_t j = 0; j < sizes.k_len; ++j) {
      const size_t at = static_cast<size_t>(j);
      capped[at] = mask.Visible(b, i, j) ? Capped(Score(b, h, i, j)) : -kInf;
      // A NaN becomes the maximum and stays it, so that the row is NaN.
      if (!(capped[at] <= max) && !std::isnan(max)) max = capped[at];
    }
    std::fill(p.begin(), p.end(), 0.0);
    if (max == -kInf) return -kInf;
    double sum = 0.0;
    for (size_t j = 0; j < p.size(); ++j) {
      if (capped[j] != -kInf) p[j] = std::exp(capped[j] - max);
      sum += p[j];
    }
    for (double& value : p) value /= sum;
    return max + std::log(sum);
  }

  CallSizes sizes;
  CallMask mask;
  const Terms& terms;
  std::optional<double> softcap;
  Tensor q, k, v;
  std::vector<double> rq, rk;  // rotated
  Table a, c, tq, tk, tv;

 private:
  std::vector<double> Rotated(const Tensor& x, int64_t heads, int64_t length,
                              bool is_query) {
    std::vector<double> out = x.ToVector();
    if (!terms.rotate) return out;
    const Rotation& r = *terms.rotate;
    const size_t pairs = static_cast<size_t>(r.NumPairs());
    std::vector<double> cos(pairs), sin(pairs);
    for (int64_t b = 0; b < sizes.batch; ++b) {
      for (int64_t i = 0; i < length; ++i) {
        r.CosSin(is_query ? mask.QPos(b, i) : mask.KPos(b, i), cos.data(),
                 sin.data());
        for (int64_t h = 0; h < heads; ++h) {
          double* row =
              out.data() + ((b * heads + h) * length + i) * sizes.head_dim;
          for (size_t p = 0; p < pairs; ++p) {
            double& x0 = row[r.FirstOfPair(static_cast<int64_t>(p))];
            double& x1 = row[r.SecondOfPair(static_cast<int64_t>(p))];
            const double rotated = x0 * cos[p] - x1 * sin[p];
            x1 = x0 * sin[p] + x1 * cos[p];
            x0 = rotated;
          }
        }
      }
    }
    if (!r.log_decay.empty() && decay_.empty()) {
      decay_.assign(static_cast<size_t>(sizes.head_dim), 0.0);
      for (size_t p = 0; p < pairs; ++p) {
        const int64_t pair = static_cast<int64_t>(p);
        decay_[static_cast<size_t>(r.FirstOfPair(pair))] = r.log_decay[p];
        decay_[static_cast<size_t>(r.SecondOfPair(pair))] = r.log_decay[p];
      }
    }
    return out;
  }

  std::vector<double> decay_;  // by channel; empty: none
};

// dL/dB for one pair, to wherever the bias came from.
void AddBiasGrad(const Bias& bias, int64_t h, int64_t m, int64_t n, double g,
                 BiasGrads& grads) {
  const size_t head = static_cast<size_t>(h);
  if (const auto* table = std::get_if<BiasTable>(&bias)) {
    // s += B[h, b]
    Tensor& d = std::get<BiasTableGrads>(grads).values;
    const int64_t row = d.size(0) == 1 ? 0 : h;
    d.MutableData<double>()[row * d.size(1) + table->buckets(m, n)] += g;
  } else if (std::holds_alternative<BiasRamp>(bias)) {
    // s += -past[h] max(m - n, 0) - future[h] max(n - m, 0)
    auto& d = std::get<BiasRampGrads>(grads);
    const double offset = static_cast<double>(m - n);
    d.past[head] -= g * std::max(offset, 0.0);
    d.future[head] -= g * std::max(-offset, 0.0);
  } else {
    // x = u g,  s += base[h, s] + slope[h, s] x
    const auto& profile = std::get<BiasProfile>(bias);
    auto& d = std::get<BiasProfileGrads>(grads);
    const size_t u = static_cast<size_t>(std::abs(m - n));
    const size_t r = static_cast<size_t>(m - profile.first_position);
    const double x = profile.distance[u] * profile.row_gain[r];
    const size_t segment = profile.Segment(x);
    const int64_t row = profile.base.size(0) == 1 ? 0 : h;
    const int64_t at =
        row * profile.base.size(1) + static_cast<int64_t>(segment);
    d.base.MutableData<double>()[at] += g;
    d.slope.MutableData<double>()[at] += g * x;
    const double d_x = g * profile.slope.At(row, segment);
    d.distance[u] += d_x * profile.row_gain[r];
    d.row_gain[r] += d_x * profile.distance[u];
  }
}

// Turns gradients of rotated rows into gradients of the rows: the transpose of
//   (x0, x1) -> (x0 cos - x1 sin, x0 sin + x1 cos).
void AddUnrotated(const Problem& p, const std::vector<double>& d_rotated,
                  int64_t heads, int64_t length, bool is_query, Tensor& d_x) {
  double* out = d_x.MutableData<double>();
  const int64_t dim = p.sizes.head_dim;
  if (!p.terms.rotate) {
    Axpy(1.0, d_rotated.data(), out, static_cast<int64_t>(d_rotated.size()));
    return;
  }
  const Rotation& r = *p.terms.rotate;
  std::vector<bool> rotates(static_cast<size_t>(dim), false);
  const size_t pairs = static_cast<size_t>(r.NumPairs());
  for (size_t pair = 0; pair < pairs; ++pair) {
    rotates[static_cast<size_t>(r.FirstOfPair(static_cast<int64_t>(pair)))] =
        true;
    rotates[static_cast<size_t>(r.SecondOfPair(static_cast<int64_t>(pair)))] =
        true;
  }
  std::vector<double> cos(pairs), sin(pairs);
  for (int64_t b = 0; b < p.sizes.batch; ++b) {
    for (int64_t i = 0; i < length; ++i) {
      r.CosSin(is_query ? p.mask.QPos(b, i) : p.mask.KPos(b, i), cos.data(),
               sin.data());
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t at = ((b * heads + h) * length + i) * dim;
        const double* g = d_rotated.data() + at;
        for (int64_t d = 0; d < dim; ++d) {
          if (!rotates[static_cast<size_t>(d)]) out[at + d] += g[d];
        }
        for (size_t pair = 0; pair < pairs; ++pair) {
          const int64_t d0 = r.FirstOfPair(static_cast<int64_t>(pair));
          const int64_t d1 = r.SecondOfPair(static_cast<int64_t>(pair));
          out[at + d0] += g[d0] * cos[pair] + g[d1] * sin[pair];
          out[at + d1] += -g[d0] * sin[pair] + g[d1] * cos[pair];
        }
      }
    }
  }
}

}  // namespace

Forward Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                  const Terms& terms, const AttentionOptions& options) {
  const Problem p(q, k, v, terms, options);
  const CallSizes& s = p.sizes;
  Forward f{.out = Tensor::Zeros(DType::kF64,
                                 {s.batch, s.q_heads, s.q_len, s.value_dim}),
            .lse = Tensor::Zeros(DType::kF64, {s.batch, s.q_heads, s.q_len})};
  double* out = f.out.MutableData<double>();
  double* lse = f.lse.MutableData<double>();
  const double* values = p.v.Data<double>();
  std::vector<double> capped(static_cast<size_t>(s.k_len));
  std::vector<double> prob(static_cast<size_t>(s.k_len));
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.q_heads; ++h) {
      for (int64_t i = 0; i < s.q_len; ++i) {
        CheckInterrupt();
        lse[(b * s.q_heads + h) * s.q_len + i] =
            p.Probabilities(b, h, i, capped, prob);
        double* o = out + p.OutAt(b, h, i);
        for (int64_t j = 0; j < s.k_len; ++j) {
          if (!p.mask.Visible(b, i, j)) continue;
          const double p_ij = prob[static_cast<size_t>(j)];
          // o_i += p_ij (v_j + Tv[b])
          Axpy(p_ij, values + p.VAt(b, h, j), o, s.value_dim);
          if (terms.v_table) {
            const int32_t bucket =
                terms.v_table->buckets(p.mask.QPos(b, i), p.mask.KPos(b, j));
            Axpy(p_ij, p.tv.Row(h, bucket), o, s.value_dim);
          }
        }
      }
    }
  }
  return f;
}

Backward AttentionBackward(const Tensor& d_out, const Tensor& q,
                           const Tensor& k, const Tensor& v, const Terms& terms,
                           const AttentionOptions& options) {
  const Problem p(q, k, v, terms, options);
  const CallSizes& s = p.sizes;
  if (d_out.shape() !=
      std::vector<int64_t>{s.batch, s.q_heads, s.q_len, s.value_dim}) {
    Fail("d_out must be [{}, {}, {}, {}], got {}", s.batch, s.q_heads, s.q_len,
         s.value_dim, d_out.Describe());
  }
  Backward g{.d_q = Tensor::Zeros(DType::kF64, q.shape()),
             .d_k = Tensor::Zeros(DType::kF64, k.shape()),
             .d_v = Tensor::Zeros(DType::kF64, v.shape()),
             .terms = ZeroGrads(terms)};
  const Tensor d_out64 = d_out.To(DType::kF64);
  const double* raw_q = p.q.Data<double>();
  const double* raw_k = p.k.Data<double>();
  const double* raw_v = p.v.Data<double>();
  double* d_q = g.d_q.MutableData<double>();
  double* d_k = g.d_k.MutableData<double>();
  double* d_v = g.d_v.MutableData<double>();
  std::vector<double> d_rq(p.rq.size()), d_rk(p.rk.size());
  const size_t keys = static_cast<size_t>(s.k_len);
  std::vector<double> capped(keys), prob(keys), d_p(keys);

  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.q_heads; ++h) {
      for (int64_t i = 0; i < s.q_len; ++i) {
        CheckInterrupt();
        const double* d_o = d_out64.Data<double>() + p.OutAt(b, h, i);
        const int64_t m = p.mask.QPos(b, i);
        p.Probabilities(b, h, i, capped, prob);

        // o_i = sum_j p_ij (v_j + Tv[b])
        //   => d_p_ij = d_o.(v_j + Tv[b]),  d_v_j += p_ij d_o,
        //      d_Tv[b] += p_ij d_o
        double mean = 0.0;
        for (int64_t j = 0; j < s.k_len; ++j) {
          if (!p.mask.Visible(b, i, j)) continue;
          const size_t at = static_cast<size_t>(j);
          d_p[at] = Dot(d_o, raw_v + p.VAt(b, h, j), s.value_dim);
          Axpy(prob[at], d_o, d_v + p.VAt(b, h, j), s.value_dim);
          if (terms.v_table) {
            const int32_t bucket = terms.v_table->buckets(m, p.mask.KPos(b, j));
            d_p[at] += Dot(d_o, p.tv.Row(h, bucket), s.value_dim);
            Axpy(prob[at], d_o, GradRow(g.terms.v_table, p.tv, h, bucket),
                 s.value_dim);
          }
          mean += prob[at] * d_p[at];
        }

        for (int64_t j = 0; j < s.k_len; ++j) {
          if (!p.mask.Visible(b, i, j)) continue;
          const size_t at = static_cast<size_t>(j);
          const int64_t n = p.mask.KPos(b, j);
          // p_ij = exp(c_ij - lse_i)  =>  d_c_ij = p_ij (d_p_ij - sum_l p d_p)
          double d_s = prob[at] * (d_p[at] - mean);
          // c_ij = cap tanh(s_ij / cap)  =>  d_s_ij = d_c_ij (1 - tanh^2)
          if (p.softcap) {
            const double tanh = capped[at] / *p.softcap;
            d_s *= 1.0 - tanh * tanh;
          }
          // s_ij = scale_i (...) + B[h, b]
          if (terms.bias) AddBiasGrad(*terms.bias, h, m, n, d_s, *g.terms.bias);
          const double d_dots = d_s * terms.scale.At(m);

          // dots = rot(q_i).rot(k_j) + ...
          p.AddRotatedDotGrads(b, h, i, j, d_dots, d_rq.data() + p.QAt(b, h, i),
                               d_rk.data() + p.KAt(b, h, j));
          // ... + a_i.c_j + ...
          if (terms.extra_dot) {
            const int64_t am = p.ExtraRow(m);
            const int64_t cn = p.ExtraRow(n);
            Axpy(d_dots, p.c.Row(h, cn),
                 GradRow(g.terms.extra_dot->q_rows, p.a, h, am), p.a.dim);
            Axpy(d_dots, p.a.Row(h, am),
                 GradRow(g.terms.extra_dot->k_rows, p.c, h, cn), p.c.dim);
          }
          // ... + q_i.Tq[b] + ...
          if (terms.q_table) {
            const int32_t bucket = terms.q_table->buckets(m, n);
            Axpy(d_dots, p.tq.Row(h, bucket), d_q + p.QAt(b, h, i), s.head_dim);
            Axpy(d_dots, raw_q + p.QAt(b, h, i),
                 GradRow(g.terms.q_table, p.tq, h, bucket), s.head_dim);
          }
          // ... + k_j.Tk[b]
          if (terms.k_table) {
            const int32_t bucket = terms.k_table->buckets(m, n);
            Axpy(d_dots, p.tk.Row(h, bucket), d_k + p.KAt(b, h, j), s.head_dim);
            Axpy(d_dots, raw_k + p.KAt(b, h, j),
                 GradRow(g.terms.k_table, p.tk, h, bucket), s.head_dim);
          }
        }
      }
    }
  }
  AddUnrotated(p, d_rq, s.q_heads, s.q_len, /*is_query=*/true, g.d_q);
  AddUnrotated(p, d_rk, s.kv_heads, s.k_len, /*is_query=*/false, g.d_k);
  return g;
}

namespace {

// For terms that an encoding was lowered to: they have the scale.
AttentionOptions WithoutScale(AttentionOptions options) {
  options.scale.reset();
  return options;
}

}  // namespace

Forward Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                  const Encoding& encoding, const AttentionOptions& options) {
  const Shape shape = CallShape(q, k, v, options);
  return reference::Attention(q, k, v, encoding.Lower(shape).terms,
                              WithoutScale(options));
}

EncodingGrads AttentionBackward(const Tensor& d_out, const Tensor& q,
                                const Tensor& k, const Tensor& v,
                                const Encoding& encoding,
                                const AttentionOptions& options) {
  const Shape shape = CallShape(q, k, v, options);
  const Lowered lowered = encoding.Lower(shape);
  Backward g = reference::AttentionBackward(d_out, q, k, v, lowered.terms,
                                            WithoutScale(options));
  return {.d_q = g.d_q,
          .d_k = g.d_k,
          .d_v = g.d_v,
          .params = encoding.PullBack(shape, g.terms)};
}

Tensor Scores(const Tensor& q, const Tensor& k, const Terms& terms,
              const AttentionOptions& options, int64_t batch, int64_t head) {
  // Scores have no values: k stands in for them.
  Terms scored = terms;
  scored.v_table.reset();
  const Problem p(q, k, k, scored, options);
  if (batch < 0 || batch >= p.sizes.batch || head < 0 ||
      head >= p.sizes.q_heads) {
    Fail("there is no batch entry {} with head {} in q {}", batch, head,
         q.Describe());
  }
  Tensor scores = Tensor::Zeros(DType::kF64, {p.sizes.q_len, p.sizes.k_len});
  double* data = scores.MutableData<double>();
  for (int64_t i = 0; i < p.sizes.q_len; ++i) {
    for (int64_t j = 0; j < p.sizes.k_len; ++j) {
      data[i * p.sizes.k_len + j] =
          p.mask.Visible(batch, i, j) ? p.Score(batch, head, i, j) : -kInf;
    }
  }
  return scores;
}

}  // namespace locus::reference
