// Gradients of a value table: o += sum_j p_ij Tv[b]. Compiled once per SIMD
// target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_VALUE_TABLE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_VALUE_TABLE_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_VALUE_TABLE_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_VALUE_TABLE_INL_H_
#endif

#include "kernels/backward/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

class ValueTableGrad {
 public:
  ValueTableGrad(const BackwardTables& bp, const Scorer& scorer,
                 const BackwardTile& tile)
      : bp_(bp), scorer_(scorer), t_(tile) {
    if (!bp.packed.v_table) return;
    map_ = &bp.packed.v_table->map;
    stride_ = AlignUp(bp_.v_panels->cols, kLanesI) + 2 * kEndPad;
    rows_.Resize(kBwdQueries * stride_);
    sums_.Resize(kBwdQueries * stride_);
  }
  bool present() const { return stride_ > 0; }

  // Computes do.Tv by offset, once per query, and clears the sums of p by
  // offset.
  void BeginQueries() {
    if (!present()) return;
    const int64_t dim = bp_.packed.call.sizes.value_dim;
    std::fill_n(sums_.data(), kBwdQueries * stride_, 0.0F);
    const PackedTable& table = *bp_.v_panels;
    for (int64_t n = 0; n < t_.n_blocks; ++n) {
      float* rows = rows_.data() + n * kRowsI * stride_;
      for (int64_t p = 0; p < table.cols; p += kColsI) {
        Product(t_.d_pack.data() + n * kRowsI * dim, kRows, kAdjacent,
                table.Head(t_.h) + p * dim, kCols, static_cast<size_t>(dim),
                Store{rows + kEndPad + p, static_cast<size_t>(stride_)});
      }
      for (int64_t r = 0; r < kRowsI; ++r) {
        PadEnds(rows + r * stride_, map_->width());
      }
    }
  }

  // dp += do.Tv[b], before ds is known. dp is indexed by key.
  void AddToDp(const Block& block, int64_t i, int64_t r, Interval keys,
               float* dp) const {
    if (!present()) return;
    const float* row = rows_.data() + i * stride_;
    scorer_.ForKeys(
        block, r, keys,
        [&](int64_t j, int64_t offset) {
          const VF add = hn::LoadU(kDF, row + PaddedEntry(*map_, offset));
          hn::StoreU(hn::Add(hn::LoadU(kDF, dp + j), add), kDF, dp + j);
        },
        [&](int64_t j, int64_t offset) {
          dp[j] += row[PaddedEntry(*map_, offset)];
        });
  }

  // p of row r of a block, query i of the tile; indexed by key.
  void AddRow(const Block& block, int64_t i, int64_t r, Interval keys,
              const float* p) {
    SumByOffset(*map_, block.position[r], bp_.packed.call.Keys(block.b),
                Within(keys, block.seen[r]), p, sums_.data() + i * stride_);
  }

  // dTv += p_by_offset^T do
  void EndQueries() {
    if (!present()) return;
    const int64_t rows = t_.n_blocks * kRowsI, width = map_->width();
    for (int64_t i = 0; i < rows; ++i) {
      FoldEnds(sums_.data() + i * stride_, width);
    }
    for (int64_t e = 0; e < width; e += kRowsI) {
      AddProduct(sums_.data() + kEndPad + e, stride_, kAdjacent, t_.DOut(),
                 rows, t_.term_sums->v_table.data() + e * bp_.value_pad,
                 bp_.value_pad, bp_.value_pad);
    }
  }

 private:
  const BackwardTables& bp_;
  const Scorer& scorer_;
  const BackwardTile& t_;
  const OffsetMap* map_ = nullptr;
  int64_t stride_ = 0;  // of a query's rows; 0 if there is no table
  FloatBuffer rows_, sums_;
};

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_VALUE_TABLE_INL_H_
