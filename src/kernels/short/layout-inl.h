// How a short call is divided into blocks, and the layout of a thread's
// scratch. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_SHORT_LAYOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_SHORT_LAYOUT_INL_H_
#undef LOCUS_SRC_KERNELS_SHORT_LAYOUT_INL_H_
#else
#define LOCUS_SRC_KERNELS_SHORT_LAYOUT_INL_H_
#endif

#include <algorithm>
#include <optional>

#include "kernels/short/call.h"
#include "kernels/short/rows-inl.h"
#include "kernels/terms/dropout-inl.h"
#include "kernels/terms/operand_bias-inl.h"
#include "kernels/terms/operands-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {
namespace short_seq {

using kernels::Interval;
using kernels::ShortCall;

// State shared by the tasks of a call.
struct Layout : OperandTerms {
  explicit Layout(const ShortCall& c)
      : OperandTerms(c.call, Extra::kAppended), short_call(c) {
    const CallSizes& s = call.sizes;
    // Divisions take noticeable time here; the shortest calls avoid them.
    if (s.q_heads != s.kv_heads) group = s.q_heads / s.kv_heads;
    block_rows = KernelRows(s.q_len);
    if (s.q_len > kRowsI) {
      // As few blocks as possible, of equal size.
      const int64_t least = (s.q_len + kRowsI - 1) / kRowsI;
      block_rows = KernelRows((s.q_len + least - 1) / least);
      blocks = (s.q_len + block_rows - 1) / block_rows;
    }
    padded = AlignUp(depth, kLanesI);
    keys_by_head =
        extra > 0 && group > 1 && call.terms.extra_dot->k_rows.size(0) > 1;
    // A dot product needs a reduction, which costs about 8 multiply-adds; a
    // transpose pays off from the third row on, and only for more than four
    // keys.
    by_dots = s.q_len * group <= 2 || s.k_len <= 4;
    copied_keys = call.terms.rotate || extra > 0 ||
                  call.k.Direct(0, 0, 0) == nullptr ||
                  (by_dots && padded != depth);
    masked = c.behind < BucketMap::kHighest || c.ahead < BucketMap::kHighest ||
             c.chunks || c.hides;
    const AttentionOptions& o = call.plan.options;
    if (o.key_bias.defined() || o.pair_bias.defined()) {
      operand_bias.emplace(call);
      keys_in_product = c.bias == nullptr && !operand_bias->has_pairs();
    }
    if (o.dropout.rate > 0.0) {
      dropout.emplace(call);
      if (!dropout->present()) dropout.reset();
    }
  }

  // Angles of query i and key j of a key head.
  RowAngles QueryAngles(int64_t kv, int64_t i) const {
    return AnglesOf(short_call.q_angles, kv, i);
  }
  RowAngles KeyAngles(int64_t kv, int64_t j) const {
    return AnglesOf(short_call.k_angles, kv, j);
  }
  // Rotates value j, and rotates the output of query i back.
  void RotateValue(int64_t kv, int64_t j, float* row) const {
    RotateValues(call, AnglesOf(short_call.v_angles, kv, j), row);
  }
  void RotateOutput(int64_t kv, int64_t i, float* row) const {
    RotateValues(call, AnglesOf(short_call.out_angles, kv, i), row,
                 /*back=*/true);
  }

  const ShortCall& short_call;
  int64_t group = 1;          // query heads per key head
  int64_t blocks = 1;         // blocks of queries per head
  int64_t block_rows = 0;     // queries per block; the last may have fewer
  int64_t padded = 0;         // depth, padded to whole vectors
  bool keys_by_head = false;  // extra dimensions differ within a group
  bool by_dots = false;      // scores are dot products, without transposed keys
  bool copied_keys = false;  // keys cannot be used in place
  bool masked = false;       // rows of a block may see different keys
  // Operands of the call, if it has them. A key bias without a pair bias is
  // added while the product is in registers.
  std::optional<OperandBias> operand_bias;
  bool keys_in_product = false;
  std::optional<DropoutTerm> dropout;

 private:
  static RowAngles AnglesOf(const kernels::SideAngles& side, int64_t kv,
                            int64_t token) {
    if (side.cos == nullptr) return {};
    const int64_t at = kv * side.head_step + token * side.pairs;
    return {side.cos + at, side.sin + at};
  }
};

// The scratch of one worker: offsets in floats from its beginning.
struct Scratch {
  Scratch(const CallSizes& s, int64_t depth)
      : rows(kRowsI * kStride),
        scores(rows + kLanesI * kStride),
        out(scores + kRowsI * kStride),
        keys(out + kRowsI * kStride),
        values(keys + AlignUp(s.k_len, kColsI) * depth),
        end(AlignUp(values + s.k_len * AlignUp(s.value_dim, kLanesI), 16)) {}
  // First the queries [kRows], at offset 0; then rows of keys [kLanes], scores
  // [kRows] and outputs [kRows], all kStride apart; then keys
  // [Lk / kCols][D][kCols], and values [Lk][Dv], padded.
  int64_t rows, scores, out, keys, values, end;
};

}  // namespace short_seq

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_SHORT_LAYOUT_INL_H_
