// Tables indexed by offset, in the order of the keys, and their panels for the
// micro-kernel. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_TERMS_OFFSET_ROWS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_OFFSET_ROWS_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_OFFSET_ROWS_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_OFFSET_ROWS_INL_H_
#endif

#include <algorithm>
#include <vector>

#include "core/buffer.h"
#include "core/threads.h"
#include "kernels/plan/plan.h"
#include "kernels/simd/product-inl.h"
#include "kernels/terms/offset_map.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

using kernels::Interval;
using kernels::OffsetMap;
using kernels::Tokens;

// Columns of the panels that hold n keys.
constexpr int64_t PaddedCols(int64_t n) { return AlignUp(n, kColsI); }

// Writes `count` rows as columns of panels [cols / kCols][depth][kCols],
// starting at column `col`, a multiple of 4. row(n) returns row n, which must
// stay valid until the fifth call after it.
template <typename Row>
void WriteColumns(int64_t col, int64_t count, int64_t depth, const Row& row,
                  float* panels) {
  constexpr int64_t kWide = static_cast<int64_t>(kCols);
  static_assert(kCols % 4 == 0 || kCols == 2);
  const size_t deep = static_cast<size_t>(depth);
  int64_t n = 0;
  if constexpr (kCols % 4 == 0) {
    for (; n + 4 <= count; n += 4, col += 4) {
      float* to = panels + col / kWide * (depth * kWide) + col % kWide;
      const float* r0 = row(n);
      const float* r1 = row(n + 1);
      const float* r2 = row(n + 2);
      Transpose4(r0, r1, r2, row(n + 3), deep, to, kCols);
    }
  }
  for (; n < count; ++n, ++col) {
    const float* from = row(n);
    float* to = panels + col / kWide * (depth * kWide) + col % kWide;
    for (int64_t d = 0; d < depth; ++d) to[d * kWide] = from[d];
  }
}

// Right operands of products: row-major, or in panels
// [width / kCols][rows][kCols], each of which is contiguous.
struct RowMajor {
  int64_t Step() const { return stride; }
  const float* Panel(int64_t col) const { return data + col; }
  const float* data;
  int64_t stride;
};
struct InPanels {
  static constexpr int64_t Step() { return kColsI; }
  const float* Panel(int64_t col) const { return data + col * rows; }
  InPanels From(int64_t row) const { return {data + row * kColsI, rows}; }
  const float* data;
  int64_t rows;
};

// Writes one row of `count` floats, padded with zeros to whole panels, into
// panels of `rows` rows. `to` is its start in the first panel.
inline void WritePanels(const float* row, int64_t count, int64_t rows,
                        float* to) {
  for (int64_t c = 0; c < count; c += kColsI, to += rows * kColsI) {
    if (c + kColsI <= count) {
      hn::StoreU(hn::LoadU(kDF, row + c), kDF, to);
      hn::StoreU(hn::LoadU(kDF, row + c + kLanesI), kDF, to + kLanesI);
    } else {
      std::copy_n(row + c, count - c, to);
      std::fill(to + count - c, to + kColsI, 0.0F);
    }
  }
}

// Rotating scratch for the row(n) of WriteColumns, in memory of Floats(depth).
class FourRows {
 public:
  static constexpr int64_t Floats(int64_t depth) { return 5 * depth; }
  FourRows(float* memory, int64_t depth) : rows_(memory), depth_(depth) {
    std::fill_n(rows_ + 4 * depth_, depth_, 0.0F);
  }
  float* Next() {
    at_ = (at_ + 1) % 4;
    return rows_ + at_ * depth_;
  }
  // A row of zeros.
  const float* Nothing() const { return rows_ + 4 * depth_; }

 private:
  float* rows_;
  int64_t depth_;
  int64_t at_ = 0;
};

// Packs the rows of the tokens of (b, head), unchanged, into panels of `cols`
// columns.
inline void PackRows(const kernels::Rows& rows, const Tokens& tokens, int64_t b,
                     int64_t head, int64_t cols, FourRows scratch,
                     float* panels) {
  WriteColumns(
      0, cols, rows.dim(),
      [&](int64_t j) {
        if (j >= tokens.size()) return scratch.Nothing();
        const int64_t source = tokens.source[static_cast<size_t>(j)];
        const float* direct = rows.Direct(b, head, source);
        if (direct != nullptr) return direct;
        float* row = scratch.Next();
        rows.Load(b, head, source, row);
        return static_cast<const float*>(row);
      },
      panels);
}

// A row by offset, padded so that a panel or a block of rows past either end
// can be read, where the end value repeats: [kEndPad x first] [width values]
// [kEndPad x last]. Without SIMD, a block is wider than a panel.
constexpr int64_t kEndPad = static_cast<int64_t>(std::max(kCols, kRows));

inline void PadEnds(float* row, int64_t width) {
  std::fill_n(row, kEndPad, row[kEndPad]);
  std::fill_n(row + kEndPad + width, kEndPad, row[kEndPad + width - 1]);
}

// The transpose of PadEnds: adds the sums in the padding of a row to its ends.
inline void FoldEnds(float* row, int64_t width) {
  for (int64_t e = 0; e < kEndPad; ++e) {
    row[kEndPad] += row[e];
    row[kEndPad + width - 1] += row[kEndPad + width + e];
  }
}

// The index in such a row of a vector or panel whose first key has this offset.
HWY_INLINE int64_t PaddedEntry(const OffsetMap& map, int64_t offset) {
  return std::clamp<int64_t>(map.max_offset - offset + kEndPad, 0,
                             map.width() + kEndPad);
}

// s[j ..] += row for keys [j, end) of one run, key j at `offset`.
HWY_INLINE void AddRowByOffset(const float* row, const OffsetMap& map,
                               int64_t j, int64_t end, int64_t offset,
                               float* s) {
  for (; j < end; j += kLanesI, offset -= kLanesI) {
    const VF add = hn::LoadU(kDF, row + PaddedEntry(map, offset));
    StoreFirst(kDF, hn::Add(hn::LoadU(kDF, s + j), add), end - j, s + j);
  }
}

// sums[offset] += x[key] over the keys `seen` of a query at m; `sums` is padded
// as in PadEnds. x must continue with zeros up to a whole vector.
inline void SumByOffset(const OffsetMap& map, int64_t m, const Tokens& keys,
                        Interval seen, const float* x, float* sums) {
  if (!keys.OneRun(seen.begin, seen.end)) {
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      sums[PaddedEntry(map, m - keys.Position(j))] += x[j];
    }
    return;
  }
  // Vectors beyond either end of the map all go to the same place, so they are
  // summed first.
  const int64_t top = map.width() + kEndPad;
  int64_t offset = m - keys.Position(seen.begin);
  VF low = hn::Zero(kDF), high = hn::Zero(kDF);
  for (int64_t j = seen.begin; j < seen.end; j += kLanesI, offset -= kLanesI) {
    const int64_t at = PaddedEntry(map, offset);
    const VF w = hn::LoadU(kDF, x + j);
    if (at == 0) {
      low = hn::Add(low, w);
    } else if (at == top) {
      high = hn::Add(high, w);
    } else {
      hn::StoreU(hn::Add(hn::LoadU(kDF, sums + at), w), kDF, sums + at);
    }
  }
  hn::StoreU(hn::Add(hn::LoadU(kDF, sums), low), kDF, sums);
  hn::StoreU(hn::Add(hn::LoadU(kDF, sums + top), high), kDF, sums + top);
}

// Row `i` of head `h` of a tensor [heads or 1, rows, D] as floats: in place if
// it is f32, else converted to `scratch`.
inline const float* TableRow(const Tensor& t, int64_t h, int64_t i,
                             float* scratch) {
  const int64_t head = t.size(0) == 1 ? 0 : h;
  if (t.dtype() == DType::kF32 && t.strides()[2] == 1) {
    return t.Data<float>() + head * t.strides()[0] + i * t.strides()[1];
  }
  if (t.dtype() == DType::kF64 && t.strides()[2] == 1) {
    std::transform(
        t.Data<double>() + head * t.strides()[0] + i * t.strides()[1],
        t.Data<double>() + head * t.strides()[0] + i * t.strides()[1] +
            t.size(2),
        scratch, [](double x) { return static_cast<float>(x); });
    return scratch;
  }
  for (int64_t d = 0; d < t.size(2); ++d) {
    scratch[d] = static_cast<float>(t.At(head, i, d));
  }
  return scratch;
}

// A table of rows by bucket, expanded to rows by offset: entry e is the row of
// offset map.max_offset - e. Holds a range of heads at a time (see Reserve).
class TableByOffset {
 public:
  TableByOffset(const BucketTable& table, const Shape& shape)
      : map(table.buckets, shape),
        dim(table.rows.size(2)),
        rows_(table.rows),
        shared_(table.rows.size(0) == 1) {}

  OffsetMap map;
  int64_t dim = 0;

 protected:
  // Allocates `heads` heads of `size` floats each, and scratch for each of
  // `threads` threads.
  void Reserve(int64_t heads, int64_t size, int threads, int64_t scratch) {
    size_ = size;
    floats_.Resize((shared_ ? 1 : heads) * size);
    threads_ = threads;
    scratch_size_ = AlignUp(scratch, 16);
    scratch_.Resize(threads * scratch_size_);
  }
  // Expands heads [first, first + count) unless that has been done already.
  // write(h, to, scratch) writes one head.
  template <typename Write>
  void Hold(int64_t first, int64_t count, const Write& write) {
    if (shared_) {
      first = 0;
      count = 1;
    }
    if (first >= first_ && first + count <= first_ + count_) return;
    first_ = first;
    count_ = count;
    ParallelFor(count, threads_, [&](int64_t n, int worker) noexcept {
      write(first + n, floats_.data() + n * size_,
            scratch_.data() + worker * scratch_size_);
    });
  }
  const float* At(int64_t h) const {
    return floats_.data() + (shared_ ? 0 : h - first_) * size_;
  }
  // The row of entry e; past the last offset the last row repeats.
  const float* Row(int64_t h, int64_t e, float* scratch) const {
    const int64_t at = std::min(e, map.width() - 1);
    return TableRow(rows_, h, map.bucket[static_cast<size_t>(at)], scratch);
  }

 private:
  const Tensor& rows_;
  bool shared_;
  int64_t first_ = 0, count_ = 0, size_ = 0;
  int threads_ = 1;
  int64_t scratch_size_ = 0;
  FloatBuffer floats_, scratch_;
};

// In panels: [cols / kCols][D][kCols] per head, entry e in column e.
class PackedTable : public TableByOffset {
 public:
  PackedTable(const BucketTable& table, const Shape& shape)
      : TableByOffset(table, shape), cols(PaddedCols(map.width())) {}
  void Reserve(int64_t heads, int threads) {
    TableByOffset::Reserve(heads, cols * dim, threads, FourRows::Floats(dim));
  }
  void Pack(int64_t first_head, int64_t heads) {
    Hold(first_head, heads, [&](int64_t h, float* to, float* scratch) {
      FourRows rows(scratch, dim);
      WriteColumns(
          0, cols, dim, [&](int64_t e) { return Row(h, e, rows.Next()); }, to);
    });
  }
  const float* Head(int64_t h) const { return At(h); }

  int64_t cols = 0;
};

// The same rows as a right operand: [D padded / kCols][width][kCols] per head.
class PackedRows : public TableByOffset {
 public:
  PackedRows(const BucketTable& table, const Shape& shape)
      : TableByOffset(table, shape) {}
  void Reserve(int64_t heads, int threads) {
    TableByOffset::Reserve(heads, map.width() * PaddedCols(dim), threads, dim);
  }
  void Pack(int64_t first_head, int64_t heads) {
    const int64_t width = map.width();
    Hold(first_head, heads, [&](int64_t h, float* to, float* scratch) {
      for (int64_t e = 0; e < width; ++e) {
        WritePanels(Row(h, e, scratch), dim, width, to + e * kColsI);
      }
    });
  }
  InPanels Head(int64_t h) const { return {At(h), map.width()}; }
};

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_OFFSET_ROWS_INL_H_
