#include "lab/materialised.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lab/interop.h"
#include "locus/error.h"
#include "locus/terms.h"

namespace locus::lab {
namespace {

using Constants = MaterialisedAttention::Constants;

// Terms whose values are trained, as tensors that carry gradients.
struct TrainedTerms {
  torch::Tensor a = {}, c = {};  // extra_dot: [heads, L, E]
  torch::Tensor q_table = {};    // [heads or 1, buckets, D]
  torch::Tensor k_table = {};
  torch::Tensor v_table = {};
  torch::Tensor bias = {};  // [heads, buckets], or [heads, L, L] if no buckets
};

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
        // Masked pairs need some bucket that exists.
        return static_cast<double>(causal && j > i ? map(i, i) : map(i, j));
      },
      torch::kLong);
}

void FillRotation(const Rotation& rotation, int64_t length,
                  torch::ScalarType type, Constants& out) {
  const int64_t pairs = rotation.NumPairs();
  torch::Tensor cos = torch::empty({length, pairs}, torch::kDouble);
  torch::Tensor sin = torch::empty({length, pairs}, torch::kDouble);
  torch::Tensor decay = torch::zeros({length, pairs}, torch::kDouble);
  for (int64_t m = 0; m < length; ++m) {
    rotation.CosSin(m, cos[m].data_ptr<double>(), sin[m].data_ptr<double>());
    for (size_t p = 0; p < rotation.log_decay.size(); ++p) {
      // From the middle of the sequence, so that neither side overflows.
      decay[m][static_cast<int64_t>(p)] =
          rotation.log_decay[p] * static_cast<double>(m - length / 2);
    }
  }
  out.interleaved = rotation.layout == PairLayout::kInterleaved;
  out.first_channel = rotation.first_channel;
  out.q_cos = (cos * decay.exp()).to(type);
  out.q_sin = (sin * decay.exp()).to(type);
  out.k_cos = (cos * (-decay).exp()).to(type);
  out.k_sin = (sin * (-decay).exp()).to(type);
}

// The terms of fixed encodings, and the buckets of trained ones.
Constants MakeConstants(const Terms& terms, bool trained, bool causal,
                        const torch::Tensor& q) {
  const int64_t heads = q.size(1), length = q.size(2);
  const torch::ScalarType type = q.scalar_type();
  Constants out;
  out.scale = terms.scale.scale;
  if (causal) {
    out.mask = ByPair(
        length,
        [](int64_t i, int64_t j) {
          return j > i ? -std::numeric_limits<double>::infinity() : 0.0;
        },
        type);
  }
  if (terms.rotate) FillRotation(*terms.rotate, length, type, out);
  const auto buckets = [&](const auto& term) {
    return term ? BucketsOf(term->buckets, length, causal) : torch::Tensor();
  };
  out.q_buckets = buckets(terms.q_table);
  out.k_buckets = buckets(terms.k_table);
  out.v_buckets = buckets(terms.v_table);
  if (!terms.bias) return out;
  if (trained) {
    const auto* table = std::get_if<BiasTable>(&*terms.bias);
    if (table) out.bias_buckets = BucketsOf(table->buckets, length, causal);
    return out;
  }
  std::vector<torch::Tensor> biases;
  for (int64_t h = 0; h < heads; ++h) {
    biases.push_back(ByPair(
        length,
        [&](int64_t i, int64_t j) {
          return causal && j > i ? 0.0 : BiasAt(*terms.bias, h, i, j);
        },
        type));
  }
  out.bias = torch::stack(biases);
  if (causal) out.bias += out.mask;
  return out;
}

torch::Tensor WithHeads(const torch::Tensor& table) {
  return table.dim() == 2 ? table.unsqueeze(0) : table;
}

// Distances |m - n|, [L, L].
torch::Tensor Distances(const torch::Tensor& q) {
  const torch::Tensor at = torch::arange(q.size(2), q.options());
  return (at.unsqueeze(1) - at.unsqueeze(0)).abs();
}

torch::Tensor FireBias(const std::vector<torch::Tensor>& p,
                       const torch::Tensor& q) {
  const torch::Tensor &w1 = p[0], &b1 = p[1], &w2 = p[2], &b2 = p[3];
  const auto psi = [&p](const torch::Tensor& x) {
    return torch::log1p(p[4].abs() * x);
  };
  const torch::Tensor at = torch::arange(q.size(2), q.options()).unsqueeze(1);
  constexpr double kEpsilon = 1e-6;  // Fire's default
  const torch::Tensor x =
      psi(Distances(q)) / (psi(torch::maximum(at, p[5].abs())) + kEpsilon);
  const torch::Tensor hidden = torch::relu(x.unsqueeze(-1) * w1 + b1);
  return torch::linear(hidden, w2, b2).permute({2, 0, 1});
}

// How each encoding makes its terms from its parameters; see
// docs/encodings.md. The parameters come in the order of Encoding::Params().
TrainedTerms MakeTrained(const EncodingValues& encoding, const Constants& fixed,
                         const torch::Tensor& q) {
  const std::string name(encoding.form->Name());
  const std::vector<torch::Tensor>& p = encoding.params;
  TrainedTerms out;
  if (p.empty()) return out;
  if (name == "t5" || name == "swin") {
    out.bias = p[0].t();
  } else if (name == "shaw") {
    if (fixed.q_buckets.defined()) out.q_table = WithHeads(p.front());
    if (fixed.v_buckets.defined()) out.v_table = WithHeads(p.back());
  } else if (name == "key-offset") {
    out.q_table = WithHeads(p[0]);
  } else if (name == "deberta") {
    if (fixed.q_buckets.defined()) out.q_table = p.front();
    if (fixed.k_buckets.defined()) out.k_table = p.back();
  } else if (name == "transformer-xl") {
    const torch::Tensor &r = p[0], &u = p[1], &v = p[2];
    out.q_table = r;
    out.k_table = u.unsqueeze(1);
    out.bias = fixed.scale * torch::matmul(r, v.unsqueeze(2)).squeeze(2);
  } else if (name == "tupe" && p.size() <= 3) {
    out.a = p[0].narrow(1, 0, q.size(2));
    out.c = p[1].narrow(1, 0, q.size(2));
    if (p.size() == 3) out.bias = p[2];
  } else if (name == "fire") {
    out.bias = FireBias(p, q);
  } else {
    throw Error(fmt::format(
        "{} has no materialised form in the lab; the fused path serves it",
        name));
  }
  return out;
}

// (x1, x2) -> (x1 cos - x2 sin, x1 sin + x2 cos), pair by pair.
torch::Tensor Rotated(const torch::Tensor& x, const torch::Tensor& cos,
                      const torch::Tensor& sin, const Constants& constants) {
  const int64_t pairs = cos.size(1), first = constants.first_channel;
  const torch::Tensor moving = x.narrow(3, first, 2 * pairs);
  const auto join = [&](const torch::Tensor& a, const torch::Tensor& b) {
    return constants.interleaved ? torch::stack({a, b}, -1).flatten(-2)
                                 : torch::cat({a, b}, -1);
  };
  const torch::Tensor parts =
      constants.interleaved
          ? moving.unflatten(-1, {pairs, 2})
          : moving.unflatten(-1, {2, pairs}).transpose(-1, -2);
  const torch::Tensor x1 = parts.select(-1, 0), x2 = parts.select(-1, 1);
  const torch::Tensor turned = join(x1 * cos - x2 * sin, x1 * sin + x2 * cos);
  if (2 * pairs == x.size(3)) return turned;
  const int64_t after = first + 2 * pairs;
  return torch::cat(
      {x.narrow(3, 0, first), turned, x.narrow(3, after, x.size(3) - after)},
      -1);
}

// x [B, H, L, D] against rows [H or 1, buckets, D], gathered at [L, L].
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
  if (!by_length_.contains(length)) {
    torch::NoGradGuard no_grad;
    const Lowered lowered = encoding.Build()->Lower(
        Shape::SelfAttention(q.size(1), q.size(3), length, call.causal));
    by_length_[length] = MakeConstants(
        lowered.terms, /*trained=*/!encoding.params.empty(), call.causal, q);
  }
  const Constants& fixed = by_length_.at(length);
  const TrainedTerms terms = MakeTrained(encoding, fixed, q);

  // s = scale (rot(q).rot(k) + a.c + q.Tq[b] + k.Tk[b]) + B[b]
  const torch::Tensor scaled = q * fixed.scale;
  const bool rotates = fixed.q_cos.defined();
  const torch::Tensor rq =
      rotates ? Rotated(scaled, fixed.q_cos, fixed.q_sin, fixed) : scaled;
  const torch::Tensor rk =
      rotates ? Rotated(k, fixed.k_cos, fixed.k_sin, fixed) : k;
  torch::Tensor scores = torch::matmul(rq, rk.transpose(2, 3));
  if (terms.a.defined()) {
    scores += torch::matmul(terms.a * fixed.scale, terms.c.transpose(1, 2));
  }
  if (terms.q_table.defined()) {
    scores += Gathered(scaled, terms.q_table, fixed.q_buckets);
  }
  if (terms.k_table.defined()) {
    scores += Gathered(k * fixed.scale, terms.k_table, fixed.k_buckets.t())
                  .transpose(2, 3);
  }
  if (terms.bias.defined()) {
    scores += fixed.bias_buckets.defined()
                  ? torch::embedding(terms.bias.t(), fixed.bias_buckets)
                        .permute({2, 0, 1})
                  : terms.bias;
  }
  if (fixed.bias.defined()) {
    scores += fixed.bias;
  } else if (fixed.mask.defined()) {
    scores += fixed.mask;
  }

  // o = sum_j p_ij (v_j + Tv[b]), the second sum by bucket
  const torch::Tensor p = torch::softmax(scores, -1);
  torch::Tensor out = torch::matmul(p, v);
  if (terms.v_table.defined()) {
    const torch::Tensor by_bucket =
        torch::zeros({q.size(0), q.size(1), length, terms.v_table.size(1)},
                     q.options())
            .scatter_add(3, fixed.v_buckets.expand_as(p), p);
    out = out + torch::matmul(by_bucket, terms.v_table);
  }
  return out;
}

}  // namespace locus::lab
