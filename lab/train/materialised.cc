#include "lab/train/materialised.h"

#include <torch/utils.h>

#include <limits>
#include <vector>

namespace locus::lab {
namespace {

using Constants = MaterialisedAttention::Constants;
using CosSin = MaterialisedAttention::CosSin;

torch::Tensor ByPair(int64_t length, auto value, torch::ScalarType type) {
  torch::Tensor matrix = torch::empty({length, length}, torch::kDouble);
  double* at = matrix.data_ptr<double>();
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t j = 0; j < length; ++j) *at++ = value(i, j);
  }
  return matrix.to(type);
}

torch::Tensor BucketsOf(const BucketMap& map, int64_t length, bool causal) {
  return ByPair(
      length,
      [&](int64_t i, int64_t j) {
        // Masked pairs need any existing bucket.
        return static_cast<double>(causal && j > i ? map(i, i) : map(i, j));
      },
      torch::kLong);
}

// The coordinates of every position, [L, axes].
torch::Tensor CoordinatesOf(const Rotation& rotation, int64_t length) {
  torch::Tensor out =
      torch::empty({length, rotation.NumAxes()}, torch::kDouble);
  for (int64_t m = 0; m < length; ++m) {
    for (int64_t a = 0; a < rotation.NumAxes(); ++a) {
      out[m][a] = rotation.Shifted(a, m);
    }
  }
  return out;
}

// The factors exp(log_decay[p] m) of q, as logarithms; k has their inverse.
torch::Tensor DecayOf(const Rotation& rotation, int64_t length) {
  if (rotation.log_decay.empty()) return {};
  const torch::Tensor decay = torch::tensor(rotation.log_decay, torch::kDouble);
  // Relative to the middle of the sequence, so that neither side overflows.
  const torch::Tensor at = torch::arange(length, torch::kDouble) - length / 2;
  return torch::outer(at, decay);
}

// angle[h, m, p] = sum_a coordinate[m, a] theta[h, p, a], or over p's own axis
// only; h is 0 if heads share theta.
CosSin CosSinOf(const Rotation& rotation, const torch::Tensor& coordinates,
                const torch::Tensor& decay, const torch::Tensor& theta) {
  torch::Tensor angles;
  if (rotation.Mixed()) {
    angles = torch::matmul(
        coordinates,
        theta.view({rotation.heads, rotation.NumPairs(), rotation.NumAxes()})
            .transpose(1, 2));
  } else {
    std::vector<int64_t> axes;
    for (int64_t p = 0; p < rotation.NumPairs(); ++p) {
      axes.push_back(rotation.AxisOf(p));
    }
    angles = coordinates.index_select(1, torch::tensor(axes)) *
             theta.view({rotation.heads, 1, rotation.NumPairs()});
  }
  const torch::Tensor cos = angles.cos() * rotation.gain;
  const torch::Tensor sin = angles.sin() * rotation.gain;
  if (!decay.defined()) return {cos, sin, cos, sin};
  const torch::Tensor up = decay.exp(), down = (-decay).exp();
  return {cos * up, sin * up, cos * down, sin * down};
}

CosSin To(const CosSin& cos_sin, torch::ScalarType type) {
  return {cos_sin.q_cos.to(type), cos_sin.q_sin.to(type),
          cos_sin.k_cos.to(type), cos_sin.k_sin.to(type)};
}

// Angles in float64, rounded once, as in the library.
CosSin ExactCosSin(const Rotation& rotation, int64_t length,
                   torch::ScalarType type) {
  return To(CosSinOf(rotation, CoordinatesOf(rotation, length),
                     DecayOf(rotation, length),
                     torch::tensor(rotation.theta, torch::kDouble)),
            type);
}

// m - n, [L, L].
torch::Tensor OffsetsOf(int64_t length, torch::TensorOptions options) {
  const torch::Tensor at = torch::arange(length, options);
  return at.unsqueeze(1) - at.unsqueeze(0);
}

// B[h, m, n]; see terms.h.
torch::Tensor BiasOf(const Constants& constants, const TermTensors& arrays,
                     int64_t length) {
  const torch::Tensor& first = arrays[TermArray::kBias];
  const Bias& bias = *constants.terms.bias;
  if (std::holds_alternative<BiasTable>(bias)) {
    return torch::embedding(first.t(), constants.bias_buckets)
        .permute({2, 0, 1});
  }
  if (std::holds_alternative<BiasRamp>(bias)) {
    const torch::Tensor x = OffsetsOf(length, first.options());
    const auto slopes = [](const torch::Tensor& row) {
      return row.view({-1, 1, 1});
    };
    return -slopes(first) * x.clamp_min(0) -
           slopes(arrays[TermArray::kBias1]) * (-x).clamp_min(0);
  }
  const auto& profile = std::get<BiasProfile>(bias);
  const torch::Tensor distance =
      OffsetsOf(length, torch::kLong).abs().flatten();
  const torch::Tensor u = first.index_select(0, distance);
  const torch::Tensor g = arrays[TermArray::kBias1]
                              .narrow(0, -profile.first_position, length)
                              .unsqueeze(1);
  const torch::Tensor x = u.view({length, length}) * g;
  const torch::Tensor knots =
      torch::tensor(profile.knots, torch::kDouble).to(x.scalar_type());
  const torch::Tensor segment =
      torch::searchsorted(knots, x.detach(), /*out_int32=*/false,
                          /*right=*/true)
          .flatten();
  const auto at = [&](const torch::Tensor& rows) {
    return rows.index_select(1, segment).view({-1, length, length});
  };
  return at(arrays[TermArray::kBias2]) + at(arrays[TermArray::kBias3]) * x;
}

Constants MakeConstants(const EncodingValues& encoding, const Shape& shape,
                        bool causal, torch::ScalarType type) {
  const int64_t length = shape.max_q_pos + 1;
  Constants out;
  out.terms = encoding.Build()->Lower(shape).terms;
  const Terms& terms = out.terms;
  if (causal) {
    out.mask = ByPair(
        length,
        [](int64_t i, int64_t j) {
          return j > i ? -std::numeric_limits<double>::infinity() : 0.0;
        },
        type);
  }
  const auto buckets = [&](const auto& term) {
    return term ? BucketsOf(term->buckets, length, causal) : torch::Tensor();
  };
  out.q_buckets = buckets(terms.q_table);
  out.k_buckets = buckets(terms.k_table);
  out.v_buckets = buckets(terms.v_table);
  if (terms.bias) {
    const auto* table = std::get_if<BiasTable>(&*terms.bias);
    if (table) out.bias_buckets = BucketsOf(table->buckets, length, causal);
  }
  if (terms.rotate && terms.rotate->trains) {
    out.coordinates = CoordinatesOf(*terms.rotate, length).to(type);
    out.decay = DecayOf(*terms.rotate, length);
    if (out.decay.defined()) out.decay = out.decay.to(type);
  } else if (terms.rotate) {
    out.cos_sin = ExactCosSin(*terms.rotate, length, type);
  }
  if (terms.rotate_values) {
    out.value_cos_sin =
        ExactCosSin(terms.rotate_values->rotation, length, type);
  }
  if (encoding.params.empty()) {
    out.fixed = LowerTerms(encoding, shape, type);
    if (terms.bias) {
      out.bias = BiasOf(out, out.fixed, length);
      if (causal) out.bias = out.bias + out.mask;
    }
  }
  return out;
}

// (x1, x2) -> (x1 cos - x2 sin, x1 sin + x2 cos), pair by pair.
torch::Tensor Rotated(const torch::Tensor& x, const torch::Tensor& cos,
                      const torch::Tensor& sin, const Rotation& rotation) {
  const int64_t pairs = rotation.NumPairs(), first = rotation.first_channel;
  const bool interleaved = rotation.layout == PairLayout::kInterleaved;
  const torch::Tensor moving = x.narrow(3, first, 2 * pairs);
  const torch::Tensor parts =
      interleaved ? moving.unflatten(-1, {pairs, 2})
                  : moving.unflatten(-1, {2, pairs}).transpose(-1, -2);
  const torch::Tensor x1 = parts.select(-1, 0), x2 = parts.select(-1, 1);
  const torch::Tensor a = x1 * cos - x2 * sin, b = x1 * sin + x2 * cos;
  const torch::Tensor rotated = interleaved
                                    ? torch::stack({a, b}, -1).flatten(-2)
                                    : torch::cat({a, b}, -1);
  if (2 * pairs == x.size(3)) return rotated;
  const int64_t after = first + 2 * pairs;
  return torch::cat(
      {x.narrow(3, 0, first), rotated, x.narrow(3, after, x.size(3) - after)},
      -1);
}

// x [B, H, L, D] times rows [H or 1, buckets, D], gathered at buckets [L, L].
torch::Tensor Gathered(const torch::Tensor& x, const torch::Tensor& rows,
                       const torch::Tensor& buckets) {
  const torch::Tensor products = torch::matmul(x, rows.transpose(1, 2));
  return products.gather(
      3, buckets.expand({x.size(0), x.size(1), x.size(2), buckets.size(1)}));
}

}  // namespace

torch::Tensor MaterialisedAttention::operator()(const torch::Tensor& q,
                                                const torch::Tensor& k,
                                                const torch::Tensor& v,
                                                const EncodingValues& encoding,
                                                const AttentionCall& call) {
  const int64_t length = q.size(2);
  const Shape shape =
      Shape::SelfAttention(q.size(1), q.size(3), length, call.causal);
  if (!by_length_.contains(length)) {
    torch::NoGradGuard no_grad;
    by_length_[length] =
        MakeConstants(encoding, shape, call.causal, q.scalar_type());
  }
  const Constants& constants = by_length_.at(length);
  const Terms& terms = constants.terms;
  const TermTensors arrays = encoding.params.empty()
                                 ? constants.fixed
                                 : LowerTerms(encoding, shape, q.scalar_type());

  // s = scale g[m] (rot(q).rot(k) + a.c + q.Tq[b] + k.Tk[b]) + B[b]
  torch::Tensor scale = torch::full({1, 1, 1}, terms.scale.scale, q.options());
  if (const torch::Tensor& rows = arrays[TermArray::kScale]; rows.defined()) {
    scale = scale *
            rows.narrow(1, -terms.scale.first_position, length).unsqueeze(2);
  }
  const torch::Tensor scaled = q * scale;
  torch::Tensor rq = scaled, rk = k;
  if (terms.rotate) {
    const CosSin cos_sin =
        terms.rotate->trains
            ? CosSinOf(*terms.rotate, constants.coordinates, constants.decay,
                       arrays[TermArray::kTheta])
            : constants.cos_sin;
    rq = Rotated(scaled, cos_sin.q_cos, cos_sin.q_sin, *terms.rotate);
    rk = Rotated(k, cos_sin.k_cos, cos_sin.k_sin, *terms.rotate);
  }
  torch::Tensor scores = torch::matmul(rq, rk.transpose(2, 3));
  if (terms.extra_dot) {
    const auto rows = [&](TermArray which) {
      return arrays[which].narrow(1, -terms.extra_dot->first_position, length);
    };
    scores += torch::matmul(rows(TermArray::kQRows) * scale,
                            rows(TermArray::kKRows).transpose(1, 2));
  }
  if (terms.q_table) {
    scores += Gathered(scaled, arrays[TermArray::kQTable], constants.q_buckets);
  }
  if (terms.k_table) {
    scores += Gathered(k, arrays[TermArray::kKTable], constants.k_buckets.t())
                  .transpose(2, 3) *
              scale;
  }
  if (constants.bias.defined()) {
    scores += constants.bias;
  } else {
    if (terms.bias) scores += BiasOf(constants, arrays, length);
    if (constants.mask.defined()) scores += constants.mask;
  }

  // o = unrot_m( sum_j p_ij (rot_n(v_j) + Tv[b]) ), tables by bucket
  const torch::Tensor p = torch::softmax(scores, -1);
  const CosSin& cos_sin = constants.value_cos_sin;
  torch::Tensor out = torch::matmul(
      p, terms.rotate_values ? Rotated(v, cos_sin.k_cos, cos_sin.k_sin,
                                       terms.rotate_values->rotation)
                             : v);
  if (terms.v_table) {
    const torch::Tensor& table = arrays[TermArray::kVTable];
    const torch::Tensor by_bucket =
        torch::zeros({q.size(0), q.size(1), length, table.size(1)}, q.options())
            .scatter_add(3, constants.v_buckets.expand_as(p), p);
    out = out + torch::matmul(by_bucket, table);
  }
  if (terms.rotate_values && terms.rotate_values->relative) {
    out = Rotated(out, cos_sin.q_cos, -cos_sin.q_sin,
                  terms.rotate_values->rotation);
  }
  return out;
}

}  // namespace locus::lab
