// Gradients of a query table: s += q_i.Tq[b]. With ds_off[i, e] the sum of ds
// of query i over the keys at the offset of entry e,
//
//   dq += ds_off Tq        dTq += ds_off^T q
//
// For a short table, ds_off is stored in whole rows. For a wide one it is
// computed tile by tile; with consecutive positions it is ds itself, read with
// a stride of one more column per row, where reads past either end of a row
// find the zeros between rows. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_QUERY_TABLE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_QUERY_TABLE_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_QUERY_TABLE_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_QUERY_TABLE_INL_H_
#endif

#include "kernels/backward/value_table-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

class QueryTableGrad {
 public:
  QueryTableGrad(const BackwardTables& bp, BackwardTile& tile)
      : bp_(bp), t_(tile) {
    const PackedTables& packed = bp.packed;
    if (!packed.q_table) return;
    map_ = &packed.q_table->map;
    if (packed.q_table_band) {
      band_.Resize(kBwdQueries * AlignUp(kPiece, kLanesI));
    } else {
      stride_ = AlignUp(map_->width(), kLanesI) + 2 * kEndPad;
      sums_.Resize(kBwdQueries * stride_);
    }
  }

  // For a short table, the rows of ds by offset, padded as in PadEnds; else
  // nullptr.
  const float* rows() const { return stride_ > 0 ? sums_.data() : nullptr; }
  int64_t stride() const { return stride_; }
  bool by_row() const { return stride_ > 0; }
  bool present() const { return map_ != nullptr; }

  void BeginQueries() {
    std::fill_n(sums_.data(), kBwdQueries * stride_, 0.0F);
  }
  // For a short table: ds of row r of a block, query i of the tile, by key.
  void AddRow(const Block& block, int64_t i, int64_t r, Interval keys,
              const float* ds) {
    SumByOffset(*map_, block.position[r], bp_.packed.call.Keys(block.b),
                Within(keys, block.seen[r]), ds, sums_.data() + i * stride_);
  }
  // For a wide table: ds of keys [tile, tile + keys).
  void AddTile(int64_t tile, int64_t keys);
  void EndQueries();

 private:
  void AddScattered(int64_t tile, int64_t keys);
  // dq += A Tq for block n, with table entries from `first` on.
  template <typename Stride>
  void AddToQueries(int64_t n, const float* a, Stride ar, int64_t first,
                    int64_t depth) {
    AddProduct(a, 1, ar, bp_.q_rows->Head(t_.h).From(first), depth,
               t_.d_plain.data() + n * kRowsI * bp_.table_stride,
               bp_.table_stride, bp_.table_stride);
  }
  // dTq += A^T q over queries [from, from + depth), for kRows entries from
  // `first` on.
  void AddToTable(const float* a, int64_t ak, int64_t from, int64_t depth,
                  int64_t first) {
    AddProduct(a, ak, kAdjacent, t_.Plain().From(from), depth,
               t_.term_sums->q_table.data() + first * bp_.table_stride,
               bp_.table_stride, bp_.table_stride);
  }

  // Entries per piece of a wide table if positions are scattered, since
  // far-apart ones may span all of it. A multiple of kRows (12 or 6).
  static constexpr int64_t kPiece = 1020;

  const BackwardTables& bp_;
  BackwardTile& t_;
  const OffsetMap* map_ = nullptr;
  int64_t stride_ = 0;  // of a query's sums; 0 for a wide table, or none
  FloatBuffer sums_, band_;
};

inline void QueryTableGrad::EndQueries() {
  if (!by_row()) return;
  const int64_t rows = t_.n_blocks * kRowsI, width = map_->width();
  for (int64_t i = 0; i < rows; ++i) {
    FoldEnds(sums_.data() + i * stride_, width);
  }
  for (int64_t n = 0; n < t_.n_blocks; ++n) {
    AddToQueries(n, sums_.data() + n * kRowsI * stride_ + kEndPad, stride_, 0,
                 width);
  }
  for (int64_t e = 0; e < width; e += kRowsI) {
    AddToTable(sums_.data() + kEndPad + e, stride_, 0, rows, e);
  }
}

inline void QueryTableGrad::AddTile(int64_t tile, int64_t keys) {
  if (!present() || by_row()) return;
  const Tokens& t = bp_.packed.call.Keys(t_.b);
  const int64_t seen = std::max(t_.Any().begin, tile);
  // The table entry for the first query and the first key of the tile.
  const int64_t origin = t_.straight ? map_->max_offset - t_.Position(0) +
                                           t.Position(seen) - (seen - tile)
                                     : 0;
  const int64_t rows = t_.n_blocks * kRowsI;
  if (!t_.straight || origin - (rows - 1) < 0 ||
      origin + keys > map_->width()) {
    AddScattered(tile, keys);
    return;
  }
  for (int64_t n = 0; n < t_.n_blocks; ++n) {
    const Interval any = Within(t_.blocks[n].any, {tile, tile + keys});
    if (any.empty()) continue;
    // Columns x = c - r, from the last row's first key to the first row's last.
    const int64_t x = any.begin - tile - (kRowsI - 1);
    AddToQueries(n, t_.Ds(n * kRowsI) + x, Fixed<kBwdStride + 1>(),
                 origin - n * kRowsI + x, any.end - tile - x);
  }
  // Entry x of the band is column x + i of query i.
  for (int64_t x = -(rows - 1); x < keys; x += kRowsI) {
    const int64_t from = std::max<int64_t>(-(x + kRowsI - 1), 0);
    const int64_t to = std::min(rows, keys - x);
    if (from >= to) continue;
    AddToTable(t_.Ds(from) + x + from, kBwdStride + 1, from, to - from,
               origin + x);
  }
}

inline void QueryTableGrad::AddScattered(int64_t tile, int64_t keys) {
  const Tokens& t = bp_.packed.call.Keys(t_.b);
  const int64_t width = map_->width();
  const auto entry = [&](int64_t i, int64_t j) {
    return map_->Entry(t_.Position(i) - t.Position(j));
  };
  const auto seen = [&](int64_t i) {
    const Block& block = t_.blocks[i / kRowsI];
    return Within(block.seen[i % kRowsI], {tile, tile + keys});
  };
  int64_t first = width, last = -1;
  for (int64_t i = 0; i < t_.count; ++i) {
    const Interval own = seen(i);
    if (own.empty()) continue;
    first = std::min(first, entry(i, own.begin));
    last = std::max(last, entry(i, own.end - 1));
  }
  if (last < first) return;
  // Bands are added to the table's gradient kRows entries at a time.
  for (int64_t piece = AlignDown(first, kRowsI); piece <= last;
       piece += kPiece) {
    const int64_t span = AlignUp(std::min(last + 1 - piece, kPiece), kRowsI);
    const int64_t stride = AlignUp(span, kLanesI);
    std::fill_n(band_.data(), kBwdQueries * stride, 0.0F);
    bool any = false;
    for (int64_t i = 0; i < t_.count; ++i) {
      const Interval own = seen(i);
      const float* ds = t_.Ds(i) - tile;
      for (int64_t j = own.begin; j < own.end; ++j) {
        const int64_t at = entry(i, j) - piece;
        if (at < 0 || at >= span) continue;
        band_.data()[i * stride + at] += ds[j];
        any = true;
      }
    }
    if (!any) continue;
    for (int64_t n = 0; n < t_.n_blocks; ++n) {
      AddToQueries(n, band_.data() + n * kRowsI * stride, stride, piece,
                   std::min(span, width - piece));
    }
    for (int64_t e = 0; e < span; e += kRowsI) {
      AddToTable(band_.data() + e, stride, 0, t_.n_blocks * kRowsI, piece + e);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_QUERY_TABLE_INL_H_
