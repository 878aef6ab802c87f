// Linear attention with rotary positions, computed with running sums.
//
//   numerator_i   = (R_m phi(q_i)).S,  S = sum_j (R_n phi(k_j)) v_j^T   [F, Dv]
//   denominator_i = phi(q_i).z,        z = sum_j phi(k_j)               [F]
//   o_i = numerator_i / denominator_i
//
// Causal attention keeps S and z of the keys seen so far; bidirectional
// attention sums all keys first. Either way every token is visited once.
#include "locus/linear_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/fail.h"
#include "core/threads.h"
#include "terms/call.h"

namespace locus {
namespace {

// Why a term cannot be factored, or nullptr.
const char* Refusal(const Terms& terms) {
  if (terms.q_table || terms.k_table) {
    return "its tables couple a token with the offset of each pair";
  }
  if (terms.bias)
    return "its bias is added to single logits inside the softmax";
  if (terms.extra_dot) return "its position dot product is added to the logits";
  if (terms.v_table) return "its values depend on the offset of each pair";
  if (terms.rotate_values) return "its values are rotated";
  if (terms.rotate && !terms.rotate->log_decay.empty()) {
    return "its decay depends on the offset of each pair";
  }
  if (terms.scale.rows.defined()) return "its temperature acts on logits";
  return nullptr;
}

// phi of every row of x [B, H, L, D], and the same rotated by its position.
struct Features {
  std::vector<double> plain, rotated;  // [B, H, L, F]
};

Features FeaturesOf(const Tensor& x, const FeatureMap& phi, int64_t features,
                    const std::optional<Rotation>& rotation,
                    const std::function<int64_t(int64_t, int64_t)>& position) {
  const int64_t batch = x.size(0), heads = x.size(1), length = x.size(2);
  const int64_t dim = x.size(3);
  const std::vector<double> rows = x.ToVector();
  Features out;
  out.plain.resize(static_cast<size_t>(batch * heads * length * features));
  for (int64_t r = 0; r < batch * heads * length; ++r) {
    CheckInterrupt();
    std::span<double> row(out.plain.data() + r * features,
                          static_cast<size_t>(features));
    phi.map({rows.data() + r * dim, static_cast<size_t>(dim)}, row);
    for (double value : row) {
      if (value < 0.0)
        Fail("a feature map must not be negative, got {}", value);
    }
  }
  out.rotated = out.plain;
  if (!rotation) return out;
  const size_t pairs = static_cast<size_t>(rotation->NumPairs());
  std::vector<double> cos(pairs), sin(pairs);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        rotation->CosSin(position(b, i), cos.data(), sin.data(),
                         h / (heads / rotation->heads));
        double* row =
            out.rotated.data() + ((b * heads + h) * length + i) * features;
        for (size_t p = 0; p < pairs; ++p) {
          double& x0 = row[rotation->FirstOfPair(static_cast<int64_t>(p))];
          double& x1 = row[rotation->SecondOfPair(static_cast<int64_t>(p))];
          const double turned = x0 * cos[p] - x1 * sin[p];
          x1 = x0 * sin[p] + x1 * cos[p];
          x0 = turned;
        }
      }
    }
  }
  return out;
}

// S and z of one head.
class RunningSums {
 public:
  RunningSums(int64_t features, int64_t value_dim)
      : value_dim_(value_dim),
        s_(static_cast<size_t>(features * value_dim)),
        z_(static_cast<size_t>(features)) {}

  void Add(const double* plain, const double* rotated, const double* v) {
    for (size_t f = 0; f < z_.size(); ++f) {
      z_[f] += plain[f];
      double* row = s_.data() + static_cast<int64_t>(f) * value_dim_;
      for (int64_t d = 0; d < value_dim_; ++d) row[d] += rotated[f] * v[d];
    }
  }

  // Leaves zeros if no key has been seen.
  void Read(const double* plain, const double* rotated, double* out) const {
    double denominator = 0.0;
    for (size_t f = 0; f < z_.size(); ++f) denominator += plain[f] * z_[f];
    if (denominator == 0.0) return;
    for (size_t f = 0; f < z_.size(); ++f) {
      const double* row = s_.data() + static_cast<int64_t>(f) * value_dim_;
      const double weight = rotated[f] / denominator;
      for (int64_t d = 0; d < value_dim_; ++d) out[d] += weight * row[d];
    }
  }

 private:
  int64_t value_dim_;
  std::vector<double> s_, z_;
};

}  // namespace

FeatureMap FeatureMap::EluPlusOne() {
  return {.features = 0,
          .map = [](std::span<const double> x, std::span<double> phi) {
            for (size_t d = 0; d < x.size(); ++d) {
              phi[d] = x[d] > 0.0 ? x[d] + 1.0 : std::exp(x[d]);
            }
          }};
}

Tensor LinearAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const Encoding& encoding,
                       const LinearAttentionOptions& options) {
  AttentionOptions call;
  call.causal = options.causal;
  call.q_positions = options.q_positions;
  call.k_positions = options.k_positions;
  const CallSizes s = CheckCall(q, k, v, call);
  const CallMask mask(s, call);
  const int64_t features = options.feature_map.features == 0
                               ? s.head_dim
                               : options.feature_map.features;
  if (!options.feature_map.map || features < 1) {
    Fail("a feature map needs a function and a positive size, got size {}",
         features);
  }
  // The rotation acts on features, so they are the head dim of the encoding.
  Shape shape = mask.ShapeOf(s, call);
  shape.head_dim = features;
  const Terms terms = encoding.Lower(shape).terms;
  if (const char* reason = Refusal(terms)) {
    Fail("linear attention cannot express '{}': {}", encoding.Name(), reason);
  }
  Validate(terms, shape);

  Tensor result =
      Tensor::Zeros(DType::kF64, {s.batch, s.q_heads, s.q_len, s.value_dim});
  // Without elements, any number of heads fits into memory: do not loop.
  if (result.NumElements() == 0) return result;
  const Features fq =
      FeaturesOf(q, options.feature_map, features, terms.rotate,
                 [&](int64_t b, int64_t i) { return mask.QPos(b, i); });
  const Features fk =
      FeaturesOf(k, options.feature_map, features, terms.rotate,
                 [&](int64_t b, int64_t j) { return mask.KPos(b, j); });
  const std::vector<double> values = v.ToVector();
  double* out = result.MutableData<double>();

  for (int64_t b = 0; b < s.batch; ++b) {
    // Queries and keys in the order of their positions.
    std::vector<int64_t> queries(static_cast<size_t>(s.q_len));
    std::vector<int64_t> keys(static_cast<size_t>(s.k_len));
    std::iota(queries.begin(), queries.end(), 0);
    std::iota(keys.begin(), keys.end(), 0);
    std::ranges::stable_sort(queries, {},
                             [&](int64_t i) { return mask.QPos(b, i); });
    std::ranges::stable_sort(keys, {},
                             [&](int64_t j) { return mask.KPos(b, j); });
    for (int64_t h = 0; h < s.q_heads; ++h) {
      const int64_t kv = b * s.kv_heads + h / (s.q_heads / s.kv_heads);
      RunningSums sums(features, s.value_dim);
      auto next = keys.begin();
      for (int64_t i : queries) {
        CheckInterrupt();
        while (next != keys.end() &&
               (!options.causal || mask.KPos(b, *next) <= mask.QPos(b, i))) {
          const int64_t at = kv * s.k_len + *next;
          sums.Add(fk.plain.data() + at * features,
                   fk.rotated.data() + at * features,
                   values.data() + at * s.value_dim);
          ++next;
        }
        const int64_t at = (b * s.q_heads + h) * s.q_len + i;
        sums.Read(fq.plain.data() + at * features,
                  fq.rotated.data() + at * features, out + at * s.value_dim);
      }
    }
  }
  return result;
}

}  // namespace locus
