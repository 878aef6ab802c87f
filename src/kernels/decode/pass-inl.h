// What the tasks of one pass over the keys share: queries, angles, tables by
// offset. Nothing here is as large as the keys. Compiled once per SIMD target.
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
#include "core/threads.h"
#include "kernels/rotary/span_angles-inl.h"
#include "kernels/simd/stream-inl.h"
#include "kernels/terms/bias-inl.h"
#include "kernels/terms/operands-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

using kernels::Run;

// A table [heads or 1, n, dim] as rows that Rows can read.
inline Rows TableRows(const Tensor& t) {
  const std::vector<int64_t>& s = t.strides();
  return Rows(Tensor::Borrow(
      t.dtype(), {1, t.size(0), t.size(1), t.size(2)}, {0, s[0], s[1], s[2]},
      t.dtype() == DType::kF64   ? static_cast<const void*>(t.Data<double>())
      : t.dtype() == DType::kF32 ? static_cast<const void*>(t.Data<float>())
                                 : t.Data<uint16_t>()));
}

// Queries [first, first + count) of every sequence and head, which pass over
// the keys together. Row r of key head kv is query first + r % count of head kv
// * group + r / count.
struct DecodePass {
  DecodePass(const Call& c, int64_t first_query, int64_t count);

  int64_t Head(int64_t kv, int64_t r) const { return kv * group + r / count; }
  int64_t Query(int64_t r) const { return first + r % count; }
  int64_t QueryPosition(int64_t b, int64_t r) const {
    return call.Queries(b).Position(Query(r));
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
  size_t Sequence(int64_t b) const { return call.plan.tokens.Sequence(b); }
  // Cosines of a span for query n of the plan, [pairs]; sines follow.
  const float* SpanAngles(int64_t b, int64_t span, int64_t n) const {
    return span_angles[Sequence(b)].data() +
           (span * count + n) * 2 * call.terms.rotate->NumPairs();
  }

  const Call& call;
  const OperandTerms operands;
  int64_t first, count, group, rows;
  int64_t dim_pad, value_pad;  // head_dim and value_dim in whole vectors
  bool direct_keys = false;    // keys can be read where they lie
  bool direct_values = false;
  bool paired_values = false;  // sums of values are in the order of PromotePart
  KeyRotation key_rotation = KeyRotation::kNone;
  // Keys can be rotated as they are loaded: every channel rotates, in whole
  // vectors, and nothing else needs them.
  bool whole_rotation = false;

  FloatBuffer queries;
  std::vector<RotationTable> k_angles;   // kAbsolute
  FloatBuffer key_angles;                // kRelative: as SpanAngles
  std::vector<std::vector<Span>> spans;  // one list per sequence
  std::vector<FloatBuffer> span_angles;  // [spans][count][2][pairs]
  std::optional<BiasTerm> bias;
  std::optional<OffsetMap> q_map, k_map, v_map;  // of tables by offset
  FloatBuffer q_table;  // q.Tq by offset: one padded row per RowIndex
  int64_t q_stride = 0;
  std::optional<Rows> q_rows, k_rows, v_rows;  // of the tables
  std::optional<Rows> extra_q, extra_k;        // of extra_dot
  FloatBuffer plain;                           // [RowIndex][dim_pad], scaled

 private:
  void ChooseRotation();
  void LoadQueries();
  void MakeQueryTable();
};

inline DecodePass::DecodePass(const Call& c, int64_t first_query, int64_t n)
    : call(c),
      operands(c, OperandTerms::Extra::kApart),
      first(first_query),
      count(n),
      group(c.sizes.q_heads / c.sizes.kv_heads),
      rows(group * n),
      dim_pad(AlignUp(c.sizes.head_dim, kLanesI)),
      value_pad(AlignUp(c.sizes.value_dim, kLanesI)) {
  const Terms& terms = call.terms;
  const auto streams = [](const Rows& x) {
    return x.dtype() != DType::kF64 && x.unit_stride() &&
           x.dim() % kLanesI == 0;
  };
  ChooseRotation();
  direct_keys = streams(call.k) &&
                (key_rotation == KeyRotation::kNone ||
                 key_rotation == KeyRotation::kDone) &&
                (!terms.k_table || operands.fold_key_row);
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
          std::span(call.Queries(static_cast<int64_t>(b)).position)
              .subspan(static_cast<size_t>(first), static_cast<size_t>(n))));
    }
  }
  if (terms.extra_dot) {
    extra_q = TableRows(terms.extra_dot->q_rows);
    extra_k = TableRows(terms.extra_dot->k_rows);
  }
  const auto set = [&](const std::optional<BucketTable>& table,
                       std::optional<Rows>& table_rows,
                       std::optional<OffsetMap>& map) {
    if (!table) return;
    table_rows = TableRows(table->rows);
    if (!kernels::ByPair(table->buckets)) {
      map = OffsetMap(table->buckets, call.shape);
    }
  };
  set(terms.q_table, q_rows, q_map);
  if (!operands.fold_key_row) set(terms.k_table, k_rows, k_map);
  set(terms.v_table, v_rows, v_map);
  if (q_map) MakeQueryTable();
  if (terms.bias) {
    bias.emplace(*terms.bias, call.sizes, call.shape,
                 BiasTerm::Ramp::kComputed);
  }
}

inline void DecodePass::ChooseRotation() {
  if (!call.terms.rotate) return;
  const Rotation& r = *call.terms.rotate;
  if (call.RotationOfKeys() == nullptr) {
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
  for (int64_t b = 0; b < call.plan.tokens.Sequences(); ++b) {
    const Tokens& t = call.Keys(b);
    std::vector<Span>& list = spans.emplace_back();
    for (const Run& run : t.runs) {
      for (int64_t j = 0; j < run.count; j += kSpanKeys) {
        const int64_t key = run.first + j;
        list.push_back({.first = key, .position = t.Position(key)});
      }
    }
    keys += t.size();
    total += static_cast<int64_t>(list.size());
  }
  // Rotating the queries costs about as much as rotating as many keys.
  if (total * 8 <= keys + 64) key_rotation = KeyRotation::kRelative;
}

inline void DecodePass::LoadQueries() {
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
    for (int64_t b = 0; b < call.plan.tokens.Sequences(); ++b) {
      angles.emplace_back(r, call.Queries(b).position, 1.0, origin);
      if (key_rotation == KeyRotation::kDone) continue;
      k_angles.emplace_back(r, call.Keys(b).position, -1.0, origin);
    }
  }
  if (terms.q_table) {
    plain.Resize(total * dim_pad);
    std::fill_n(plain.data(), total * dim_pad, 0.0F);
  }
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t h = Head(kv, r), at = RowIndex(b, kv, r) * dim_pad;
        float* row = queries.data() + at;
        call.q.Load(b, h, call.Queries(b).source[static_cast<size_t>(Query(r))],
                    row);
        operands.FinishQuery(
            h, QueryPosition(b, r),
            angles.empty() ? RowAngles()
                           : RowAngles(angles[Sequence(b)], Query(r),
                                       terms.rotate->NumPairs()),
            row, row, terms.q_table ? plain.data() + at : nullptr);
        if (direct_keys && call.k.dtype() == DType::kBF16) {
          ToParts(dim_pad, row);
        }
      }
    }
  }
}

inline void DecodePass::MakeQueryTable() {
  const CallSizes& s = call.sizes;
  q_stride = q_map->width() + 2 * kEndPad;
  q_table.Resize(s.batch * s.kv_heads * rows * q_stride);
  const int64_t table_heads = call.terms.q_table->rows.size(0);
  ParallelFor(s.batch * s.q_heads, call.plan.threads, [&](int64_t task) {
    const int64_t b = task / s.q_heads, h = task % s.q_heads;
    const int64_t row = RowIndex(b, h / group, h % group * count);
    std::vector<float> table(static_cast<size_t>(dim_pad), 0.0F);
    int32_t loaded = -1;
    for (int64_t e = 0; e < q_map->width(); ++e) {
      const int32_t bucket = q_map->bucket[static_cast<size_t>(e)];
      if (bucket != loaded) {
        q_rows->Load(0, table_heads == 1 ? 0 : h, bucket, table.data());
      }
      for (int64_t n = 0; n < count; ++n) {
        float* to = q_table.data() + (row + n) * q_stride + kEndPad + e;
        *to = bucket == loaded ? to[-1]
                               : Dot(plain.data() + (row + n) * dim_pad,
                                     table.data(), dim_pad);
      }
      loaded = bucket;
    }
    for (int64_t n = 0; n < count; ++n) {
      PadEnds(q_table.data() + (row + n) * q_stride, q_map->width());
    }
  });
}

}  // namespace stream
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_DECODE_PLAN_INL_H_
