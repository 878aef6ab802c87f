// Scores of a block of queries against a range of keys, with all terms, for the
// forward and the backward pass. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_TERMS_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_SCORE_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_SCORE_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_SCORE_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernels/terms/disentangled_rows-inl.h"
#include "kernels/terms/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// Up to kRows queries of one head, packed: operands [depth][kRows].
struct Block {
  int64_t b = 0, h = 0;
  int64_t first = 0;  // in sorted order
  int64_t count = 0;
  Interval seen[kRows];  // by each row
  int64_t position[kRows];
  Interval any;            // the union of `seen`
  float* dot = nullptr;    // [depth][kRows], scaled, rotated, extended
  float* plain = nullptr;  // [D][kRows], scaled; for a query table
  float* q_row = nullptr;  // q.Tq by offset, padded: [kRows][q_stride]
};

// The keys of a tile that the rows of a block see.
struct TileRows {
  Interval seen[kRows];   // from the first visible key to the last
  bool gaps[kRows];       // some keys in between are hidden
  bool any_gaps = false;  // some row has gaps
  Interval any;           // keys that some row sees
  Interval all;           // keys that every row sees, without gaps
};

// Computes scores in the domain of exp2. It owns scratch: one per worker.
class Scorer {
 public:
  explicit Scorer(const PackedTables& tables)
      : tables_(tables),
        call_(tables.call),
        rows_(kRowsI * (tables.depth + tables.table_dim)) {
    if (tables_.q_table) {
      const int64_t stride = tables_.q_table->cols + 2 * kEndPad;
      if (tables_.q_table_band) {
        band_.Resize(stride * kRowsI);
      } else {
        q_stride_ = stride;
      }
    }
    // One row by offset can be added while a product is in registers. If there
    // is a query table as well as a bias, the bias is added to the band of the
    // query table, provided that it is constant beyond the ends of that table,
    // as the band is; otherwise it is added after the product.
    const bool by_offset = tables_.bias && tables_.bias->by_offset();
    if (by_offset && tables_.q_table_band) {
      const OffsetMap& bias = tables_.bias->map();
      const OffsetMap& band = tables_.q_table->map;
      bias_in_band_ = bias.max_offset <= band.max_offset &&
                      bias.min_offset() >= band.min_offset();
    }
    bias_in_product_ = by_offset && !tables_.q_table;
    late_bias_ = tables_.bias && !bias_in_product_ && !bias_in_band_;
    // A key or pair bias that is the only such term is added there as well.
    const OperandBias& operand = *tables_.operand_bias;
    const bool alone =
        !bias_in_product_ && !tables_.q_table && !tables_.HasKeyTable();
    const bool keys = operand.Keys(0, 0) != nullptr;
    keys_in_product_ = alone && keys && !operand.has_pairs();
    pairs_in_product_ = alone && !keys && operand.has_pairs();
    late_operands_ = operand.present() && !keys_in_product_;
  }

  // Floats that Prepare needs per block.
  int64_t BlockFloats() const {
    return AlignUp((tables_.depth + tables_.table_dim + q_stride_) * kRowsI,
                   16);
  }
  // Sets the keys of the next blocks, and the products with the key table of
  // their head, if there is one.
  void SetKeys(const Packed& packed, const KeyTable& table) {
    packed_ = &packed;
    key_table_ = &table;
  }
  // Sets the rows that replace both tables for the queries prepared next;
  // nullptr: none.
  void SetDisentangled(const DisentangledRows* rows) { disentangled_ = rows; }

  // Packs queries [first, first + count) into `memory` [BlockFloats].
  void Prepare(int64_t b, int64_t h, int64_t first, int64_t count,
               float* memory, Block& block) noexcept;
  // The rows of the block packed last, [kRows][depth], and, with a query table,
  // its plain rows, [kRows][table_dim]; zeros for rows without a query.
  float* DotRow(int64_t r) { return rows_.data() + r * tables_.depth; }
  float* PlainRow(int64_t r) {
    return rows_.data() + kRowsI * tables_.depth + r * tables_.table_dim;
  }

  // The part of `keys` that the rows of a block see.
  TileRows Look(const Block& block, Interval keys) const;

  // Scores of the block against keys [lo, hi), inside [tile, tile + kLds): row
  // r at s + r * kLds, key j in column j - tile. `tile` and `lo` are multiples
  // of the panel width. Columns outside rows.seen are undefined, hidden ones
  // inside it are -inf. Unless nullptr, row_max [kRows] receives the largest
  // score of each row that sees a key.
  template <int64_t kLds>
  void Scores(const Block& block, const TileRows& rows, int64_t tile,
              int64_t lo, int64_t hi, float* s, float* row_max) noexcept;

  // Sets the elements of s (scores or weights, indexed by key) that are hidden
  // from row r, between the first and the last key that it sees.
  void SetHidden(const Block& block, const TileRows& rows, int64_t r,
                 float value, float* s) const {
    if (!rows.gaps[r]) return;
    call_.ForHidden(block.b, block.h, block.first + r, rows.seen[r],
                    [&](int64_t begin, int64_t end) {
                      std::fill(s + begin, s + end, value);
                    });
  }

  // sum_j ds_j k_j.Tk[b] of row r, for a key table.
  double KeyTableDot(const Block& block, int64_t r, Interval keys,
                     const float* ds) const;

  // The keys of a tile that row r sees, extended to whole vectors.
  static Interval Vectors(const TileRows& rows, int64_t r) {
    const Interval seen = rows.seen[r];
    if (seen.empty()) return {};
    return {AlignDown(seen.begin, kLanesI), AlignUp(seen.end, kLanesI)};
  }

  // Calls vec(j, offset) for whole vectors of keys at consecutive positions, or
  // one(j, offset) for single keys elsewhere. `keys` are whole vectors, of
  // which the row may not see the ends.
  template <typename Vec, typename One>
  void ForKeys(const Block& block, int64_t r, Interval keys, const Vec& vec,
               const One& one) const {
    const Tokens& t = call_.Keys(block.b);
    const Interval seen = Within(keys, block.seen[r]);
    const int64_t m = block.position[r];
    if (t.OneRun(seen.begin, seen.end)) {
      int64_t offset = m - t.Position(seen.begin) + (seen.begin - keys.begin);
      for (int64_t j = keys.begin; j < keys.end; j += kLanesI) {
        vec(j, offset);
        offset -= kLanesI;
      }
    } else {
      for (int64_t j = seen.begin; j < seen.end; ++j) {
        one(j, m - t.Position(j));
      }
    }
  }

  // Visits the elements (bucket, key) of a table [buckets][cols] for the keys
  // of a row: same(j, end, bucket) for whole vectors with one bucket,
  // mixed(j, at) for a vector whose lanes are table[at], one(j, at) for single
  // keys.
  template <typename Same, typename Mixed, typename One>
  void ForBuckets(const Block& block, int64_t r, Interval keys,
                  const OffsetMap& map, int64_t cols, const Same& same,
                  const Mixed& mixed, const One& one) const {
    const Tokens& t = call_.Keys(block.b);
    const Interval seen = Within(keys, block.seen[r]);
    const int64_t m = block.position[r];
    if (!t.OneRun(seen.begin, seen.end)) {
      for (int64_t j = seen.begin; j < seen.end; ++j) {
        one(j, map.Bucket(m - t.Position(j)) * cols + j);
      }
      return;
    }
    const int64_t last = map.width() - 1;
    // Indices must fit in 32-bit lanes.
    const bool fits = (call_.terms.k_table->buckets.count + 1) * cols <
                      std::numeric_limits<int32_t>::max();
    // Key j has entry j + shift.
    const int64_t shift =
        map.max_offset - m + t.Position(seen.begin) - seen.begin;
    for (int64_t j = keys.begin; j < keys.end;) {
      const int64_t e = j + shift;
      const auto at = static_cast<size_t>(std::clamp<int64_t>(e, 0, last));
      // The end of the keys that share the bucket of j; past the last entry,
      // all do.
      const int64_t until =
          map.same_until[at] > last ? keys.end : j + map.same_until[at] - e;
      const int64_t whole =
          std::min(keys.end, j + AlignDown(until - j, kLanesI));
      if (whole > j) {
        same(j, whole, map.bucket[at]);
        j = whole;
      } else if (e >= 0 && e + kLanesI <= map.width() && fits) {
        const VI bucket = hn::LoadU(kDI, map.bucket.data() + e);
        mixed(j,
              hn::Add(hn::Mul(bucket, hn::Set(kDI, static_cast<int32_t>(cols))),
                      hn::Iota(kDI, static_cast<int32_t>(j))));
        j += kLanesI;
      } else {
        for (int64_t l = 0; l < kLanesI; ++l, ++j) {
          one(j, map.Bucket(map.max_offset - (j + shift)) * cols + j);
        }
      }
    }
  }

 private:
  // Rows by offset to add to scores, padded as in PadEnds: that of query r is
  // at rows + r * stride. nullptr: none.
  struct AddedRows {
    const float* At(int64_t r, int64_t offset) const {
      return rows + r * stride +
             std::clamp<int64_t>(max_offset - offset + kEndPad, 0,
                                 width + kEndPad);
    }
    const float* rows = nullptr;
    int64_t stride = 0;
    int64_t max_offset = 0, width = 0;
  };
  // The rows for keys of a single run.
  AddedRows RowsToAdd(const Block& block, Interval keys);
  AddedRows Band(const Block& block, int64_t max_offset, int64_t min_offset);

  // Multiplies the block by a panel of keys. wrap(store) is the epilogue of the
  // product; unless `max` is nullptr, the store also updates the maxima there.
  template <typename Wrap>
  HWY_INLINE void Multiply(const Block& block, const float* panel,
                           const Store& store, float* max,
                           const Wrap& wrap) const {
    const size_t depth = static_cast<size_t>(tables_.depth);
    if (max != nullptr) {
      Product(block.dot, kRows, kAdjacent, panel, kCols, depth,
              wrap(StoreMax{store.c, store.ldc, max}));
    } else {
      Product(block.dot, kRows, kAdjacent, panel, kCols, depth, wrap(store));
    }
  }
  void MultiplyDisentangled(const Block& block, int64_t p, int64_t n,
                            const float* panel, const Store& store,
                            float* max) const;

  // Finds the rows of a pair bias that is added in registers; false if there is
  // none or it is added later.
  bool FindPairRows(const Block& block, const float* (&rows)[kRows]) const;
  // Scores with or without those rows. Two instances, since with a run-time
  // test g++ spends 5 % more instructions on a backward pass without a bias.
  template <int64_t kLds, bool kPairs>
  void ScoresOf(const Block& block, const TileRows& look, int64_t tile,
                int64_t lo, int64_t hi, const float* const* pairs, float* s,
                float* row_max) noexcept;

  // Add terms to the scores s, indexed by key, of row r.
  void AddScattered(const Block& block, int64_t r, Interval seen, float* s);
  void AddKeyTable(const Block& block, int64_t r, Interval keys,
                   float* s) const;

  const PackedTables& tables_;
  const Call& call_;
  const Packed* packed_ = nullptr;
  const KeyTable* key_table_ = nullptr;
  const DisentangledRows* disentangled_ = nullptr;
  // Where the bias is added: in the product's registers, in the band of the
  // query table, or afterwards.
  bool bias_in_product_ = false;
  bool bias_in_band_ = false;
  bool late_bias_ = false;
  // The same for the bias operands of the call.
  bool keys_in_product_ = false;
  bool pairs_in_product_ = false;  // for panels that are within its rows
  bool late_operands_ = false;
  int64_t q_stride_ = 0;
  FloatBuffer band_, rows_;
};

inline void Scorer::Prepare(int64_t b, int64_t h, int64_t first, int64_t count,
                            float* memory, Block& block) noexcept {
  const int64_t dim = tables_.table_dim;
  block.b = b;
  block.h = h;
  block.first = first;
  block.count = count;
  block.dot = memory;
  block.plain = block.dot + tables_.depth * kRowsI;
  block.q_row = block.plain + dim * kRowsI;
  block.any = {};
  const bool with_plain = tables_.q_table != nullptr;
  for (int64_t r = 0; r < kRowsI; ++r) {
    float* dot = DotRow(r);
    float* plain = with_plain ? PlainRow(r) : nullptr;
    if (r >= count) {
      std::fill_n(dot, tables_.depth, 0.0F);
      if (with_plain) std::fill_n(plain, dim, 0.0F);
      block.seen[r] = {0, 0};
      block.position[r] = block.position[0];
      continue;
    }
    tables_.LoadQuery(b, h, first + r, dot, plain);
    const Interval seen = block.seen[r] = call_.VisibleKeys(b, first + r);
    block.position[r] = call_.Queries(b).Position(first + r);
    block.any = Around(block.any, seen);
  }
  PackBlock(DotRow(0), tables_.depth, block.dot);
  if (with_plain) PackBlock(PlainRow(0), dim, block.plain);
  if (q_stride_ > 0 && disentangled_ == nullptr) {
    // q.Tq for every offset of the table, once per query.
    const PackedTable& table = *tables_.q_table;
    for (int64_t p = 0; p < table.cols; p += kColsI) {
      Product(block.plain, kRows, kAdjacent, table.Head(h) + p * dim, kCols,
              static_cast<size_t>(dim),
              Store{block.q_row + kEndPad + p, static_cast<size_t>(q_stride_)});
    }
    for (int64_t r = 0; r < kRowsI; ++r) {
      PadEnds(block.q_row + r * q_stride_, table.map.width());
    }
  }
}

inline Scorer::AddedRows Scorer::RowsToAdd(const Block& block, Interval keys) {
  const auto of = [](const OffsetMap& map, const float* rows, int64_t stride) {
    return AddedRows{.rows = rows,
                     .stride = stride,
                     .max_offset = map.max_offset,
                     .width = map.width()};
  };
  if (q_stride_ > 0) return of(tables_.q_table->map, block.q_row, q_stride_);
  if (tables_.q_table_band) {
    const Tokens& t = call_.Keys(block.b);
    int64_t low = block.position[0], high = low;
    for (int64_t r = 1; r < block.count; ++r) {
      low = std::min(low, block.position[r]);
      high = std::max(high, block.position[r]);
    }
    return Band(block, high - t.Position(keys.begin),
                low - t.Position(keys.end - 1));
  }
  if (bias_in_product_) {
    return of(tables_.bias->map(), tables_.bias->Row(block.h), /*stride=*/0);
  }
  return {};
}

// q.Tq (and the bias) for offsets [min_offset, max_offset]: one GEMM over the
// table's own columns.
inline Scorer::AddedRows Scorer::Band(const Block& block, int64_t max_offset,
                                      int64_t min_offset) {
  const PackedTable& table = *tables_.q_table;
  const int64_t dim = tables_.table_dim;
  const int64_t from = AlignDown(table.map.Entry(max_offset), kColsI);
  const int64_t to = table.map.Entry(min_offset) + 1;
  const int64_t width = AlignUp(to - from, kColsI);
  const int64_t stride = width + 2 * kEndPad;
  for (int64_t p = 0; p < width; p += kColsI) {
    const float* panel = table.Head(block.h) + (from + p) * dim;
    const Store store{band_.data() + kEndPad + p, static_cast<size_t>(stride)};
    if (bias_in_band_) {
      const int64_t at =
          PaddedEntry(tables_.bias->map(), table.map.max_offset - (from + p));
      Product(block.plain, kRows, kAdjacent, panel, kCols,
              static_cast<size_t>(dim),
              AddRow<Store>{tables_.bias->Row(block.h) + at, store});
    } else {
      Product(block.plain, kRows, kAdjacent, panel, kCols,
              static_cast<size_t>(dim), store);
    }
  }
  for (int64_t r = 0; r < kRowsI; ++r) {
    PadEnds(band_.data() + r * stride, to - from);
  }
  return {.rows = band_.data(),
          .stride = stride,
          .max_offset = table.map.max_offset - from,
          .width = to - from};
}

// The panel of keys starting at key p and position n, with the rows of both
// tables.
inline void Scorer::MultiplyDisentangled(const Block& block, int64_t p,
                                         int64_t n, const float* panel,
                                         const Store& store, float* max) const {
  const float* rows[kRows];
  bool inside = true;
  for (int64_t r = 0; r < kRowsI; ++r) {
    // Padding rows repeat the last query.
    const int64_t query = std::min(r, block.count - 1);
    rows[r] =
        disentangled_->Row(block.first + query, block.position[query] - n);
    inside &= rows[r] != nullptr;
  }
  if (inside) {
    Multiply(block, panel, store, max, [&]<typename End>(const End& end) {
      return AddRows<End>{rows, end};
    });
    return;
  }
  const int64_t offset = block.position[0] - n;
  const VF scale = hn::Set(kDF, disentangled_->scale());
  const float* keys = disentangled_->FarKeys(offset, p);
  const VF key0 = hn::Mul(scale, hn::LoadU(kDF, keys));
  const VF key1 = hn::Mul(scale, hn::LoadU(kDF, keys + kLanes));
  const float* queries = disentangled_->FarQueries(offset, block.first);
  Multiply(block, panel, store, max,
           [&]<typename End>(const End& end) HWY_ATTR {
             return AddOuter<End>{key0, key1, queries, end};
           });
}

// Adds key by key what Scores adds in registers for consecutive positions.
inline void Scorer::AddScattered(const Block& block, int64_t r, Interval seen,
                                 float* s) {
  const Tokens& t = call_.Keys(block.b);
  const int64_t m = block.position[r];
  if (q_stride_ > 0) {
    const float* row = block.q_row + r * q_stride_;
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      s[j] += row[PaddedEntry(tables_.q_table->map, m - t.Position(j))];
    }
  } else if (tables_.q_table_band) {
    // A band for each run of the row's keys; it may include the bias.
    BiasTerm::ForRuns(m, t, seen, [&](int64_t j, int64_t end, int64_t offset) {
      const AddedRows band = Band(block, offset, offset - (end - 1 - j));
      for (; j < end; ++j, --offset) s[j] += *band.At(r, offset);
    });
  }
}

inline void Scorer::AddKeyTable(const Block& block, int64_t r, Interval keys,
                                float* s) const {
  const float scale = tables_.ScaleOf(block.h, block.position[r]);
  const VF vscale = hn::Set(kDF, scale);
  const float* table = key_table_->Row(0);
  const int64_t cols = key_table_->cols();
  ForBuckets(
      block, r, keys, tables_.k_map, cols,
      [&](int64_t j, int64_t end, int64_t bucket) {
        const float* row = table + bucket * cols;
        for (; j < end; j += kLanesI) {
          hn::StoreU(hn::MulAdd(vscale, hn::LoadU(kDF, row + j),
                                hn::LoadU(kDF, s + j)),
                     kDF, s + j);
        }
      },
      [&](int64_t j, VI at) {
        hn::StoreU(hn::MulAdd(vscale, hn::GatherIndex(kDF, table, at),
                              hn::LoadU(kDF, s + j)),
                   kDF, s + j);
      },
      [&](int64_t j, int64_t at) { s[j] += scale * table[at]; });
}

inline double Scorer::KeyTableDot(const Block& block, int64_t r, Interval keys,
                                  const float* ds) const {
  const float* table = key_table_->Row(0);
  const int64_t cols = key_table_->cols();
  double sum = 0.0;
  VF sums = hn::Zero(kDF);
  ForBuckets(
      block, r, keys, tables_.k_map, cols,
      [&](int64_t j, int64_t end, int64_t bucket) {
        const float* row = table + bucket * cols;
        for (; j < end; j += kLanesI) {
          sums =
              hn::MulAdd(hn::LoadU(kDF, ds + j), hn::LoadU(kDF, row + j), sums);
        }
      },
      [&](int64_t j, VI at) {
        sums = hn::MulAdd(hn::LoadU(kDF, ds + j),
                          hn::GatherIndex(kDF, table, at), sums);
      },
      [&](int64_t j, int64_t at) {
        sum += static_cast<double>(ds[j]) * static_cast<double>(table[at]);
      });
  return sum + static_cast<double>(hn::GetLane(hn::SumOfLanes(kDF, sums)));
}

inline TileRows Scorer::Look(const Block& block, Interval keys) const {
  TileRows rows;
  rows.all = keys;
  for (int64_t r = 0; r < kRowsI; ++r) {
    rows.seen[r] = Within(block.seen[r], keys);
    rows.gaps[r] = false;
    if (call_.hides && !rows.seen[r].empty()) {
      const kernels::Glimpse look =
          call_.Look(block.b, block.h, block.first + r, rows.seen[r]);
      rows.seen[r] = look.seen;
      rows.gaps[r] = look.gaps;
      rows.any_gaps |= look.gaps;
    }
    if (r < block.count) rows.all = Within(rows.all, rows.seen[r]);
    rows.any = Around(rows.any, rows.seen[r]);
  }
  if (rows.any_gaps) rows.all = {};
  return rows;
}

HWY_NOINLINE inline bool Scorer::FindPairRows(
    const Block& block, const float* (&rows)[kRows]) const {
  if (disentangled_ != nullptr) return false;
  for (int64_t r = 0; r < kRowsI; ++r) {
    // Padding rows repeat the last query, whose row exists.
    const int64_t i = block.first + std::min(r, block.count - 1);
    rows[r] = tables_.operand_bias->PairRow(block.b, block.h, i);
    if (rows[r] == nullptr) return false;
  }
  return true;
}

template <int64_t kLds>
void Scorer::Scores(const Block& block, const TileRows& look, int64_t tile,
                    int64_t lo, int64_t hi, float* s, float* row_max) noexcept {
  const float* pairs[kRows];
  if (pairs_in_product_ && FindPairRows(block, pairs)) {
    ScoresOf<kLds, true>(block, look, tile, lo, hi, pairs, s, row_max);
  } else {
    ScoresOf<kLds, false>(block, look, tile, lo, hi, nullptr, s, row_max);
  }
}

template <int64_t kLds, bool kPairs>
void Scorer::ScoresOf(const Block& block, const TileRows& look, int64_t tile,
                      int64_t lo, int64_t hi, const float* const* pairs,
                      float* s, float* row_max) noexcept {
  const float* panels = packed_->Keys(block.b, block.h);
  const Tokens& t = call_.Keys(block.b);
  const Interval seen = look.any;
  const bool one_run = t.OneRun(seen.begin, seen.end);
  const bool scattered = !one_run && (tables_.q_table || bias_in_product_);
  const bool with_key_table = tables_.HasKeyTable() && disentangled_ == nullptr;
  const bool with_bias =
      late_bias_ || (bias_in_product_ && !one_run);  // after the product
  const bool capped = call_.softcap > 0.0F;
  // Panels from here on reach past the rows of a pair bias.
  const int64_t pairs_end = AlignDown(call_.sizes.k_len, kColsI);
  const bool with_operands = late_operands_ && !kPairs;
  // The maximum over panels that every row sees completely is taken while they
  // are in registers, unless something is added later.
  const Interval whole{AlignUp(look.all.begin, kColsI),
                       AlignDown(look.all.end, kColsI)};
  const bool max_early = row_max != nullptr && !scattered && !with_key_table &&
                         !with_bias && !with_operands && !capped &&
                         whole.begin < whole.end;
  HWY_ALIGN float max[kRows * kLanes];
  std::fill_n(max, kRows * kLanes, kMinusInf);
  const AddedRows added = one_run && disentangled_ == nullptr
                              ? RowsToAdd(block, seen)
                              : AddedRows{};
  const float* of_keys =
      keys_in_product_ ? tables_.operand_bias->Keys(block.b, block.h) : nullptr;
  const float* rows[kRows];
  for (int64_t p = lo; p < hi; p += kColsI) {
    const float* panel = panels + p * tables_.depth;
    const Store store{s + (p - tile), kLds};
    const bool with_max = max_early && p >= whole.begin && p < whole.end;
    float* panel_max = with_max ? max : nullptr;
    // The position of the panel's first key, even if no row sees it.
    const int64_t n = t.Position(seen.begin) + (p - seen.begin);
    if (disentangled_ != nullptr) {
      MultiplyDisentangled(block, p, n, panel, store, panel_max);
    } else if (kPairs && p < pairs_end) {
      for (int64_t r = 0; r < kRowsI; ++r) rows[r] = pairs[r] + p;
      const VF log2e = hn::Set(kDF, static_cast<float>(kLog2E));
      Multiply(block, panel, store, panel_max,
               [&]<typename End>(const End& end) {
                 return AddScaledRows<End>{log2e, rows, end};
               });
    } else if (added.rows != nullptr || of_keys != nullptr) {
      for (int64_t r = 0; r < kRowsI; ++r) {
        rows[r] = of_keys != nullptr ? of_keys + p
                                     : added.At(r, block.position[r] - n);
      }
      Multiply(block, panel, store, panel_max,
               [&]<typename End>(const End& end) {
                 return AddRows<End>{rows, end};
               });
    } else {
      Multiply(block, panel, store, panel_max,
               [](const auto& end) { return end; });
    }
  }
  for (int64_t r = 0; r < block.count; ++r) {
    const Interval keys = look.seen[r];
    if (keys.empty()) continue;
    float* row = s + r * kLds - tile;  // indexed by key
    if (scattered) AddScattered(block, r, keys, row);
    if (with_key_table) AddKeyTable(block, r, Vectors(look, r), row);
    if (with_bias) {
      tables_.bias->Add(block.h, block.position[r], t, keys, row);
    }
    if (with_operands) {
      tables_.operand_bias->Add(block.b, block.h, block.first + r, keys, row);
    } else if (kPairs && keys.end > pairs_end) {
      tables_.operand_bias->Add(block.b, block.h, block.first + r,
                                {std::max(keys.begin, pairs_end), keys.end},
                                row);
    }
    if (capped) SoftCapRow(call_.softcap, keys.size(), row + keys.begin);
    if (look.any_gaps) SetHidden(block, look, r, kMinusInf, row);
    if (row_max == nullptr) continue;
    if (!max_early) {
      row_max[r] = RowMax(row + keys.begin, keys.size());
      continue;
    }
    // The keys before and after the whole panels.
    row_max[r] =
        hn::GetLane(hn::MaxOfLanes(kDF, hn::Load(kDF, max + r * kLanesI)));
    if (keys.begin < whole.begin) {
      row_max[r] = std::max(row_max[r],
                            RowMax(row + keys.begin, whole.begin - keys.begin));
    }
    if (whole.end < keys.end) {
      row_max[r] =
          std::max(row_max[r], RowMax(row + whole.end, keys.end - whole.end));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_SCORE_INL_H_
