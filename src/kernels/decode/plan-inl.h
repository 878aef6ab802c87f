// What the tasks of one decoding share: queries, angles, tables by rel. Nothing
// here is as large as the keys. Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_DECODE_PLAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_DECODE_PLAN_INL_H_
#undef LOCUS_SRC_KERNELS_DECODE_PLAN_INL_H_
#else
#define LOCUS_SRC_KERNELS_DECODE_PLAN_INL_H_
#endif

#include <cmath>
#include <optional>
#include <vector>

#include "core/buffer.h"
#include "core/fail.h"
#include "core/threads.h"
#include "kernels/plan/call.h"
#include "kernels/rotary/rotate_row-inl.h"
#include "kernels/rotary/span_angles-inl.h"
#include "kernels/simd/stream-inl.h"
#include "kernels/terms/offset_map.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

using kernels::Call;
using kernels::Interval;
using kernels::RelMap;
using kernels::RotationTable;
using kernels::Run;
using kernels::Tokens;

// Scores live in the domain of exp2: every logit is multiplied by log2(e).

// Rows by rel, with a vector's room to read past either end, where they
// saturate: [count][kLanesI + width + kLanesI].
struct RelRows {
  RelRows(const BucketMap& buckets, const Shape& shape, int64_t count)
      : map(buckets, shape),
        stride(map.width() + 2 * kLanesI),
        rows(count * stride) {}

  // The values of a row: width of them, to be followed by Pad.
  float* Values(int64_t n) { return rows.data() + n * stride + kLanesI; }
  void Pad(int64_t n) {
    float* row = rows.data() + n * stride;
    std::fill_n(row, kLanesI, row[kLanesI]);
    std::fill_n(row + kLanesI + map.width(), kLanesI,
                row[kLanesI + map.width() - 1]);
  }
  // Where a vector whose first lane is rel starts.
  const float* At(int64_t n, int64_t rel) const {
    const int64_t at = std::clamp<int64_t>(rel - map.first + kLanesI, 0,
                                           map.width() + kLanesI);
    return rows.data() + n * stride + at;
  }

  RelMap map;
  int64_t stride;
  FloatBuffer rows;
};

// Whether the offset alone decides the bucket.
inline bool ByOffset(const BucketMap& map) { return !map.grid && !map.special; }

// A table [heads or 1, n, dim] as rows that Rows can read.
inline Rows TableRows(const Tensor& t) {
  const std::vector<int64_t>& s = t.strides();
  return Rows(Tensor::Borrow(
      t.dtype(), {1, t.size(0), t.size(1), t.size(2)}, {0, s[0], s[1], s[2]},
      t.dtype() == DType::kF64   ? static_cast<const void*>(t.Data<double>())
      : t.dtype() == DType::kF32 ? static_cast<const void*>(t.Data<float>())
                                 : t.Data<uint16_t>()));
}

// Queries [first, first + count) of every sequence and head. Row r of key head
// kv is query first + r % count of head kv * group + r / count.
struct Plan {
  Plan(const Call& c, bool keys_rotated, int64_t first_query, int64_t count,
       int n_threads);

  int64_t Head(int64_t kv, int64_t r) const { return kv * group + r / count; }
  int64_t Query(int64_t r) const { return first + r % count; }
  int64_t QueryPosition(int64_t b, int64_t r) const {
    return call.Queries(b).position[static_cast<size_t>(Query(r))];
  }
  // Row r of key head kv of sequence b among all of them.
  int64_t RowIndex(int64_t b, int64_t kv, int64_t r) const {
    return (b * call.sizes.kv_heads + kv) * rows + r;
  }
  // Queries times scale_i * log2(e): [rows][dim_pad], rotated unless the
  // rotation is relative.
  const float* Queries(int64_t b, int64_t kv) const {
    return queries.data() + RowIndex(b, kv, 0) * dim_pad;
  }
  float ScaleOf(int64_t position) const {
    return static_cast<float>(call.terms.scale.At(position) * kLog2E);
  }
  size_t Sequence(int64_t b) const {
    return call.shared ? 0 : static_cast<size_t>(b);
  }
  // Cosines of a span for query n of the plan, [pairs]; sines follow.
  const float* SpanAngles(int64_t b, int64_t span, int64_t n) const {
    return span_angles[Sequence(b)].data() +
           (span * count + n) * 2 * call.terms.rotate->NumPairs();
  }

  const Call& call;
  int64_t first, count, group, rows;
  int64_t dim_pad, value_pad;  // head_dim and value_dim in whole vectors
  bool direct_keys = false;    // keys can be read where they lie
  bool direct_values = false;
  bool paired_values = false;  // sums of values are in the order of PromotePart
  // u.k_j for every offset is (q + u).k_j: a key table of one bucket moves into
  // the query where nothing rotates.
  bool fold_key_row = false;
  KeyRotation key_rotation = KeyRotation::kNone;
  // Keys can be turned as they are loaded: every channel rotates, in whole
  // vectors, and nothing else needs them.
  bool whole_rotation = false;

  FloatBuffer queries;
  std::vector<RotationTable> k_angles;         // kAbsolute
  FloatBuffer key_angles;                      // kRelative: as SpanAngles
  std::vector<std::vector<Span>> spans;        // one list a sequence
  std::vector<FloatBuffer> span_angles;        // [spans][count][2][pairs]
  std::optional<RelRows> bias;                 // one row a head
  std::optional<RelRows> q_table;              // one row a RowIndex
  std::optional<RelMap> k_map, v_map;          // of tables by offset
  std::optional<Rows> q_rows, k_rows, v_rows;  // of the tables
  std::optional<Rows> extra_q, extra_k;        // of extra_dot
  FloatBuffer plain;                           // [RowIndex][dim_pad], scaled

 private:
  void ChooseRotation(bool keys_rotated);
  void LoadQueries();
  void MakeBias(int threads);
  void MakeQueryTable(int threads);
};

inline Plan::Plan(const Call& c, bool keys_rotated, int64_t first_query,
                  int64_t n, int threads)
    : call(c),
      first(first_query),
      count(n),
      group(c.sizes.q_heads / c.sizes.kv_heads),
      rows(group * n),
      dim_pad(AlignUp(c.sizes.head_dim, kLanesI)),
      value_pad(AlignUp(c.sizes.value_dim, kLanesI)) {
  const Terms& terms = call.terms;
  fold_key_row =
      terms.k_table && terms.k_table->buckets.count == 1 && !terms.rotate;
  const auto streams = [](const Rows& x) {
    return x.dtype() != DType::kF64 && x.unit_stride() &&
           x.dim() % kLanesI == 0;
  };
  ChooseRotation(keys_rotated);
  direct_keys = streams(call.k) &&
                (key_rotation == KeyRotation::kNone ||
                 key_rotation == KeyRotation::kDone) &&
                (!terms.k_table || fold_key_row);
  direct_values = streams(call.v);
  paired_values = direct_values && call.v.dtype() == DType::kBF16;
  if (terms.rotate) {
    const Rotation& r = *terms.rotate;
    whole_rotation = streams(call.k) && !terms.k_table &&
                     r.rotary_dim == c.sizes.head_dim &&
                     r.rotary_dim % kPaired == 0;
  }
  LoadQueries();
  if (key_rotation == KeyRotation::kRelative) {
    key_angles = SpanKeyAngles(*terms.rotate);
    for (size_t b = 0; b < spans.size(); ++b) {
      span_angles.push_back(SpanQueryAngles(
          *terms.rotate, spans[b],
          std::span(call.queries[b].position)
              .subspan(static_cast<size_t>(first), static_cast<size_t>(n))));
    }
  }
  if (terms.extra_dot) {
    extra_q = TableRows(terms.extra_dot->q_rows);
    extra_k = TableRows(terms.extra_dot->k_rows);
  }
  if (terms.q_table) {
    q_rows = TableRows(terms.q_table->rows);
    if (ByOffset(terms.q_table->buckets)) MakeQueryTable(threads);
  }
  if (terms.k_table && !fold_key_row) {
    k_rows = TableRows(terms.k_table->rows);
    if (ByOffset(terms.k_table->buckets)) {
      k_map = RelMap(terms.k_table->buckets, call.shape);
    }
  }
  if (terms.v_table) {
    v_rows = TableRows(terms.v_table->rows);
    if (ByOffset(terms.v_table->buckets)) {
      v_map = RelMap(terms.v_table->buckets, call.shape);
    }
  }
  if (terms.bias && std::holds_alternative<BiasTable>(*terms.bias) &&
      ByOffset(std::get<BiasTable>(*terms.bias).buckets)) {
    MakeBias(threads);
  }
}

inline void Plan::ChooseRotation(bool keys_rotated) {
  if (!call.terms.rotate) return;
  const Rotation& r = *call.terms.rotate;
  if (keys_rotated) {
    key_rotation = KeyRotation::kDone;
    return;
  }
  key_rotation = KeyRotation::kAbsolute;
  double steepest = 0.0;
  for (double d : r.log_decay) steepest = std::max(steepest, std::abs(d));
  // exp(40) = 2e17: the gains inside a span are far from overflow.
  if (r.angles != AngleMode::kExact || !r.axes.empty() ||
      steepest * static_cast<double>(kSpanKeys) > 40.0) {
    return;
  }
  int64_t keys = 0, total = 0;
  for (const Tokens& t : call.keys) {
    std::vector<Span>& list = spans.emplace_back();
    for (const Run& run : t.runs) {
      for (int64_t j = 0; j < run.count; j += kSpanKeys) {
        const int64_t key = run.first + j;
        list.push_back(
            {.first = key, .position = t.position[static_cast<size_t>(key)]});
      }
    }
    keys += t.size();
    total += static_cast<int64_t>(list.size());
  }
  // Turning the queries costs about as much as turning as many keys.
  if (total * 8 <= keys + 64) key_rotation = KeyRotation::kRelative;
}

inline void Plan::LoadQueries() {
  const CallSizes& s = call.sizes;
  const Terms& terms = call.terms;
  const int64_t total = s.batch * s.kv_heads * rows;
  queries.Resize(total * dim_pad);
  std::fill_n(queries.data(), total * dim_pad, 0.0F);
  std::vector<RotationTable> angles;
  if (key_rotation == KeyRotation::kDone ||
      key_rotation == KeyRotation::kAbsolute) {
    const Rotation& r = *terms.rotate;
    const int64_t origin = kernels::DecayOrigin(r, call.shape);
    for (const Tokens& t : call.queries) {
      angles.emplace_back(r, t.position, 1.0, origin);
    }
    if (key_rotation == KeyRotation::kAbsolute) {
      for (const Tokens& t : call.keys) {
        k_angles.emplace_back(r, t.position, -1.0, origin);
      }
    }
  }
  if (terms.q_table) {
    plain.Resize(total * dim_pad);
    std::fill_n(plain.data(), total * dim_pad, 0.0F);
  }
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t h = Head(kv, r);
        float* row = queries.data() + RowIndex(b, kv, r) * dim_pad;
        call.q.Load(b, h, call.Queries(b).source[static_cast<size_t>(Query(r))],
                    row);
        const float scale = ScaleOf(QueryPosition(b, r));
        if (terms.q_table) {
          float* copy = plain.data() + RowIndex(b, kv, r) * dim_pad;
          std::copy_n(row, dim_pad, copy);
          SetScaled(scale, copy, dim_pad, copy);
        }
        if (fold_key_row) {
          const Tensor& u = terms.k_table->rows;
          for (int64_t d = 0; d < s.head_dim; ++d) {
            row[d] += static_cast<float>(u.At(u.size(0) == 1 ? 0 : h, 0, d));
          }
        }
        if (!angles.empty()) {
          RotateRow(*terms.rotate, angles[Sequence(b)], Query(r), row);
        }
        SetScaled(scale, row, dim_pad, row);
        if (direct_keys && call.k.dtype() == DType::kBF16) {
          ToParts(dim_pad, row);
        }
      }
    }
  }
}

inline void Plan::MakeBias(int threads) {
  const auto& table = std::get<BiasTable>(*call.terms.bias);
  const int64_t heads = table.values.size(0);
  bias.emplace(table.buckets, call.shape, heads);
  const Tensor values = table.values.To(DType::kF64);
  ParallelFor(heads, threads, [&](int64_t h) {
    const double* from = values.Data<double>() + h * values.size(1);
    float* to = bias->Values(h);
    for (size_t e = 0; e < bias->map.bucket.size(); ++e) {
      to[e] = static_cast<float>(kLog2E * from[bias->map.bucket[e]]);
    }
    bias->Pad(h);
  });
}

inline void Plan::MakeQueryTable(int threads) {
  const CallSizes& s = call.sizes;
  q_table.emplace(call.terms.q_table->buckets, call.shape,
                  s.batch * s.kv_heads * rows);
  const int64_t table_heads = call.terms.q_table->rows.size(0);
  ParallelFor(s.batch * s.q_heads, threads, [&](int64_t task) {
    const int64_t b = task / s.q_heads, h = task % s.q_heads;
    const int64_t kv = h / group;
    const int64_t row = RowIndex(b, kv, h % group * count);
    std::vector<float> table(static_cast<size_t>(dim_pad), 0.0F);
    int32_t loaded = -1;
    for (int64_t e = 0; e < q_table->map.width(); ++e) {
      const int32_t bucket = q_table->map.bucket[static_cast<size_t>(e)];
      if (bucket != loaded) {
        q_rows->Load(0, table_heads == 1 ? 0 : h, bucket, table.data());
      }
      for (int64_t n = 0; n < count; ++n) {
        float* to = q_table->Values(row + n) + e;
        *to = bucket == loaded ? to[-1]
                               : Dot(plain.data() + (row + n) * dim_pad,
                                     table.data(), dim_pad);
      }
      loaded = bucket;
    }
    for (int64_t n = 0; n < count; ++n) q_table->Pad(row + n);
  });
}

}  // namespace stream
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_DECODE_PLAN_INL_H_
