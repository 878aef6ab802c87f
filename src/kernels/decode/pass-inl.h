// State shared by the tasks of one pass over the keys: queries, angles, tables
// by offset; all of it much smaller than the keys. Compiled once per SIMD
// target.
#if defined(LOCUS_SRC_KERNELS_DECODE_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_DECODE_PASS_INL_H_
#undef LOCUS_SRC_KERNELS_DECODE_PASS_INL_H_
#else
#define LOCUS_SRC_KERNELS_DECODE_PASS_INL_H_
#endif

#include <cmath>
#include <optional>
#include <vector>

#include "core/buffer.h"
#include "core/threads.h"
#include "kernels/rotary/span_angles-inl.h"
#include "kernels/simd/stream_int8-inl.h"
#include "kernels/terms/bias-inl.h"
#include "kernels/terms/dropout-inl.h"
#include "kernels/terms/operand_bias-inl.h"
#include "kernels/terms/operands-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace stream {

using kernels::Run;

// A view of a table [heads or 1, n, dim] as Rows.
inline Rows TableRows(const Tensor& t) {
  const std::vector<int64_t>& s = t.strides();
  return Rows(Tensor::Borrow(
      t.dtype(), {1, t.size(0), t.size(1), t.size(2)}, {0, s[0], s[1], s[2]},
      t.dtype() == DType::kF64   ? static_cast<const void*>(t.Data<double>())
      : t.dtype() == DType::kF32 ? static_cast<const void*>(t.Data<float>())
                                 : t.Data<uint16_t>()));
}

// Queries [first, first + count) of every sequence and head, which share one
// pass over the keys. Row r of key head kv is query first + r % count of head
// kv * group + r / count.
struct DecodePass {
  // With room for `most` queries at a time.
  DecodePass(const Call& c, int64_t most);

  // Loads queries [first_query, first_query + n).
  void Begin(int64_t first_query, int64_t n);

  int64_t Head(int64_t kv, int64_t r) const { return kv * group + r / count; }
  int64_t Query(int64_t r) const { return first + r % count; }
  int64_t QueryPosition(int64_t b, int64_t r) const {
    return call.Queries(b).Position(Query(r));
  }
  // The index of row r of key head kv of sequence b among all rows.
  int64_t RowIndex(int64_t b, int64_t kv, int64_t r) const {
    return (b * call.sizes.kv_heads + kv) * rows + r;
  }
  // The row of the results, [B, Hq, Lq], that row r computes.
  int64_t ResultRow(int64_t b, int64_t kv, int64_t r) const {
    return (b * call.sizes.q_heads + Head(kv, r)) * call.sizes.q_len +
           call.plan.tokens.QuerySource(b, Query(r));
  }
  // Queries times scale_i * log2(e): [rows][dim_pad], rotated unless the
  // rotation is relative.
  const float* Queries(int64_t b, int64_t kv) const {
    return queries.data() + RowIndex(b, kv, 0) * dim_pad;
  }
  size_t Sequence(int64_t b) const { return call.plan.tokens.Sequence(b); }
  // Rotates the value of key j, and the output of query i, of a key head of
  // sequence b.
  void RotateValue(int64_t b, int64_t kv, int64_t j, float* row) const {
    if (value_angles.empty()) return;
    const RotationTable& table = value_angles[Sequence(b)];
    RotateRow(call.terms.rotate_values->rotation, table, table.Row(kv, j), row);
  }
  void RotateOutput(int64_t b, int64_t kv, int64_t i, float* row) const {
    if (output_angles.empty()) return;
    const RotationTable& table = output_angles[Sequence(b)];
    RotateRow(call.terms.rotate_values->rotation, table, table.Row(kv, i), row,
              /*back=*/true);
  }
  // Cosines of a span for query n of the pass, [pairs], followed by the sines.
  const float* SpanAngles(int64_t b, int64_t span, int64_t n) const {
    return span_angles[Sequence(b)].data() +
           (span * count + n) * 2 * call.terms.rotate->NumPairs();
  }

  const Call& call;
  const OperandTerms operands;
  const int64_t group;
  int64_t first = 0, count = 0, rows = 0;
  // head_dim, value_dim and table_dim, padded to whole vectors
  int64_t dim_pad, value_pad, table_pad;
  const OperandBias operand_bias;
  const DropoutTerm dropout;
  bool direct_keys = false;  // keys can be read in place
  bool direct_values = false;
  bool paired_values = false;  // sums of values are in the order of PromotePart
  // Keys and values of int8 are multiplied as integers; `fused_pairs`: with an
  // instruction that also adds, where the CPU has one.
  const bool fused_pairs = FusesPairs();
  bool integer_keys = false;
  bool integer_values = false;
  KeyRotation key_rotation = KeyRotation::kNone;
  // Keys can be rotated as they are loaded: all channels rotate, in whole
  // vectors, and nothing else needs the unrotated keys.
  bool whole_rotation = false;

  FloatBuffer queries;
  std::vector<int16_t> integer_queries;  // as `queries`, if integer_keys
  std::vector<float> query_scales;       // [RowIndex], if integer_keys
  std::vector<RotationTable> q_angles;   // kDone and kAbsolute
  std::vector<RotationTable> k_angles;   // kAbsolute
  // Angles of values, and of outputs if they are rotated back.
  std::vector<RotationTable> value_angles, output_angles;
  FloatBuffer key_angles;                // kRelative: as SpanAngles
  std::vector<std::vector<Span>> spans;  // one list per sequence
  std::vector<FloatBuffer> span_angles;  // [spans][count][2][pairs]
  std::optional<BiasTerm> bias;
  std::optional<OffsetMap> q_map, k_map, v_map;  // of tables indexed by offset
  FloatBuffer q_table;  // q.Tq by offset: one padded row per RowIndex
  int64_t q_stride = 0;
  std::optional<Rows> q_rows, k_rows, v_rows;  // rows of the tables
  std::optional<Rows> extra_q, extra_k;        // rows of extra_dot
  FloatBuffer plain;  // unrotated queries: [RowIndex][table_pad], scaled

 private:
  void ChooseRotation();
  void MakeAngles(int64_t most);
  void MakeQueryTable();

  FloatBuffer table_rows_;  // scratch of MakeQueryTable: [workers][table_pad]
  std::optional<SpanQueryAngles> span_query_angles_;
};

inline DecodePass::DecodePass(const Call& c, int64_t most)
    : call(c),
      operands(c, OperandTerms::Extra::kApart),
      group(c.sizes.q_heads / c.sizes.kv_heads),
      dim_pad(AlignUp(c.sizes.head_dim, kLanesI)),
      value_pad(AlignUp(c.sizes.value_dim, kLanesI)),
      table_pad(AlignUp(operands.table_dim, kLanesI)),
      operand_bias(c),
      dropout(c) {
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
  direct_values = streams(call.v) && !terms.rotate_values;
  paired_values = direct_values && call.v.dtype() == DType::kBF16;
  integer_keys = direct_keys && IntegerProducts(call.k);
  integer_values = direct_values && IntegerProducts(call.v);
  if (terms.rotate) {
    const Rotation& r = *terms.rotate;
    whole_rotation = streams(call.k) && call.k.dtype() != DType::kI8 &&
                     !call.k.in_blocks() && !terms.k_table &&
                     r.rotary_dim == c.sizes.head_dim &&
                     r.rotary_dim % kPaired == 0;
  }
  const int64_t total = c.sizes.batch * c.sizes.q_heads * most;
  const auto zeros = [](FloatBuffer& buffer, int64_t size) {
    buffer.Resize(size);
    std::fill_n(buffer.data(), size, 0.0F);
  };
  zeros(queries, total * dim_pad);
  if (terms.q_table) zeros(plain, total * table_pad);
  if (integer_keys) {
    integer_queries.resize(static_cast<size_t>(total * dim_pad));
    query_scales.resize(static_cast<size_t>(total));
  }
  MakeAngles(most);
  if (terms.rotate_values) {
    const auto& [rotation, relative] = *terms.rotate_values;
    for (int64_t b = 0; b < call.plan.tokens.Sequences(); ++b) {
      value_angles.emplace_back(rotation, call.Keys(b).position, 1.0, 0,
                                call.plan.threads);
      if (!relative) continue;
      output_angles.emplace_back(rotation, call.Queries(b).position, 1.0, 0);
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
  if (q_map) {
    q_stride = q_map->width() + 2 * kEndPad;
    q_table.Resize(total * q_stride);
    zeros(table_rows_, call.plan.threads * table_pad);
  }
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
  // exp(40) = 2e17: the gains within a span are far from overflow.
  if (r.angles != AngleMode::kExact || !r.axes.empty() || r.origin ||
      r.heads > 1 || steepest * static_cast<double>(kSpanKeys) > 40.0) {
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
  // Rotating the queries for a span costs as much as rotating that many keys.
  if (total * 8 <= keys + 64) key_rotation = KeyRotation::kRelative;
}

inline void DecodePass::MakeAngles(int64_t most) {
  if (key_rotation == KeyRotation::kNone) return;
  const Rotation& r = *call.terms.rotate;
  if (key_rotation == KeyRotation::kRelative) {
    key_angles = SpanKeyAngles(r);
    span_query_angles_.emplace(r);
    for (const std::vector<Span>& list : spans) {
      span_angles.emplace_back(static_cast<int64_t>(list.size()) * most * 2 *
                               r.NumPairs());
    }
    return;
  }
  const int64_t origin = kernels::DecayOrigin(r, call.shape);
  for (int64_t b = 0; b < call.plan.tokens.Sequences(); ++b) {
    q_angles.emplace_back(r, call.Queries(b).position, 1.0, origin);
    if (key_rotation == KeyRotation::kDone) continue;
    k_angles.emplace_back(r, call.Keys(b).position, -1.0, origin);
  }
}

inline void DecodePass::Begin(int64_t first_query, int64_t n) {
  const CallSizes& s = call.sizes;
  const Terms& terms = call.terms;
  first = first_query;
  count = n;
  rows = group * n;
  for (size_t b = 0; b < span_angles.size(); ++b) {
    span_query_angles_->Write(
        spans[b],
        std::span(call.Queries(static_cast<int64_t>(b)).position)
            .subspan(static_cast<size_t>(first), static_cast<size_t>(n)),
        span_angles[b].data());
  }
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t h = Head(kv, r), at = RowIndex(b, kv, r) * dim_pad;
        float* row = queries.data() + at;
        const int64_t source =
            call.Queries(b).source[static_cast<size_t>(Query(r))];
        call.q.Load(b, h, source, row);
        float* to_table = terms.q_table
                              ? plain.data() + RowIndex(b, kv, r) * table_pad
                              : nullptr;
        if (operands.table_queries) {
          operands.table_queries->Load(b, h, source, to_table);
        }
        const int64_t position = QueryPosition(b, r);
        RowAngles angles;
        if (!q_angles.empty()) {
          const RotationTable& table = q_angles[Sequence(b)];
          angles = {table, table.Row(kv, Query(r)), terms.rotate->NumPairs()};
        }
        operands.FinishQuery(h, position, operands.ScaleOf(h, position), angles,
                             row, row, to_table);
        if (direct_keys && call.k.dtype() == DType::kBF16) {
          ToParts(dim_pad, row);
        }
        if (integer_keys) {
          query_scales[static_cast<size_t>(RowIndex(b, kv, r))] =
              QuantizeInt16(row, dim_pad, integer_queries.data() + at);
        }
      }
    }
  }
  if (q_map) MakeQueryTable();
}

inline void DecodePass::MakeQueryTable() {
  const CallSizes& s = call.sizes;
  const int64_t table_heads = call.terms.q_table->rows.size(0);
  const auto make = [&](int64_t task, int worker) noexcept {
    const int64_t b = task / s.q_heads, h = task % s.q_heads;
    const int64_t row = RowIndex(b, h / group, h % group * count);
    float* table = table_rows_.data() + worker * table_pad;
    int32_t loaded = -1;
    for (int64_t e = 0; e < q_map->width(); ++e) {
      const int32_t bucket = q_map->bucket[static_cast<size_t>(e)];
      if (bucket != loaded) {
        q_rows->Load(0, table_heads == 1 ? 0 : h, bucket, table);
      }
      for (int64_t n = 0; n < count; ++n) {
        float* to = q_table.data() + (row + n) * q_stride + kEndPad + e;
        *to = bucket == loaded
                  ? to[-1]
                  : Dot(plain.data() + (row + n) * table_pad, table, table_pad);
      }
      loaded = bucket;
    }
    for (int64_t n = 0; n < count; ++n) {
      PadEnds(q_table.data() + (row + n) * q_stride, q_map->width());
    }
  };
  ParallelFor(s.batch * s.q_heads, call.plan.threads, make);
}

}  // namespace stream
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_DECODE_PASS_INL_H_
