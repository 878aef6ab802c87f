// Adds up the results of the tasks of a backward pass, in a fixed order.
// Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_REDUCE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_REDUCE_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_REDUCE_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_REDUCE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/backward/rotation-inl.h"
#include "kernels/backward/sums-inl.h"
#include "kernels/terms/log2_domain.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// Stores the gradients of the keys and values of (b, kv head): the sum over the
// tasks that share them, in order, rotated back. d_k is scratch for a key
// followed by a value: [depth + value_dim].
inline void FinishKeys(const BackwardPacked& operands, const BackwardCall& args,
                       int64_t b, int64_t kv, std::span<const KeySums> tasks,
                       std::span<TermSums> term_sums, float* d_k) noexcept {
  const BackwardTables& bp = operands.tables;
  const Call& call = bp.packed.call;
  const CallSizes& s = call.sizes;
  const Tokens& tokens = call.Keys(b);
  const float ln2 = static_cast<float>(1.0 / kLog2E);
  const int64_t depth = bp.packed.depth;
  float* d_v = d_k + depth;
  const ThetaGrad theta(call, b);
  for (int64_t j = 0; j < tokens.size(); ++j) {
    std::fill_n(d_k, depth + s.value_dim, 0.0F);
    for (size_t n = 0; n < tasks.size(); ++n) {
      const float* k = tasks[n].keys.data() + j * bp.depth_stride;
      const float* v = tasks[n].values.data() + j * bp.value_pad;
      AddScaled(1.0F, k, s.head_dim, d_k);
      AddScaled(1.0F, v, s.value_dim, d_v);
      if (bp.packed.extra > 0) {
        const int64_t row = tokens.position[static_cast<size_t>(j)] -
                            call.terms.extra_dot->first_position;
        float* sums = term_sums[n].extra_k.data() + row * bp.packed.extra;
        for (int64_t e = 0; e < bp.packed.extra; ++e) {
          sums[e] += ln2 * k[s.head_dim + e];
        }
      }
    }
    SetScaled(ln2, d_k, depth, d_k);
    if (call.terms.rotate) {
      if (call.terms.rotate->trains) {
        theta.Add(tokens.Position(j),
                  operands.KeyRows(b, kv * bp.packed.group).From(j), d_k, 1.0,
                  term_sums.front().theta);
      }
      const RowAngles angles = bp.packed.KeyAngles(b, kv, j);
      RotateRow(*call.terms.rotate, angles.cos, angles.sin, d_k, d_k,
                /*back=*/true);
    }
    for (const KeySums& sums : tasks) {
      if (sums.plain_keys.size() == 0) continue;
      AddScaled(1.0F, sums.plain_keys.data() + j * bp.dim_stride, s.head_dim,
                d_k);
    }
    RotateValues(call, bp.packed.ValueAngles(b, kv, j), d_v,
                 /*back=*/true);
    const int64_t source = tokens.source[static_cast<size_t>(j)];
    kernels::StoreRow(*args.d_k, b, kv, source, d_k, s.head_dim);
    kernels::StoreRow(*args.d_v, b, kv, source, d_v, s.value_dim);
  }
}

// Adds rows by offset, times `factor`, to a gradient [heads or 1, buckets,
// dim].
inline void AddRowsByOffset(const float* rows, int64_t stride,
                            const OffsetMap& map, double factor, int64_t h,
                            Tensor& grad) {
  const int64_t dim = grad.size(2);
  double* to = grad.MutableData<double>() +
               (grad.size(0) == 1 ? 0 : h) * grad.size(1) * dim;
  for (int64_t e = 0; e < map.width(); ++e) {
    double* row = to + map.bucket[static_cast<size_t>(e)] * dim;
    for (int64_t d = 0; d < dim; ++d) {
      row[d] += factor * static_cast<double>(rows[e * stride + d]);
    }
  }
}

// Adds the sums of one task to the gradient of the key bias.
inline void AddKeyBiasGrad(const Call& call, const TermSums& g, int64_t b,
                           int64_t h, Tensor& grad) {
  const std::vector<int64_t>& source = call.Keys(b).source;
  double* to =
      grad.MutableData<double>() + ((grad.size(0) == 1 ? 0 : b) * grad.size(1) +
                                    (grad.size(1) == 1 ? 0 : h)) *
                                       grad.size(2);
  for (size_t j = 0; j < source.size(); ++j) {
    to[source[j]] += static_cast<double>(g.key_bias.data()[j]);
  }
}

// Adds row i of a task, whose first query is `first`, to the gradient of a pair
// bias that several tasks share.
inline void AddPairBiasRow(const Call& call, const TermSums& g, int64_t b,
                           int64_t h, int64_t first, int64_t i, Tensor& grad) {
  const int64_t k_len = call.sizes.k_len;
  const std::vector<int64_t>& keys = call.Keys(b).source;
  const int64_t query = call.Queries(b).source[static_cast<size_t>(first + i)];
  const auto pick = [&grad](int axis, int64_t at) {
    return grad.size(axis) == 1 ? 0 : at;
  };
  const float* from = g.pair_bias.data() + i * k_len;
  float* to = grad.MutableData<float>() +
              ((pick(0, b) * grad.size(1) + pick(1, h)) * grad.size(2) +
               pick(2, query)) *
                  k_len;
  for (size_t j = 0; j < keys.size(); ++j) to[keys[j]] += from[j];
}

// d z_h = -sum_i exp(z_h - lse_i) delta_i: a sink takes part in the softmax but
// has no value.
inline void AddSinkGrads(const Call& call, const BackwardCall& args,
                         const std::vector<float>& delta) {
  const CallSizes& s = call.sizes;
  double* to = args.operands->sinks.MutableData<double>();
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.q_heads; ++h) {
      const double sink = call.plan.options.sinks.At(h);
      for (int64_t i = 0; i < s.q_len; ++i) {
        const int64_t row = (b * s.q_heads + h) * s.q_len + i;
        if (args.lse[row] == kMinusInf) continue;
        to[h] -= std::exp(sink - static_cast<double>(args.lse[row])) *
                 static_cast<double>(delta[static_cast<size_t>(row)]);
      }
    }
  }
}

// Adds the sums of one task to the gradients of the terms.
inline void AddTermGrads(const BackwardTables& bp, const TermSums& g, int64_t h,
                         TermGrads& grads) noexcept {
  const PackedTables& packed = bp.packed;
  const Terms& terms = packed.call.terms;
  const double ln2 = 1.0 / kLog2E;
  if (terms.scale.rows.defined()) {
    double* to = grads.scale.MutableData<double>() +
                 (grads.scale.size(0) == 1 ? 0 : h) * grads.scale.size(1);
    for (size_t n = 0; n < g.scale.size(); ++n) to[n] += g.scale[n];
  }
  if (!g.theta.empty()) {
    const size_t head = terms.rotate->heads == 1
                            ? 0
                            : static_cast<size_t>(packed.call.KvHead(h));
    for (size_t n = 0; n < g.theta.size(); ++n) {
      grads.rotate->theta[head * g.theta.size() + n] += g.theta[n];
    }
  }
  if (terms.q_table) {
    AddRowsByOffset(g.q_table.data(), bp.table_stride, packed.q_table->map, ln2,
                    h, grads.q_table);
  }
  if (terms.v_table) {
    AddRowsByOffset(g.v_table.data(), bp.value_pad, packed.v_table->map, 1.0, h,
                    grads.v_table);
  }
  if (terms.k_table) {
    Tensor& d = grads.k_table;
    const int64_t dim = d.size(2), count = d.size(1);
    double* to =
        d.MutableData<double>() + (d.size(0) == 1 ? 0 : h) * count * dim;
    for (size_t c = 0; c < g.key_row.size(); ++c) to[c] += g.key_row[c];
    for (int64_t t = 0; packed.HasKeyTable() && t < count; ++t) {
      const float* row = g.k_table.data() + t * bp.dim_stride;
      for (int64_t c = 0; c < dim; ++c) {
        to[t * dim + c] += static_cast<double>(row[c]);
      }
    }
  }
  if (terms.extra_dot) {
    const auto add = [&](const SumBuffer& from, Tensor& d) {
      double* to = d.MutableData<double>() +
                   (d.size(0) == 1 ? 0 : h) * d.size(1) * d.size(2);
      for (int64_t n = 0; n < from.size(); ++n) {
        to[n] += static_cast<double>(from.data()[n]);
      }
    };
    add(g.extra_q, grads.extra_dot->q_rows);
    add(g.extra_k, grads.extra_dot->k_rows);
  }
  if (!terms.bias) return;
  if (std::holds_alternative<BiasTable>(*terms.bias)) {
    Tensor& d = std::get<BiasTableGrads>(*grads.bias).values;
    double* to = d.MutableData<double>() + (d.size(0) == 1 ? 0 : h) * d.size(1);
    for (size_t n = 0; n < g.special.size(); ++n) to[n] += g.special[n];
    for (size_t e = 0; e < g.bias.size(); ++e) {
      to[packed.bias->map().bucket[e]] += g.bias[e];
    }
  } else if (std::holds_alternative<BiasRamp>(*terms.bias)) {
    // B = -slope |m - n|
    auto& d = std::get<BiasRampGrads>(*grads.bias);
    double past = g.past, future = g.future;
    for (size_t e = 0; e < g.bias.size(); ++e) {
      const double offset = static_cast<double>(packed.bias->map().max_offset -
                                                static_cast<int64_t>(e));
      (offset > 0.0 ? past : future) -= g.bias[e] * std::abs(offset);
    }
    d.past[static_cast<size_t>(h)] += past;
    d.future[static_cast<size_t>(h)] += future;
  } else if (g.profile) {
    auto& d = std::get<BiasProfileGrads>(*grads.bias);
    const ProfileByOffset& by_offset = *packed.bias->profile();
    const int64_t reach = by_offset.reach();
    for (int64_t offset = -reach; offset <= reach; ++offset) {
      d.distance[static_cast<size_t>(std::abs(offset))] +=
          g.profile_by_offset[static_cast<size_t>(by_offset.Entry(offset))];
    }
    for (size_t n = 0; n < d.row_gain.size(); ++n) {
      d.row_gain[n] += g.profile->row_gain[n];
    }
    for (int64_t n = 0; n < d.base.NumElements(); ++n) {
      d.base.MutableData<double>()[n] += g.profile->base.Data<double>()[n];
      d.slope.MutableData<double>()[n] += g.profile->slope.Data<double>()[n];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_REDUCE_INL_H_
