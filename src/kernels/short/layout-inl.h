// How a short call is cut into blocks, and where a thread's scratch lies.
// Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_SHORT_LAYOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_SHORT_LAYOUT_INL_H_
#undef LOCUS_SRC_KERNELS_SHORT_LAYOUT_INL_H_
#else
#define LOCUS_SRC_KERNELS_SHORT_LAYOUT_INL_H_
#endif

#include <algorithm>

#include "kernels/rotary/rotate_row-inl.h"
#include "kernels/short/rows-inl.h"
#include "kernels/short/short.h"
#include "kernels/terms/offset_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace brief {

using kernels::Interval;
using kernels::ShortCall;

// What a call's tasks share.
struct Plan {
  explicit Plan(const ShortCall& c) : call(c) {
    const CallSizes& s = call.sizes;
    // Divisions are not free here: the shortest calls do without.
    if (s.q_heads != s.kv_heads) group = s.q_heads / s.kv_heads;
    block_rows = KernelRows(s.q_len);
    if (s.q_len > kRowsI) {
      // As few blocks as possible, and those alike.
      const int64_t least = (s.q_len + kRowsI - 1) / kRowsI;
      block_rows = KernelRows((s.q_len + least - 1) / least);
      blocks = (s.q_len + block_rows - 1) / block_rows;
    }
    extra = call.terms.extra_dot ? call.terms.extra_dot->q_rows.size(2) : 0;
    depth = s.head_dim + extra;
    padded = AlignUp(depth, kLanesI);
    keys_by_head =
        extra > 0 && group > 1 && call.terms.extra_dot->k_rows.size(0) > 1;
    // A dot product costs a reduction, about as much as 8 multiply-adds; a
    // transpose pays from the third row on, and for more than a few keys.
    by_dots = s.q_len * group <= 2 || s.k_len <= 4;
    copied_keys = call.terms.rotate || extra > 0 ||
                  call.k.Direct(0, 0, 0) == nullptr ||
                  (by_dots && padded != depth);
    masked =
        call.behind < BucketMap::kHighest || call.ahead < BucketMap::kHighest;
    even_scale = static_cast<float>(call.terms.scale.scale * kLog2E);
  }

  // scale_i * log2(e) of query i.
  float ScaleOf(int64_t i) const {
    return call.terms.scale.beta == 0.0
               ? even_scale
               : static_cast<float>(call.terms.scale.At(call.q_first + i) *
                                    kLog2E);
  }
  // A loaded query or key, rotated, extended and padded.
  void FinishQuery(int64_t h, int64_t i, float* row) const {
    Finish(call.q_cos, call.q_sin, i, row);
    if (extra == 0) return;
    Extend(call.terms.extra_dot->q_rows, h, call.q_first + i, row);
  }
  void FinishKey(int64_t h, int64_t j, float* row) const {
    Finish(call.k_cos, call.k_sin, j, row);
    if (extra == 0) return;
    Extend(call.terms.extra_dot->k_rows, h, call.k_first + j, row);
  }

  const ShortCall& call;
  int64_t group = 1;          // query heads a key head
  int64_t blocks = 1;         // of queries, a head
  int64_t block_rows = 0;     // queries a block; the last may have fewer
  int64_t extra = 0;          // extra dimensions of the dot product
  int64_t depth = 0;          // head_dim + extra
  int64_t padded = 0;         // depth, to whole vectors
  bool keys_by_head = false;  // extra dimensions differ within a group
  bool by_dots = false;       // scores without transposed keys
  bool copied_keys = false;   // keys cannot be used where they lie
  bool masked = false;        // rows of a block may see different keys

 private:
  void Finish(const float* cos, const float* sin, int64_t token,
              float* row) const {
    if (call.terms.rotate) {
      const Rotation& r = *call.terms.rotate;
      const int64_t at = token * r.NumPairs();
      RotateRow(r, cos + at, sin + at, row, row);
    }
    std::fill(row + depth, row + padded, 0.0F);
  }
  void Extend(const Tensor& rows, int64_t h, int64_t position,
              float* row) const {
    float* to = row + call.sizes.head_dim;
    const int64_t at = position - call.terms.extra_dot->first_position;
    if (rows.dtype() == DType::kF64 && rows.strides()[2] == 1) {
      const double* wide = rows.Data<double>() + at * rows.strides()[1] +
                           (rows.size(0) == 1 ? 0 : h * rows.strides()[0]);
      for (int64_t e = 0; e < extra; ++e) to[e] = static_cast<float>(wide[e]);
      return;
    }
    const float* from = TableRow(rows, h, at, to);
    if (from != to) std::copy_n(from, extra, to);
  }

  float even_scale = 0.0F;
};

// Scratch of one thread, in floats from its beginning.
struct Layout {
  Layout(const CallSizes& s, int64_t depth)
      : rows(kRowsI * kStride),
        scores(rows + kLanesI * kStride),
        out(scores + kRowsI * kStride),
        keys(out + kRowsI * kStride),
        values(keys + AlignUp(s.k_len, kColsI) * depth),
        end(values + s.k_len * AlignUp(s.value_dim, kLanesI)) {}
  // Queries [kRows] come first, then rows of keys [kLanes], scores [kRows] and
  // outputs [kRows], all kStride apart; keys [Lk / kCols][D][kCols]; values
  // [Lk][Dv], padded.
  int64_t rows, scores, out, keys, values, end;
};

}  // namespace brief

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SHORT_LAYOUT_INL_H_
