// What the backward pass reads besides the forward operands, and what one of
// its tasks adds up. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_PACK_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_PACK_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_PACK_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_PACK_INL_H_
#endif

#include <vector>

#include "kernels/backward/backward.h"
#include "kernels/terms/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

using kernels::BackwardCall;
using kernels::Rows;

// What one task adds to things that other tasks add to as well.
struct TaskGrads {
  FloatBuffer keys;               // [cols + kRows][depth padded], times log2(e)
  FloatBuffer values;             // [cols + kRows][value_dim padded]
  std::vector<float> q_table;     // [width][D padded], by offset
  std::vector<float> v_table;     // [width][Dv padded], by offset
  std::vector<double> bias;       // [width], by offset
  std::vector<float> k_table;     // [buckets][D padded]
  std::vector<float> plain_keys;  // [keys][D]: dk through the key table
  std::vector<double> key_row;    // [D]: the one row of a folded key table
  std::vector<float> extra_q;     // [positions][E]
  std::vector<float> extra_k;
  std::optional<BiasProfileGrads> profile;  // all but its distances,
  std::vector<double> profile_by_offset;    // which are here
  std::vector<double> special;  // [buckets]: bias of grids and special tokens
  double past = 0.0, future = 0.0;  // slopes of a ramp over far positions
};

// What the heads of a backward pass share, besides PackedTables. Copies share
// the tables.
struct BackwardTables {
  BackwardTables(const PackedTables& tables, const BackwardCall& args);

  // Lays out the tables of query heads [first, first + count).
  void Pack(int64_t first, int64_t count, int threads) const {
    if (q_rows) q_rows->Pack(first, count, threads);
    if (v_panels) v_panels->Pack(first, count, threads);
  }

  int64_t depth_stride = 0;               // depth, padded
  int64_t dim_stride = 0;                 // D, padded
  int64_t value_pad = 0;                  // Dv, padded
  std::shared_ptr<PackedRows> q_rows;     // Tq by offset
  std::shared_ptr<PackedTable> v_panels;  // Tv by offset, transposed
  // do.o of each query: [B][Hq][Lq] in tensor order
  std::shared_ptr<const std::vector<float>> delta;
};

// The operands of the units packed now, the forward's included.
struct BackwardPacked : BackwardTables {
  BackwardPacked(const PackedTables& forward, const BackwardTables& backward)
      : BackwardTables(backward), packed(forward) {}

  // Packs units [first, first + count).
  void Pack(int64_t first, int64_t count);

  InPanels KeyRows(int64_t b, int64_t h) const {
    return {
        key_rows.data() + packed.KeyIndex(b, h) * packed.cols * depth_stride,
        packed.cols};
  }
  bool KeysFinite(int64_t b, int64_t h) const {
    return keys_finite[static_cast<size_t>(packed.KeyIndex(b, h))] != 0;
  }
  const float* ValuePanels(int64_t b, int64_t h) const {
    return value_panels.data() +
           packed.Unit(b, h) * packed.cols * packed.call.sizes.value_dim;
  }

  Packed packed;
  FloatBuffer key_rows;      // [copies][depth padded / kCols][cols][kCols]
  FloatBuffer value_panels;  // [units][cols / kCols][Dv][kCols]
  std::vector<uint8_t> keys_finite;  // [copies]: whether all keys are

 private:
  void PackKeyRows(int64_t copy);
};

inline BackwardTables::BackwardTables(const PackedTables& tables,
                                      const BackwardCall& args) {
  const Call& call = tables.call;
  const CallSizes& s = call.sizes;
  depth_stride = PaddedCols(tables.depth);
  dim_stride = PaddedCols(s.head_dim);
  value_pad = PaddedCols(s.value_dim);
  if (call.terms.q_table) {
    q_rows = std::make_shared<PackedRows>(*call.terms.q_table, call.shape);
  }
  if (call.terms.v_table) {
    v_panels = std::make_shared<PackedTable>(*call.terms.v_table, call.shape);
  }
  auto sums = std::make_shared<std::vector<float>>(
      static_cast<size_t>(s.batch * s.q_heads * s.q_len));
  ParallelFor(s.batch * s.q_heads, tables.threads, [&](int64_t task) {
    const int64_t b = task / s.q_heads, h = task % s.q_heads;
    std::vector<float> o(static_cast<size_t>(value_pad), 0.0F), g(o);
    const hn::ScalableTag<double> dd;
    const hn::Rebind<float, decltype(dd)> df;
    for (int64_t i = 0; i < s.q_len; ++i) {
      args.out.Load(b, h, i, o.data());
      args.d_out.Load(b, h, i, g.data());
      // In float64: the sum is small next to its parts.
      auto sum = hn::Zero(dd);
      for (size_t d = 0; d < o.size(); d += hn::Lanes(dd)) {
        sum = hn::MulAdd(hn::PromoteTo(dd, hn::LoadU(df, o.data() + d)),
                         hn::PromoteTo(dd, hn::LoadU(df, g.data() + d)), sum);
      }
      (*sums)[static_cast<size_t>(task * s.q_len + i)] =
          static_cast<float>(hn::GetLane(hn::SumOfLanes(dd, sum)));
    }
  });
  delta = std::move(sums);
}

inline void BackwardPacked::PackKeyRows(int64_t copy) {
  const auto [b, h] = packed.KeyOwner(copy);
  float* to = key_rows.data() + copy * packed.cols * depth_stride;
  const int64_t present = packed.call.Keys(b).size();
  FourRows scratch(packed.depth);
  bool finite = true;
  for (int64_t j = 0; j < packed.cols; ++j) {
    const float* row = j < present ? packed.KeyRow(b, h, j, scratch.Next())
                                   : scratch.Nothing();
    finite &= Finite(row, packed.depth);
    WritePanels(row, packed.depth, packed.cols, to + j * kColsI);
  }
  keys_finite[static_cast<size_t>(copy)] = finite;
}

inline void BackwardPacked::Pack(int64_t first, int64_t count) {
  packed.Pack(first, count, /*with_values=*/false);
  const Call& call = packed.call;
  const CallSizes& s = call.sizes;
  const int64_t copies = count * packed.key_copies;
  key_rows.Resize(copies * packed.cols * depth_stride);
  keys_finite.assign(static_cast<size_t>(copies), 1);
  value_panels.Resize(count * packed.cols * s.value_dim);
  // Keys and values of a unit are tasks of their own.
  ParallelFor(copies + count, packed.threads, [&](int64_t task) {
    if (task < copies) {
      PackKeyRows(task);
      return;
    }
    const int64_t unit = task - copies;
    const int64_t b = (first + unit) / s.kv_heads;
    PackRows(call.v, call.Keys(b), b, (first + unit) % s.kv_heads, packed.cols,
             value_panels.data() + unit * packed.cols * s.value_dim);
  });
}

// C[r, 0 .. width) += A[k, r] B[k, ..] over whole column panels, for kRows
// rows.
template <typename Stride, typename Right>
HWY_INLINE void AddProduct(const float* a, int64_t ak, Stride ar,
                           const Right& b, int64_t depth, float* c, int64_t ldc,
                           int64_t width) {
  for (int64_t col = 0; col < width; col += kColsI) {
    Product(a, static_cast<size_t>(ak), ar, b.Panel(col),
            static_cast<size_t>(b.Step()), static_cast<size_t>(depth),
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
