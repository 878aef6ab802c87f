// q_i.Tq[b] + k_j.Tk[b] as one row by offset per query (DeBERTa), for
// consecutive positions of queries and keys.
//
// The products k_j.Tk[b], stored as [buckets][keys], hold the values of query i
// on a diagonal: bucket(offset), key i - offset. For a fixed offset, the values
// of consecutive queries are adjacent in one row, so the rows of 96 queries are
// computed as a transpose, four offsets at a time; gathering along diagonals
// would cost more than the scores. Beyond either end of the map the bucket is
// constant, and a score gets one number from its key and one from its query.
// Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_TERMS_DISENTANGLED_ROWS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_DISENTANGLED_ROWS_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_DISENTANGLED_ROWS_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_DISENTANGLED_ROWS_INL_H_
#endif

#include "kernels/terms/key_table-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

class DisentangledRows {
 public:
  // The queries of a task of the forward or backward pass; a multiple of every
  // panel width.
  static constexpr int64_t kQueries = 96;
  static_assert(kQueries % kColsI == 0);
  // How many entries a panel may reach past either end of the map before all of
  // its rows are beyond the end.
  static constexpr int64_t kPad = AlignUp(kColsI + kRowsI, 4);

  // Whether the terms of a call allow it: a key table, optionally a query table
  // over the same buckets, one scale, and no other term by offset.
  static bool Fits(const PackedTables& tables) {
    const Terms& terms = tables.call.terms;
    if (!tables.HasKeyTable() || terms.bias) return false;
    if (terms.scale.rows.defined() || tables.table_queries) return false;
    return !terms.q_table || tables.q_table->map == tables.k_map;
  }

  // For heads whose products with the key table are in `keys`.
  DisentangledRows(const PackedTables& tables, const KeyTable& keys);
  bool fits() const { return stride_ > 0; }

  void BeginHead(int64_t b, int64_t h) noexcept;

  // Computes the rows of queries [first, first + count), which see keys within
  // `any`. Returns false if positions are not consecutive or the terms do not
  // allow it.
  bool BeginQueries(int64_t first, int64_t count, Interval any) noexcept;

  // The row of a panel for `query` whose first key has this offset, or nullptr
  // if the panel is beyond an end of the map.
  const float* Row(int64_t query, int64_t offset) const {
    const int64_t at = map_.max_offset - offset + kPad;
    if (at < 0 || at + kColsI > stride_) return nullptr;
    return rows_.data() + (query - first_) * stride_ + at;
  }
  // Beyond that end: the term of each key from j on, to be multiplied by
  // scale().
  const float* FarKeys(int64_t offset, int64_t j) const {
    return keys_.Row(map_.Bucket(offset)) + j;
  }
  // Beyond that end: the term of each query from `query` on.
  const float* FarQueries(int64_t offset, int64_t query) const {
    return queries_.data() + map_.Bucket(offset) * kQueries + (query - first_);
  }
  float scale() const { return scale_; }

 private:
  void MultiplyQueries(int64_t count);

  const Call& call_;
  const OffsetMap& map_;
  const KeyTable& keys_;
  const float scale_;
  int64_t b_ = 0, h_ = 0;
  int64_t first_ = 0;
  int64_t stride_ = 0;   // 0: the terms do not allow it
  int64_t buckets_ = 0;  // of both tables, padded
  FloatBuffer table_;    // Tq: [buckets / kRows][D][kRows]
  FloatBuffer panels_;   // queries: [kQueries / kCols][D][kCols], scaled
  FloatBuffer queries_;  // q.Tq: [buckets padded][kQueries]
  FloatBuffer rows_;     // [kQueries][stride]
  FloatBuffer scratch_;  // FourRows
};

inline DisentangledRows::DisentangledRows(const PackedTables& tables,
                                          const KeyTable& keys)
    : call_(tables.call),
      map_(tables.k_map),
      keys_(keys),
      scale_(tables.even_scale) {
  if (!Fits(tables)) return;
  const Terms& terms = call_.terms;
  const int64_t dim = call_.sizes.head_dim;
  stride_ = AlignUp(map_.width(), 4) + 2 * kPad;
  // Both tables have the buckets in use; either may have more.
  buckets_ = AlignUp(std::max(terms.k_table->buckets.count,
                              terms.q_table ? terms.q_table->buckets.count : 0),
                     kRowsI);
  rows_.Resize(kQueries * stride_);
  queries_.Resize(buckets_ * kQueries);
  std::fill_n(queries_.data(), buckets_ * kQueries, 0.0F);
  if (!terms.q_table) return;
  table_.Resize(buckets_ * dim);
  std::fill_n(table_.data(), buckets_ * dim, 0.0F);
  panels_.Resize(kQueries * dim);
  scratch_.Resize(FourRows::Floats(dim));
}

inline void DisentangledRows::BeginHead(int64_t b, int64_t h) noexcept {
  b_ = b;
  h_ = h;
  if (!fits() || !call_.terms.q_table) return;
  const int64_t dim = call_.sizes.head_dim;
  const Tensor& rows = call_.terms.q_table->rows;
  for (int64_t t = 0; t < rows.size(1); ++t) {
    const float* from = TableRow(rows, h, t, scratch_.data());
    float* to = table_.data() + t / kRowsI * kRowsI * dim + t % kRowsI;
    for (int64_t d = 0; d < dim; ++d) to[d * kRowsI] = from[d];
  }
}

// q.Tq for every bucket.
inline void DisentangledRows::MultiplyQueries(int64_t count) {
  if (!call_.terms.q_table) return;
  const int64_t dim = call_.sizes.head_dim;
  FourRows scratch(scratch_.data(), dim);
  WriteColumns(
      0, kQueries, dim,
      [&](int64_t i) -> const float* {
        if (i >= count) return scratch.Nothing();
        float* row = scratch.Next();
        const Tokens& tokens = call_.Queries(b_);
        call_.q.Load(b_, h_, tokens.source[static_cast<size_t>(first_ + i)],
                     row);
        for (int64_t d = 0; d < dim; ++d) row[d] *= scale_;
        return row;
      },
      panels_.data());
  for (int64_t t = 0; t < call_.terms.q_table->rows.size(1); t += kRowsI) {
    for (int64_t p = 0; p < kQueries; p += kColsI) {
      Product(table_.data() + t * dim, kRows, kAdjacent,
              panels_.data() + p * dim, kCols, static_cast<size_t>(dim),
              Store{queries_.data() + t * kQueries + p, kQueries});
    }
  }
}

inline bool DisentangledRows::BeginQueries(int64_t first, int64_t count,
                                           Interval any) noexcept {
  if (!fits()) return false;
  const Tokens& keys = call_.Keys(b_);
  const Tokens& queries = call_.Queries(b_);
  if (keys.runs.size() != 1 || !queries.OneRun(first, first + count)) {
    return false;
  }
  first_ = first;
  MultiplyQueries(count);
  // Entry x of the map is the pair of query i and key base + x + i.
  const int64_t base = queries.position[static_cast<size_t>(first)] -
                       keys.position[0] - map_.max_offset;
  // The columns (entry + kPad) that some query uses, with a panel to spare. The
  // stride is a multiple of four, so steps of four stay in bounds.
  const int64_t from = AlignDown(
      std::max<int64_t>(any.begin - count - base + kPad - kColsI, 0), 4);
  const int64_t to = std::min(stride_, any.end - base + kPad + kColsI);
  HWY_ALIGN float sums[4][kQueries];
  const VF scale = hn::Set(kDF, scale_);
  const int64_t cols = keys_.cols();
  for (int64_t col = from; col < to; col += 4) {
    const int64_t x = col - kPad;
    for (int64_t n = 0; n < 4; ++n) {
      const int64_t e = std::clamp<int64_t>(x + n, 0, map_.width() - 1);
      const int64_t bucket = map_.bucket[static_cast<size_t>(e)];
      const float* of_queries = queries_.data() + bucket * kQueries;
      const float* of_keys = keys_.Row(bucket);
      const int64_t j = base + x + n;
      if (j >= 0 && j + kQueries <= cols) {
        for (int64_t i = 0; i < kQueries; i += kLanesI) {
          hn::Store(hn::MulAdd(scale, hn::LoadU(kDF, of_keys + j + i),
                               hn::Load(kDF, of_queries + i)),
                    kDF, sums[n] + i);
        }
      } else {
        for (int64_t i = 0; i < kQueries; ++i) {
          const bool exists = j + i >= 0 && j + i < cols;
          sums[n][i] =
              of_queries[i] + (exists ? scale_ * of_keys[j + i] : 0.0F);
        }
      }
    }
    Transpose4(sums[0], sums[1], sums[2], sums[3], kQueries, rows_.data() + col,
               static_cast<size_t>(stride_));
  }
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_DISENTANGLED_ROWS_INL_H_
