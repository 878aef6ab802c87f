// Preparation of queries and keys for the dot product: rotation, extra
// dimensions, the single row of a constant key table, and the scale. Compiled
// once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_TERMS_OPERANDS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_OPERANDS_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_OPERANDS_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_OPERANDS_INL_H_
#endif

#include <algorithm>
#include <optional>

#include "kernels/plan/plan.h"
#include "kernels/rotary/rotate_row-inl.h"
#include "kernels/terms/log2_domain.h"
#include "kernels/terms/offset_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

using kernels::Call;
using kernels::RotationTable;

// Cosines and sines of one token, [pairs]; nullptr: not rotated.
struct RowAngles {
  RowAngles() = default;
  RowAngles(const float* c, const float* s) : cos(c), sin(s) {}
  RowAngles(const RotationTable& table, int64_t row, int64_t pairs)
      : cos(table.cos.data() + row * pairs),
        sin(table.sin.data() + row * pairs) {}

  const float* cos = nullptr;
  const float* sin = nullptr;
};

// Rotates a row of values, or of sums of values, in place; `back`: by the
// transpose.
HWY_INLINE void RotateValues(const Call& call, RowAngles angles, float* row,
                             bool back = false) {
  if (angles.cos == nullptr) return;
  RotateRow(call.terms.rotate_values->rotation, angles.cos, angles.sin, row,
            row, back);
}

class OperandTerms {
 public:
  enum class Extra { kAppended, kApart };
  OperandTerms(const Call& c, Extra how)
      : call(c),
        extra(how == Extra::kAppended && c.terms.extra_dot
                  ? c.terms.extra_dot->q_rows.size(2)
                  : 0),
        depth(c.sizes.head_dim + extra),
        even_scale(static_cast<float>(c.terms.scale.scale * kLog2E)),
        fold_key_row(c.terms.k_table && c.terms.k_table->buckets.count == 1 &&
                     !c.terms.rotate),
        as_it_is(!fold_key_row && !c.terms.rotate && extra == 0) {
    if (fold_key_row) folded_ = c.terms.k_table->rows.To(DType::kF32);
    const Tensor& queries = c.plan.options.table_queries;
    if (queries.defined()) {
      table_queries.emplace(queries);
      table_dim = queries.size(3);
    }
  }

  // scale_i * log2(e) of a query of head h at a position.
  HWY_INLINE float ScaleOf(int64_t h, int64_t position) const {
    return !call.terms.scale.rows.defined()
               ? even_scale
               : static_cast<float>(call.terms.scale.At(h, position) * kLog2E);
  }

  // From a loaded query of head h: dot [depth], the left operand for keys, and,
  // unless nullptr, plain [table_dim], the left operand for tables; both times
  // `scale`. `row` may be `dot`. If tables have a left operand of their own,
  // `plain` already contains it.
  HWY_INLINE void FinishQuery(int64_t h, int64_t position, float scale,
                              RowAngles angles, const float* row, float* dot,
                              float* plain) const {
    const int64_t dim = call.sizes.head_dim;
    if (plain != nullptr) {
      SetScaled(scale, table_queries ? plain : row, table_dim, plain);
    }
    if (as_it_is) {
      SetScaled(scale, row, dim, dot);
      return;
    }
    if (row != dot) std::copy_n(row, dim, dot);
    FinishDot(h, position, angles, scale, dot);
  }

  // Prepares a loaded key [depth] for head h, in place.
  void FinishKey(int64_t h, int64_t position, RowAngles angles,
                 float* row) const {
    Rotate(angles, row);
    if (extra > 0) Extend(call.terms.extra_dot->k_rows, h, position, row);
  }

  const Call& call;
  const int64_t extra;     // dimensions appended to the dot product
  const int64_t depth;     // head_dim + extra
  const float even_scale;  // if all queries have the same scale
  // q.k_j + u.k_j = (q + u).k_j: the row u of a key table with one bucket is
  // added to the query, unless there is a rotation.
  const bool fold_key_row;
  const bool as_it_is;  // queries are only scaled
  // The left operand of the query table, if it is not q, and its width.
  std::optional<kernels::Rows> table_queries;
  int64_t table_dim = call.sizes.head_dim;

 private:
  void FinishDot(int64_t h, int64_t position, RowAngles angles, float scale,
                 float* dot) const {
    const int64_t dim = call.sizes.head_dim;
    if (fold_key_row) {
      AddScaled(1.0F, TableRow(folded_, h, 0, /*scratch=*/nullptr), dim, dot);
    }
    Rotate(angles, dot);
    if (extra > 0) Extend(call.terms.extra_dot->q_rows, h, position, dot);
    SetScaled(scale, dot, depth, dot);
  }

  void Rotate(RowAngles angles, float* row) const {
    if (angles.cos == nullptr) return;
    RotateRow(*call.terms.rotate, angles.cos, angles.sin, row, row);
  }
  void Extend(const Tensor& rows, int64_t h, int64_t position,
              float* row) const {
    float* to = row + call.sizes.head_dim;
    const int64_t at = position - call.terms.extra_dot->first_position;
    const float* from = TableRow(rows, h, at, to);
    if (from != to) std::copy_n(from, extra, to);
  }

  Tensor folded_;  // the rows of a folded key table, as floats
};

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_OPERANDS_INL_H_
