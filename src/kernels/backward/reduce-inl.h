// Sums what the tasks of a backward pass found, in a fixed order. Compiled
// once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_REDUCE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_REDUCE_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_REDUCE_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_REDUCE_INL_H_
#endif

#include <span>
#include <vector>

#include "kernels/backward/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// The gradients of the keys and values of (b, kv head): the sum over the tasks
// that share them, in order, rotated back. The tasks' own sums are given back.
inline void FinishKeys(const BackwardPacked& bp, const BackwardCall& args,
                       int64_t b, int64_t kv, std::span<TaskGrads> tasks) {
  const Call& call = bp.packed.call;
  const CallSizes& s = call.sizes;
  const Tokens& tokens = call.Keys(b);
  const float ln2 = static_cast<float>(1.0 / kLog2E);
  const int64_t depth = bp.packed.depth;
  std::vector<float> d_k(static_cast<size_t>(depth));
  std::vector<float> d_v(static_cast<size_t>(s.value_dim));
  for (int64_t j = 0; j < tokens.size(); ++j) {
    std::fill(d_k.begin(), d_k.end(), 0.0F);
    std::fill(d_v.begin(), d_v.end(), 0.0F);
    for (TaskGrads& g : tasks) {
      const float* k = g.keys.data() + j * bp.depth_stride;
      const float* v = g.values.data() + j * bp.value_pad;
      AddScaled(1.0F, k, s.head_dim, d_k.data());
      AddScaled(1.0F, v, s.value_dim, d_v.data());
      if (!g.extra_k.empty()) {
        const int64_t row = tokens.position[static_cast<size_t>(j)] -
                            call.terms.extra_dot->first_position;
        for (int64_t e = 0; e < bp.packed.extra; ++e) {
          g.extra_k[static_cast<size_t>(row * bp.packed.extra + e)] +=
              ln2 * k[s.head_dim + e];
        }
      }
    }
    SetScaled(ln2, d_k.data(), depth, d_k.data());
    if (call.terms.rotate) {
      const RowAngles angles = bp.packed.KeyAngles(b, j);
      RotateRow(*call.terms.rotate, angles.cos, angles.sin, d_k.data(),
                d_k.data(), /*back=*/true);
    }
    for (const TaskGrads& g : tasks) {
      if (g.plain_keys.empty()) continue;
      AddScaled(1.0F, g.plain_keys.data() + j * s.head_dim, s.head_dim,
                d_k.data());
    }
    const int64_t row =
        (b * s.kv_heads + kv) * s.k_len + tokens.source[static_cast<size_t>(j)];
    kernels::StoreRow(*args.d_k, row, d_k.data(), s.head_dim);
    kernels::StoreRow(*args.d_v, row, d_v.data(), s.value_dim);
  }
  for (TaskGrads& g : tasks) {
    g.keys = FloatBuffer();
    g.values = FloatBuffer();
    g.plain_keys = std::vector<float>();
  }
}

// Adds rows by offset, times `factor`, to a gradient [heads or 1, buckets,
// dim].
inline void AddRowsByOffset(const std::vector<float>& rows, int64_t stride,
                            const OffsetMap& map, double factor, int64_t h,
                            Tensor& grad) {
  const int64_t dim = grad.size(2);
  double* to = grad.MutableData<double>() +
               (grad.size(0) == 1 ? 0 : h) * grad.size(1) * dim;
  for (int64_t e = 0; e < map.width(); ++e) {
    double* row = to + map.bucket[static_cast<size_t>(e)] * dim;
    for (int64_t d = 0; d < dim; ++d) {
      row[d] += factor *
                static_cast<double>(rows[static_cast<size_t>(e * stride + d)]);
    }
  }
}

// Adds what one task found to the gradients of the terms.
inline void AddTermGrads(const BackwardPacked& bp, const TaskGrads& g,
                         int64_t h, TermGrads& grads) {
  const Packed& packed = bp.packed;
  const Terms& terms = packed.call.terms;
  const double ln2 = 1.0 / kLog2E;
  if (terms.q_table) {
    AddRowsByOffset(g.q_table, bp.dim_stride, packed.q_table->map, ln2, h,
                    grads.q_table);
  }
  if (terms.v_table) {
    AddRowsByOffset(g.v_table, bp.value_pad, packed.v_table->map, 1.0, h,
                    grads.v_table);
  }
  if (terms.k_table) {
    Tensor& d = grads.k_table;
    const int64_t dim = d.size(2), count = d.size(1);
    double* to =
        d.MutableData<double>() + (d.size(0) == 1 ? 0 : h) * count * dim;
    for (size_t c = 0; c < g.key_row.size(); ++c) to[c] += g.key_row[c];
    if (!g.k_table.empty()) {
      for (int64_t t = 0; t < count; ++t) {
        for (int64_t c = 0; c < dim; ++c) {
          to[t * dim + c] += static_cast<double>(
              g.k_table[static_cast<size_t>(t * bp.dim_stride + c)]);
        }
      }
    }
  }
  if (terms.extra_dot) {
    const auto add = [&](const std::vector<float>& from, Tensor& d) {
      double* to = d.MutableData<double>() +
                   (d.size(0) == 1 ? 0 : h) * d.size(1) * d.size(2);
      for (size_t n = 0; n < from.size(); ++n) {
        to[n] += static_cast<double>(from[n]);
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
