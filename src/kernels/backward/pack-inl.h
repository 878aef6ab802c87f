// Operands of the backward pass besides those of the forward pass. Compiled
// once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_PACK_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_PACK_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_PACK_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_PACK_INL_H_
#endif

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/backward/backward.h"
#include "kernels/terms/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

using kernels::BackwardCall;
using kernels::Rows;

// Tables shared by the heads of a backward pass, besides PackedTables.
struct BackwardTables {
  BackwardTables(const PackedTables& tables, const BackwardCall& args);

  // Allocates the tables of `heads` query heads at a time.
  void Reserve(int64_t heads) {
    packed.ReserveTables(heads);
    if (q_rows) q_rows->Reserve(heads, packed.threads);
    if (v_panels) v_panels->Reserve(heads, packed.threads);
  }
  // Packs the tables of query heads [first, first + count).
  void Pack(int64_t first, int64_t count) {
    packed.PackTables(first, count);
    if (q_rows) q_rows->Pack(first, count);
    if (v_panels) v_panels->Pack(first, count);
  }

  const PackedTables& packed;
  int64_t depth_stride = 0;             // depth, padded
  int64_t dim_stride = 0;               // D, padded
  int64_t table_stride = 0;             // table_dim, padded
  int64_t value_pad = 0;                // Dv, padded
  std::optional<PackedRows> q_rows;     // Tq by offset
  std::optional<PackedTable> v_panels;  // Tv by offset, transposed
  OperandGrads& operands;
  // Whether several tasks add to the same elements of the pair bias gradient.
  bool shared_pairs = false;
  // do.o - dlse of each query: [B][Hq][Lq], in tensor order
  std::vector<float> delta;
};

// The packed operands of a range of units, including those of the forward pass.
struct BackwardPacked {
  // With room for `most` units, packed by `workers` threads.
  BackwardPacked(const BackwardTables& shared, int64_t most, int workers);

  // Packs units [first, first + count).
  void Pack(int64_t first, int64_t count);

  InPanels KeyRows(int64_t b, int64_t h) const {
    return {key_rows.data() +
                packed.KeyIndex(b, h) * packed.cols * tables.depth_stride,
            packed.cols};
  }
  bool KeysFinite(int64_t b, int64_t h) const {
    return keys_finite[static_cast<size_t>(packed.KeyIndex(b, h))] != 0;
  }
  const float* ValuePanels(int64_t b, int64_t h) const {
    return value_panels.data() +
           packed.Unit(b, h) * packed.cols * packed.call.sizes.value_dim;
  }

  const BackwardTables& tables;
  Packed packed;
  FloatBuffer key_rows;      // [copies][depth padded / kCols][cols][kCols]
  FloatBuffer value_panels;  // [units][cols / kCols][Dv][kCols]
  std::vector<uint8_t> keys_finite;  // [copies]: whether all keys are finite

 private:
  void PackKeyRows(int64_t copy, float* scratch);
};

inline BackwardTables::BackwardTables(const PackedTables& tables,
                                      const BackwardCall& args)
    : packed(tables), operands(*args.operands) {
  const Call& call = tables.call;
  const CallSizes& s = call.sizes;
  depth_stride = PaddedCols(tables.depth);
  dim_stride = PaddedCols(s.head_dim);
  table_stride = PaddedCols(tables.table_dim);
  const Tensor& pairs = operands.pair_bias;
  if (pairs.defined()) {
    shared_pairs = pairs.size(0) != s.batch || pairs.size(1) != s.q_heads ||
                   pairs.size(2) != s.q_len;
  }
  value_pad = PaddedCols(s.value_dim);
  if (call.terms.q_table) q_rows.emplace(*call.terms.q_table, call.shape);
  if (call.terms.v_table) v_panels.emplace(*call.terms.v_table, call.shape);
  delta.resize(static_cast<size_t>(s.batch * s.q_heads * s.q_len));
  const int64_t rows = 2 * value_pad;
  FloatBuffer scratch(tables.threads * rows);
  std::fill_n(scratch.data(), tables.threads * rows, 0.0F);
  const auto row_sums = [&](int64_t task, int worker) noexcept {
    const int64_t b = task / s.q_heads, h = task % s.q_heads;
    float* o = scratch.data() + worker * rows;
    float* g = o + value_pad;
    for (int64_t i = 0; i < s.q_len; ++i) {
      args.out.Load(b, h, i, o);
      args.d_out.Load(b, h, i, g);
      // In float64, since the terms may nearly cancel.
      VD sum = hn::Zero(kDD);
      for (int64_t d = 0; d < value_pad; d += kLanesD) {
        sum = hn::MulAdd(hn::PromoteTo(kDD, hn::LoadU(kDHalf, o + d)),
                         hn::PromoteTo(kDD, hn::LoadU(kDHalf, g + d)), sum);
      }
      const int64_t row = task * s.q_len + i;
      double all = hn::GetLane(hn::SumOfLanes(kDD, sum));
      // The gradient of lse adds p_ij dlse_i to that of each score.
      if (args.d_lse != nullptr) all -= static_cast<double>(args.d_lse[row]);
      delta[static_cast<size_t>(row)] = static_cast<float>(all);
    }
  };
  ParallelFor(s.batch * s.q_heads, tables.threads, row_sums);
}

inline BackwardPacked::BackwardPacked(const BackwardTables& shared,
                                      int64_t most, int workers)
    : tables(shared),
      packed(shared.packed, most, workers, Packed::Contents::kKeys),
      key_rows(most * packed.key_copies * packed.cols * tables.depth_stride),
      value_panels(most * packed.cols * packed.call.sizes.value_dim),
      keys_finite(static_cast<size_t>(most * packed.key_copies)) {}

inline void BackwardPacked::PackKeyRows(int64_t copy, float* scratch) {
  const auto [b, h] = packed.KeyOwner(copy);
  float* to = key_rows.data() + copy * packed.cols * tables.depth_stride;
  const int64_t present = packed.call.Keys(b).size();
  FourRows rows(scratch, packed.depth);
  bool finite = true;
  for (int64_t j = 0; j < packed.cols; ++j) {
    const float* row =
        j < present ? packed.KeyRow(b, h, j, rows.Next()) : rows.Nothing();
    finite &= Finite(row, packed.depth);
    WritePanels(row, packed.depth, packed.cols, to + j * kColsI);
  }
  keys_finite[static_cast<size_t>(copy)] = finite;
}

inline void BackwardPacked::Pack(int64_t first, int64_t count) {
  packed.Pack(first, count);
  const Call& call = packed.call;
  const CallSizes& s = call.sizes;
  const int64_t copies = count * packed.key_copies;
  // The keys of a unit and its values are separate tasks.
  const auto pack = [&](int64_t task, int worker) noexcept {
    float* scratch = packed.Scratch(worker);
    if (task < copies) {
      PackKeyRows(task, scratch);
      return;
    }
    const int64_t unit = task - copies;
    const int64_t b = (first + unit) / s.kv_heads;
    const int64_t kv = (first + unit) % s.kv_heads;
    const int64_t present = call.Keys(b).size();
    FourRows rows(scratch, s.value_dim);
    WriteColumns(
        0, packed.cols, s.value_dim,
        [&](int64_t j) {
          return j < present ? packed.ValueRow(b, kv, j, rows.Next())
                             : rows.Nothing();
        },
        value_panels.data() + unit * packed.cols * s.value_dim);
  };
  ParallelFor(copies + count, packed.workers, pack);
}

// C[r, 0 .. width) += sum_k A[k, r] B[k, ..] for kRows rows r, over whole
// column panels.
template <typename Stride, typename Right>
HWY_INLINE void AddProduct(const float* a, int64_t ak, Stride ar,
                           const Right& b, int64_t depth, float* c, int64_t ldc,
                           int64_t width) {
  for (int64_t col = 0; col < width; col += kColsI) {
    Product(a, static_cast<size_t>(ak), ar, b.Panel(col), b.Step(),
            static_cast<size_t>(depth),
            AddTo{c + col, static_cast<size_t>(ldc)});
  }
}

// c[0 .. width) += w B[row] over whole panels.
inline void AddPanelRow(float w, const InPanels& b, int64_t row, float* c,
                        int64_t width) {
  for (int64_t col = 0; col < width; col += kColsI) {
    AddScaled(w, b.From(row).Panel(col), kColsI, c + col);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_PACK_INL_H_
