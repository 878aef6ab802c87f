// The algebra of terms.h, one pair at a time, in float64.
//
//   s_ij = scale_i * ( rot(q_i).rot(k_j) + a_i.c_j + r_i.Tq[b] + k_j.Tk[b] )
//          + B[h, b] + K[h, j] + M[h, i, j]
//   c_ij = cap * tanh(s_ij / cap)
//   p_ij = exp(c_ij - lse_i),   lse_i = log( exp(z_h) + sum_j exp(c_ij) )
//   o_i  = unrot_m( sum_j w_ij p_ij (rot_n(v_j) + Tv[b]) )
//
// with w_ij = 1 / (1 - rate), or 0 where a weight is dropped.
#include <cmath>
#include <limits>

#include "core/fail.h"
#include "core/threads.h"
#include "locus/reference.h"
#include "terms/call.h"
#include "terms/dropout.h"

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

// An operand [B or 1, H or 1, ...] in float64, or nothing.
struct Operand {
  explicit Operand(const Tensor& t) {
    if (!t.defined()) return;
    data = t.To(DType::kF64);
  }
  bool present() const { return data.defined(); }
  // The offset of [b, h, i, j], or of [b, h, j] for rank 3.
  int64_t At(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const auto pick = [this](int axis, int64_t at) {
      return data.size(axis) == 1 ? 0 : at;
    };
    int64_t at = pick(0, b) * data.size(1) + pick(1, h);
    if (data.rank() == 4) at = at * data.size(2) + pick(2, i);
    return at * data.size(-1) + pick(-1, j);
  }
  double operator()(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return present() ? data.Data<double>()[At(b, h, i, j)] : 0.0;
  }

  Tensor data;
};

enum class Side { kQuery, kKey };
enum class Direction { kForth, kBack };

// A call with everything in float64: the state shared by forward and backward.
class Problem {
 public:
  Problem(const Tensor& q, const Tensor& k, const Tensor& v, const Terms& terms,
          const AttentionOptions& options)
      : sizes(CheckCall(q, k, v, options)),
        mask(sizes, options),
        terms(terms),
        softcap(options.softcap),
        dropout(options.dropout),
        q(q.To(DType::kF64)),
        k(k.To(DType::kF64)),
        v(v.To(DType::kF64)),
        table_queries(options.table_queries.defined()
                          ? options.table_queries.To(DType::kF64)
                          : this->q),
        key_bias(options.key_bias),
        pair_bias(options.pair_bias),
        sinks(options.sinks) {
    CheckScale(terms, options);
    CheckTableQueries(terms, options);
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
    rq = this->q.ToVector();
    rk = this->k.ToVector();
    rv = this->v.ToVector();
    if (terms.rotate) {
      Rotate(*terms.rotate, Side::kQuery, Direction::kForth, rq);
      Rotate(*terms.rotate, Side::kKey, Direction::kForth, rk);
      SetDecays(*terms.rotate);
    }
    if (terms.rotate_values) {
      Rotate(terms.rotate_values->rotation, Side::kKey, Direction::kForth, rv);
    }
  }

  // Rotates rows [B, heads, length, D or Dv] of queries or keys by their
  // positions:
  //   (x0, x1) -> (x0 cos - x1 sin, x0 sin + x1 cos),
  // or by the transpose of that, which takes gradients and outputs back.
  void Rotate(const Rotation& r, Side side, Direction direction,
              std::vector<double>& rows) const {
    const bool query = side == Side::kQuery;
    const int64_t heads = query ? sizes.q_heads : sizes.kv_heads;
    const int64_t length = query ? sizes.q_len : sizes.k_len;
    const int64_t tokens = sizes.batch * heads * length;
    if (tokens == 0) return;
    const int64_t dim = static_cast<int64_t>(rows.size()) / tokens;
    const size_t pairs = static_cast<size_t>(r.NumPairs());
    std::vector<double> cos(pairs), sin(pairs);
    for (int64_t i = 0; i < length; ++i) {
      int64_t last = -1;  // sequences mostly share their positions
      for (int64_t b = 0; b < sizes.batch; ++b) {
        const int64_t at = query ? mask.QPos(b, i) : mask.KPos(b, i);
        const bool moved = b == 0 || at != last;
        last = at;
        for (int64_t h = 0; h < heads; ++h) {
          if ((h == 0 && moved) || r.heads > 1) {
            r.CosSin(at, cos.data(), sin.data(), query ? KvHead(h) : h);
          }
          double* row = rows.data() + ((b * heads + h) * length + i) * dim;
          for (size_t p = 0; p < pairs; ++p) {
            double& x0 = row[r.FirstOfPair(static_cast<int64_t>(p))];
            double& x1 = row[r.SecondOfPair(static_cast<int64_t>(p))];
            const double s = direction == Direction::kForth ? sin[p] : -sin[p];
            const double rotated = x0 * cos[p] - x1 * s;
            x1 = x0 * s + x1 * cos[p];
            x0 = rotated;
          }
        }
      }
    }
  }

  // Whether outputs are rotated back at the query.
  bool RotatesBack() const {
    return terms.rotate_values && terms.rotate_values->relative;
  }

  // The batch size, or 0 without queries: then any number of heads fits into
  // memory, and a loop over them would not end.
  int64_t NonEmptyBatch() const { return sizes.q_len == 0 ? 0 : sizes.batch; }

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
  // r_i, the left operand of the query table.
  int64_t TableQueryAt(int64_t b, int64_t h, int64_t i) const {
    return ((b * sizes.q_heads + h) * sizes.q_len + i) * table_queries.size(3);
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

  // The sum that scale_i multiplies in s_ij.
  double Dots(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t m = mask.QPos(b, i);
    const int64_t n = mask.KPos(b, j);
    double dots = RotatedDot(b, h, i, j);
    if (terms.extra_dot) {
      dots += Dot(a.Row(h, ExtraRow(m)), c.Row(h, ExtraRow(n)), a.dim);
    }
    if (terms.q_table) {
      const int32_t bucket = terms.q_table->buckets(m, n);
      dots += Dot(table_queries.Data<double>() + TableQueryAt(b, h, i),
                  tq.Row(h, bucket), tq.dim);
    }
    if (terms.k_table) {
      const int32_t bucket = terms.k_table->buckets(m, n);
      dots += Dot(k.Data<double>() + KAt(b, h, j), tk.Row(h, bucket), tk.dim);
    }
    return dots;
  }

  // s_ij
  double Score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t m = mask.QPos(b, i);
    double s = terms.scale.At(h, m) * Dots(b, h, i, j);
    if (terms.bias) s += BiasAt(*terms.bias, h, m, mask.KPos(b, j));
    return s + key_bias(b, h, i, j) + pair_bias(b, h, i, j);
  }

  // z_h, or -inf.
  double Sink(int64_t h) const { return sinks.defined() ? sinks.At(h) : -kInf; }

  // w_ij
  double Kept(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (dropout.rate == 0.0) return 1.0;
    const int64_t hash = DropoutRow(dropout, b, h, i).Hash(j);
    return hash < DropoutLimit(dropout) ? DropoutGain(dropout) : 0.0;
  }

  double Capped(double s) const {
    return softcap ? *softcap * std::tanh(s / *softcap) : s;
  }

  // One row of probabilities. Returns lse_i; p_j = 0 where masked.
  double Probabilities(int64_t b, int64_t h, int64_t i,
                       std::vector<double>& capped,
                       std::vector<double>& p) const {
    double max = Sink(h);
    for (int64_t j = 0; j < sizes.k_len; ++j) {
      const size_t at = static_cast<size_t>(j);
      capped[at] = mask.Visible(b, h, i, j) ? Capped(Score(b, h, i, j)) : -kInf;
      // A NaN becomes the maximum and remains so, which makes the row NaN.
      if (!(capped[at] <= max) && !std::isnan(max)) max = capped[at];
    }
    std::fill(p.begin(), p.end(), 0.0);
    if (max == -kInf) return -kInf;
    double sum = std::exp(Sink(h) - max);
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
  Dropout dropout;
  Tensor q, k, v, table_queries;
  Operand key_bias, pair_bias;
  Tensor sinks;
  std::vector<double> rq, rk, rv;  // rotated
  Table a, c, tq, tk, tv;

 private:
  void SetDecays(const Rotation& r) {
    if (r.log_decay.empty()) return;
    decay_.assign(static_cast<size_t>(sizes.head_dim), 0.0);
    for (int64_t p = 0; p < r.NumPairs(); ++p) {
      const double decay = r.log_decay[static_cast<size_t>(p)];
      decay_[static_cast<size_t>(r.FirstOfPair(p))] = decay;
      decay_[static_cast<size_t>(r.SecondOfPair(p))] = decay;
    }
  }

  std::vector<double> decay_;  // by channel; empty: none
};

// Adds dL/dB of one pair to the gradient of the bias.
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

// Adds the gradient of the frequencies from rotated rows and their gradients:
//   x0' = gain (x0 cos - x1 sin), x1' = gain (x0 sin + x1 cos)
//     => d_angle = d_x1' x0' - d_x0' x1',  d_theta += d_angle * coordinate
void AddThetaGrad(const Problem& p, const std::vector<double>& rotated,
                  const std::vector<double>& d_rotated, Side side,
                  std::vector<double>& d_theta) {
  const Rotation& r = *p.terms.rotate;
  const CallSizes& s = p.sizes;
  const bool query = side == Side::kQuery;
  const int64_t heads = query ? s.q_heads : s.kv_heads;
  const int64_t length = query ? s.q_len : s.k_len;
  for (int64_t row = 0; row < s.batch * heads * length; ++row) {
    const int64_t b = row / (heads * length), i = row % length;
    const int64_t h = row / length % heads;
    const int64_t kv = r.heads == 1 ? 0 : query ? p.KvHead(h) : h;
    double* d_w =
        d_theta.data() + kv * static_cast<int64_t>(r.ThetaOf(0).size());
    const int64_t position = query ? p.mask.QPos(b, i) : p.mask.KPos(b, i);
    const double* x = rotated.data() + row * s.head_dim;
    const double* d = d_rotated.data() + row * s.head_dim;
    for (int64_t pair = 0; pair < r.NumPairs(); ++pair) {
      const int64_t c0 = r.FirstOfPair(pair), c1 = r.SecondOfPair(pair);
      // Rows that no pair sees may hold anything, and 0 * NaN is NaN.
      if (d[c0] == 0.0 && d[c1] == 0.0) continue;
      const double d_angle = d[c1] * x[c0] - d[c0] * x[c1];
      if (!r.Mixed()) {
        d_w[pair] += d_angle * r.Shifted(r.AxisOf(pair), position);
        continue;
      }
      for (int64_t a = 0; a < r.NumAxes(); ++a) {
        d_w[pair * r.NumAxes() + a] += d_angle * r.Shifted(a, position);
      }
    }
  }
}

}  // namespace

Forward Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                  const Terms& terms, const AttentionOptions& options) {
  const Problem p(q, k, v, terms, options);
  const CallSizes& s = p.sizes;
  Forward f{.lse = Tensor::Zeros(DType::kF64, {s.batch, s.q_heads, s.q_len})};
  if (options.return_weights) {
    f.weights =
        Tensor::Zeros(DType::kF64, {s.batch, s.q_heads, s.q_len, s.k_len});
  }
  std::vector<double> out(
      static_cast<size_t>(s.batch * s.q_heads * s.q_len * s.value_dim));
  double* lse = f.lse.MutableData<double>();
  std::vector<double> capped(static_cast<size_t>(s.k_len));
  std::vector<double> prob(static_cast<size_t>(s.k_len));
  for (int64_t b = 0; b < p.NonEmptyBatch(); ++b) {
    for (int64_t h = 0; h < s.q_heads; ++h) {
      for (int64_t i = 0; i < s.q_len; ++i) {
        CheckInterrupt();
        const int64_t row = (b * s.q_heads + h) * s.q_len + i;
        lse[row] = p.Probabilities(b, h, i, capped, prob);
        double* o = out.data() + p.OutAt(b, h, i);
        for (int64_t j = 0; j < s.k_len; ++j) {
          if (!p.mask.Visible(b, h, i, j)) continue;
          const double kept = p.Kept(b, h, i, j);
          const double p_ij = kept * prob[static_cast<size_t>(j)];
          if (f.weights.defined()) {
            f.weights.MutableData<double>()[row * s.k_len + j] = p_ij;
          }
          if (kept == 0.0) continue;
          // u_i += w_ij p_ij (rot_n(v_j) + Tv[b])
          Axpy(p_ij, p.rv.data() + p.VAt(b, h, j), o, s.value_dim);
          if (terms.v_table) {
            const int32_t bucket =
                terms.v_table->buckets(p.mask.QPos(b, i), p.mask.KPos(b, j));
            Axpy(p_ij, p.tv.Row(h, bucket), o, s.value_dim);
          }
        }
      }
    }
  }
  if (p.RotatesBack()) {
    p.Rotate(terms.rotate_values->rotation, Side::kQuery, Direction::kBack,
             out);
  }
  f.out =
      Tensor::From({s.batch, s.q_heads, s.q_len, s.value_dim}, std::move(out));
  return f;
}

Backward AttentionBackward(const Tensor& d_out, const Tensor& q,
                           const Tensor& k, const Tensor& v, const Terms& terms,
                           const AttentionOptions& options,
                           const BackwardOptions& backward) {
  const Problem p(q, k, v, terms, options);
  const CallSizes& s = p.sizes;
  CheckBackward(s, options, backward);
  if (d_out.shape() !=
      std::vector<int64_t>{s.batch, s.q_heads, s.q_len, s.value_dim}) {
    Fail("d_out must be [{}, {}, {}, {}], got {}", s.batch, s.q_heads, s.q_len,
         s.value_dim, d_out.Describe());
  }
  Backward g{.d_q = Tensor::Zeros(DType::kF64, q.shape()),
             .d_k = Tensor::Zeros(DType::kF64, k.shape()),
             .d_v = Tensor::Zeros(DType::kF64, v.shape()),
             .operands = ZeroOperandGrads(options, backward),
             .terms = ZeroGrads(terms)};
  // o_i = unrot_m(u_i)  =>  d_u_i = rot_m(d_o_i)
  std::vector<double> d_u = d_out.ToVector();
  if (p.RotatesBack()) {
    p.Rotate(terms.rotate_values->rotation, Side::kQuery, Direction::kForth,
             d_u);
  }
  const double* raw_r = p.table_queries.Data<double>();
  const double* raw_k = p.k.Data<double>();
  // r is q itself unless table_queries are given.
  double* d_r =
      (g.operands.table_queries.defined() ? g.operands.table_queries : g.d_q)
          .MutableData<double>();
  double* d_k = g.d_k.MutableData<double>();
  std::vector<double> d_rq(p.rq.size()), d_rk(p.rk.size()), d_rv(p.rv.size());
  const size_t keys = static_cast<size_t>(s.k_len);
  std::vector<double> capped(keys), prob(keys), d_p(keys);

  for (int64_t b = 0; b < p.NonEmptyBatch(); ++b) {
    for (int64_t h = 0; h < s.q_heads; ++h) {
      for (int64_t i = 0; i < s.q_len; ++i) {
        CheckInterrupt();
        const double* d_o = d_u.data() + p.OutAt(b, h, i);
        const int64_t m = p.mask.QPos(b, i);
        const double lse = p.Probabilities(b, h, i, capped, prob);

        // u_i = sum_j w_ij p_ij (rot_n(v_j) + Tv[b])
        //   => d_p_ij = w_ij d_u.(rot_n(v_j) + Tv[b]),
        //      d_rot_n(v_j) += w_ij p_ij d_u,  d_Tv[b] += w_ij p_ij d_u
        double mean = 0.0;
        for (int64_t j = 0; j < s.k_len; ++j) {
          if (!p.mask.Visible(b, h, i, j)) continue;
          const size_t at = static_cast<size_t>(j);
          const double kept = p.Kept(b, h, i, j);
          d_p[at] = 0.0;
          if (kept == 0.0) continue;
          const double weight = kept * prob[at];
          d_p[at] = Dot(d_o, p.rv.data() + p.VAt(b, h, j), s.value_dim);
          Axpy(weight, d_o, d_rv.data() + p.VAt(b, h, j), s.value_dim);
          if (terms.v_table) {
            const int32_t bucket = terms.v_table->buckets(m, p.mask.KPos(b, j));
            d_p[at] += Dot(d_o, p.tv.Row(h, bucket), s.value_dim);
            Axpy(weight, d_o, GradRow(g.terms.v_table, p.tv, h, bucket),
                 s.value_dim);
          }
          d_p[at] *= kept;
          mean += prob[at] * d_p[at];
        }
        // lse_i = log( exp(z) + sum_j exp(c_ij) )
        //   => d_c_ij += p_ij d_lse_i,  d_z += exp(z - lse_i) d_lse_i
        if (backward.d_lse.defined()) mean -= backward.d_lse.At(b, h, i);
        if (g.operands.sinks.defined() && lse != -kInf) {
          g.operands.sinks.MutableData<double>()[h] -=
              std::exp(p.Sink(h) - lse) * mean;
        }

        for (int64_t j = 0; j < s.k_len; ++j) {
          if (!p.mask.Visible(b, h, i, j)) continue;
          const size_t at = static_cast<size_t>(j);
          const int64_t n = p.mask.KPos(b, j);
          // p_ij = exp(c_ij - lse_i)  =>  d_c_ij = p_ij (d_p_ij - sum_l p d_p)
          double d_s = prob[at] * (d_p[at] - mean);
          // c_ij = cap tanh(s_ij / cap)  =>  d_s_ij = d_c_ij (1 - tanh^2)
          if (p.softcap) {
            const double tanh = capped[at] / *p.softcap;
            d_s *= 1.0 - tanh * tanh;
          }
          // s_ij = scale_i (...) + B[h, b] + K[h, j] + M[h, i, j]
          if (terms.bias) AddBiasGrad(*terms.bias, h, m, n, d_s, *g.terms.bias);
          if (g.operands.key_bias.defined()) {
            g.operands.key_bias
                .MutableData<double>()[p.key_bias.At(b, h, i, j)] += d_s;
          }
          if (g.operands.pair_bias.defined()) {
            g.operands.pair_bias
                .MutableData<double>()[p.pair_bias.At(b, h, i, j)] += d_s;
          }
          // scale_i = scale g[h, m]
          if (g.terms.scale.defined()) {
            const Tensor& rows = terms.scale.rows;
            const int64_t row = (rows.size(0) == 1 ? 0 : h) * rows.size(1);
            g.terms.scale
                .MutableData<double>()[row + m - terms.scale.first_position] +=
                d_s * terms.scale.scale * p.Dots(b, h, i, j);
          }
          const double d_dots = d_s * terms.scale.At(h, m);

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
          // ... + r_i.Tq[b] + ...
          if (terms.q_table) {
            const int32_t bucket = terms.q_table->buckets(m, n);
            const int64_t r = p.TableQueryAt(b, h, i);
            Axpy(d_dots, p.tq.Row(h, bucket), d_r + r, p.tq.dim);
            Axpy(d_dots, raw_r + r, GradRow(g.terms.q_table, p.tq, h, bucket),
                 p.tq.dim);
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
  if (terms.rotate) {
    if (g.terms.rotate) {
      AddThetaGrad(p, p.rq, d_rq, Side::kQuery, g.terms.rotate->theta);
      AddThetaGrad(p, p.rk, d_rk, Side::kKey, g.terms.rotate->theta);
    }
    p.Rotate(*terms.rotate, Side::kQuery, Direction::kBack, d_rq);
    p.Rotate(*terms.rotate, Side::kKey, Direction::kBack, d_rk);
  }
  if (terms.rotate_values) {
    p.Rotate(terms.rotate_values->rotation, Side::kKey, Direction::kBack, d_rv);
  }
  Axpy(1.0, d_rq.data(), g.d_q.MutableData<double>(),
       static_cast<int64_t>(d_rq.size()));
  Axpy(1.0, d_rk.data(), d_k, static_cast<int64_t>(d_rk.size()));
  g.d_v = Tensor::From(v.shape(), std::move(d_rv));
  return g;
}

namespace {

// For terms that an encoding was lowered to: they include the scale.
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
                                const AttentionOptions& options,
                                const BackwardOptions& backward) {
  const Shape shape = CallShape(q, k, v, options);
  const Lowered lowered = encoding.Lower(shape);
  Backward g = reference::AttentionBackward(d_out, q, k, v, lowered.terms,
                                            WithoutScale(options), backward);
  return {.d_q = g.d_q,
          .d_k = g.d_k,
          .d_v = g.d_v,
          .operands = g.operands,
          .params = encoding.PullBack(shape, g.terms)};
}

struct Scorer::State {
  State(const Tensor& q, const Tensor& k, const Terms& all,
        const AttentionOptions& options)
      : terms(WithoutValues(all)), problem(q, k, Values(k), terms, options) {}

  // Scores need no values: one channel of zeros stands in for them.
  static Tensor Values(const Tensor& k) {
    if (k.rank() != 4) return k;  // rejected by the call
    return Tensor::Zeros(DType::kF64, {k.size(0), k.size(1), k.size(2), 1});
  }
  static Terms WithoutValues(Terms terms) {
    terms.v_table.reset();
    terms.rotate_values.reset();
    return terms;
  }

  Terms terms;
  Problem problem;
};

Scorer::Scorer(const Tensor& q, const Tensor& k, const Terms& terms,
               const AttentionOptions& options)
    : state_(std::make_unique<State>(q, k, terms, options)) {}

Scorer::~Scorer() = default;

double Scorer::At(int64_t b, int64_t h, int64_t i, int64_t j) const {
  const Problem& p = state_->problem;
  return p.mask.Visible(b, h, i, j) ? p.Score(b, h, i, j) : -kInf;
}

Tensor Scorer::Of(int64_t b, int64_t h) const {
  const Problem& p = state_->problem;
  if (b < 0 || b >= p.sizes.batch || h < 0 || h >= p.sizes.q_heads) {
    Fail("there is no batch entry {} with head {} in q {}", b, h,
         p.q.Describe());
  }
  Tensor scores = Tensor::Zeros(DType::kF64, {p.sizes.q_len, p.sizes.k_len});
  double* data = scores.MutableData<double>();
  for (int64_t i = 0; i < p.sizes.q_len; ++i) {
    for (int64_t j = 0; j < p.sizes.k_len; ++j) {
      data[i * p.sizes.k_len + j] = At(b, h, i, j);
    }
  }
  return scores;
}

}  // namespace locus::reference
