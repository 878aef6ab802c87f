// Scores of a block of queries against a stretch of keys, with every term that
// touches them: the part that forward and backward share. Included once a SIMD
// target.
#if defined(LOCUS_SRC_KERNELS_TERMS_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_SCORE_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_SCORE_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_SCORE_INL_H_
#endif

#include "kernels/terms/disentangled_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// Up to kRows queries of one head, packed: operands [depth][kRows].
struct Block {
  int64_t b = 0, h = 0;
  int64_t first = 0;  // in sorted order
  int64_t count = 0;
  Interval sees[kRows];
  int64_t position[kRows];
  Interval any;            // the union of what the rows see
  Interval all;            // what all of them see
  float* dot = nullptr;    // [depth][kRows], scaled, rotated, extended
  float* plain = nullptr;  // [D][kRows], scaled; for a query table
  float* q_row = nullptr;  // q.Tq by rel, padded: [kRows][q_stride]
};

// Computes scores in the domain of exp2. One a thread: it owns scratch.
class Scorer {
 public:
  explicit Scorer(const Packed& p) : packed_(p), call_(p.call) {
    const Terms& terms = call_.terms;
    if (terms.bias) {
      ramp_ = std::get_if<BiasRamp>(&*terms.bias);
      profile_ = std::get_if<BiasProfile>(&*terms.bias);
      table_ = std::get_if<BiasTable>(&*terms.bias);
    }
    if (packed_.q_table && !packed_.q_table_band) {
      q_stride_ = packed_.q_table->cols + 2 * kRelPad;
    }
    use_key_table_ = terms.k_table && !packed_.fold_key_row;
    by_rel_ = packed_.bias != nullptr &&
              !(table_ != nullptr &&
                (table_->buckets.grid || table_->buckets.special));
    // What is laid out by rel is added while a product is in registers. Of two
    // such terms, the bias joins the band, or is added afterwards: beyond the
    // ends of the query table the band repeats, and so must the bias.
    if (by_rel_ && packed_.q_table_band) {
      const RelMap& bias = packed_.bias->map;
      const RelMap& band = packed_.q_table->map;
      bias_in_band_ = bias.first >= band.first &&
                      bias.first + bias.width() <= band.first + band.width();
    }
    late_bias_ =
        terms.bias && !(by_rel_ && (!packed_.q_table || bias_in_band_));
    late_ = use_key_table_ || late_bias_ || call_.softcap > 0.0F;
  }

  // Floats that Prepare needs a block.
  int64_t BlockFloats() const {
    return AlignUp((packed_.depth + call_.sizes.head_dim + q_stride_) * kRowsI,
                   16);
  }
  // The key table must be of the block's head, if there is one.
  bool needs_key_table() const { return use_key_table_; }
  void SetKeyTable(const KeyTable* table) { key_table_ = table; }
  // Rows of the queries that are prepared next, instead of both tables;
  // nullptr: none.
  void SetPairRows(const PairRows* rows) { pairs_ = rows; }

  // Packs `count` queries from `first` on into `memory` [BlockFloats].
  void Prepare(int64_t b, int64_t h, int64_t first, int64_t count,
               float* memory, Block& block);
  // The rows of the block that was packed last: [kRows][depth], and for a query
  // table [kRows][D] plain ones; zeros where there is no query.
  float* DotRow(int64_t r) { return rows_.data() + r * packed_.depth; }
  float* PlainRow(int64_t r) {
    return rows_.data() + kRowsI * packed_.depth + r * call_.sizes.head_dim;
  }

  // Scores of the block against keys [lo, hi), inside [tile, tile + kLds): row
  // r at s + r * kLds, key j in column j - tile. `tile` and lo are multiples of
  // the panel. Columns outside what a row sees hold -inf within the row's own
  // Vectors and are undefined elsewhere. row_max [kRows] receives the largest
  // score of each row that sees anything; nullptr: not wanted.
  template <int64_t kLds>
  void Scores(const Block& block, int64_t tile, int64_t lo, int64_t hi,
              float* s, float* row_max);

  // The part of [lo, hi) that row r sees, grown to whole vectors.
  static Interval Vectors(const Block& block, int64_t r, int64_t lo,
                          int64_t hi) {
    const int64_t begin = std::max(block.sees[r].begin, lo);
    const int64_t end = std::min(block.sees[r].end, hi);
    if (begin >= end) return {lo, lo};
    return {AlignDown(begin, kLanesI), AlignUp(end, kLanesI)};
  }

  // Calls vec(j, rel) for whole vectors of keys whose positions are
  // consecutive, one(j, rel) for single keys elsewhere. `keys` are whole
  // vectors; lanes that the row does not see are already -inf.
  template <typename Vec, typename One>
  void ForKeys(const Block& block, int64_t r, Interval keys, const Vec& vec,
               const One& one) const {
    const Tokens& t = call_.Keys(block.b);
    const int64_t begin = std::max(keys.begin, block.sees[r].begin);
    const int64_t end = std::min(keys.end, block.sees[r].end);
    const int64_t m = block.position[r];
    const bool one_run =
        t.runs.size() == 1 || t.RunOf(begin) == t.RunOf(end - 1);
    if (one_run) {
      int64_t rel =
          t.position[static_cast<size_t>(begin)] - m - (begin - keys.begin);
      for (int64_t j = keys.begin; j < keys.end; j += kLanesI) {
        vec(j, rel);
        rel += kLanesI;
      }
    } else {
      for (int64_t j = begin; j < end; ++j) {
        one(j, t.position[static_cast<size_t>(j)] - m);
      }
    }
  }

  // Calls along(j, count, rel) for what row r sees of each run, where rel is
  // taken on the grid of the bias's map, and apart(j) for its special token.
  // Rows of a grid and a token apart are runs of their own.
  template <typename Along, typename Apart>
  void ForRuns(const Block& block, int64_t r, Interval keys,
               const BucketMap& map, const Along& along,
               const Apart& apart) const {
    const Tokens& t = call_.Keys(block.b);
    const int64_t end = std::min(keys.end, block.sees[r].end);
    const int64_t m = map.Respace(block.position[r]);
    int64_t j = std::max(keys.begin, block.sees[r].begin);
    for (size_t run = t.RunOf(j); j < end; ++run) {
      const int64_t n = t.position[static_cast<size_t>(j)];
      const int64_t stop = std::min(end, t.runs[run].first + t.runs[run].count);
      if (map.special && map.special->position == n) {
        apart(j);
      } else {
        along(j, stop - j, map.Respace(n) - m);
      }
      j = stop;
    }
  }

  // Walks the keys of a row through a table [buckets][cols] by bucket and key:
  // same(j, end, bucket) for whole vectors of one bucket, mixed(j, at) for a
  // vector whose lanes lie at table[at], one(j, at) for single keys.
  template <typename Same, typename Mixed, typename One>
  void ForBuckets(const Block& block, int64_t r, Interval keys,
                  const RelMap& map, int64_t cols, const Same& same,
                  const Mixed& mixed, const One& one) const {
    const Tokens& t = call_.Keys(block.b);
    const int64_t begin = std::max(keys.begin, block.sees[r].begin);
    const int64_t end = std::min(keys.end, block.sees[r].end);
    const int64_t m = block.position[r];
    if (t.runs.size() > 1 && t.RunOf(begin) != t.RunOf(end - 1)) {
      for (int64_t j = begin; j < end; ++j) {
        const int64_t rel = t.position[static_cast<size_t>(j)] - m;
        one(j, map.Bucket(rel) * cols + j);
      }
      return;
    }
    const int64_t last = map.width() - 1;
    // Lanes hold 32-bit indices.
    const bool narrow = (call_.terms.k_table->buckets.count + 1) * cols <
                        std::numeric_limits<int32_t>::max();
    const int64_t shift = t.position[static_cast<size_t>(begin)] - m - begin;
    for (int64_t j = keys.begin; j < keys.end;) {
      const int64_t e = j + shift - map.first;  // the entry of key j
      const auto at = static_cast<size_t>(std::clamp<int64_t>(e, 0, last));
      // Keys from j on that share its bucket; past the last entry all do.
      const int64_t until =
          map.same_until[at] > last ? keys.end : j + map.same_until[at] - e;
      const int64_t whole =
          std::min(keys.end, j + AlignDown(until - j, kLanesI));
      if (whole > j) {
        same(j, whole, map.bucket[at]);
        j = whole;
      } else if (e >= 0 && e + kLanesI <= map.width() && narrow) {
        const VI bucket = hn::LoadU(kDI, map.bucket.data() + e);
        mixed(j,
              hn::Add(hn::Mul(bucket, hn::Set(kDI, static_cast<int32_t>(cols))),
                      hn::Iota(kDI, static_cast<int32_t>(j))));
        j += kLanesI;
      } else {
        for (int64_t l = 0; l < kLanesI; ++l, ++j) {
          one(j, map.Bucket(j + shift) * cols + j);
        }
      }
    }
  }

 private:
  // Rows that are added to scores, by rel and padded as PadRel: that of query r
  // at rows + r * stride. None: rows is nullptr.
  struct ByRel {
    const float* rows = nullptr;
    int64_t stride = 0;
    int64_t first = 0, width = 0;
  };
  // For keys of one run.
  ByRel AddedRows(const Block& block, Interval keys);
  ByRel Band(const Block& block, int64_t first_rel, int64_t last_rel);

  void MultiplyPairs(const Block& block, int64_t p, int64_t n,
                     const float* panel, const Store& store, float* max) const;

  // Add to the scores s, indexed by key, of row r.
  void AddScattered(const Block& block, int64_t r, Interval keys, float* s);
  void AddKeyTable(const Block& block, int64_t r, Interval keys,
                   float* s) const;
  void AddBias(const Block& block, int64_t r, Interval keys, float* s) const;
  void AddByRuns(const Block& block, int64_t r, Interval keys, float* s) const;
  void AddProfile(const Block& block, int64_t r, Interval keys, float* s) const;
  void Cap(float* s, int64_t begin, int64_t end) const;

  const Packed& packed_;
  const Call& call_;
  const BiasRamp* ramp_ = nullptr;
  const BiasProfile* profile_ = nullptr;
  const BiasTable* table_ = nullptr;
  const KeyTable* key_table_ = nullptr;
  const PairRows* pairs_ = nullptr;
  bool use_key_table_ = false;
  bool by_rel_ = false;        // the bias is a row by rel
  bool bias_in_band_ = false;  // the bias is added to that of the query table
  bool late_bias_ = false;     // the bias is added after the product
  bool late_ = false;          // something is
  int64_t q_stride_ = 0;
  FloatBuffer band_, rows_;
};

inline void Scorer::Prepare(int64_t b, int64_t h, int64_t first, int64_t count,
                            float* memory, Block& block) {
  const int64_t dim = call_.sizes.head_dim;
  rows_.Resize(kRowsI * (packed_.depth + dim));
  block.b = b;
  block.h = h;
  block.first = first;
  block.count = count;
  block.dot = memory;
  block.plain = block.dot + packed_.depth * kRowsI;
  block.q_row = block.plain + dim * kRowsI;
  block.any = {std::numeric_limits<int64_t>::max(), 0};
  block.all = {0, std::numeric_limits<int64_t>::max()};
  const bool with_plain = packed_.q_table != nullptr;
  for (int64_t r = 0; r < kRowsI; ++r) {
    float* dot = DotRow(r);
    float* plain = with_plain ? PlainRow(r) : nullptr;
    if (r >= count) {
      std::fill_n(dot, packed_.depth, 0.0F);
      if (with_plain) std::fill_n(plain, dim, 0.0F);
      block.sees[r] = {0, 0};
      block.position[r] = block.position[0];
      continue;
    }
    packed_.LoadQuery(b, h, first + r, dot, plain);
    block.sees[r] = call_.Sees(b, first + r);
    block.position[r] =
        call_.Queries(b).position[static_cast<size_t>(first + r)];
    if (block.sees[r].begin < block.sees[r].end) {
      block.any.begin = std::min(block.any.begin, block.sees[r].begin);
      block.any.end = std::max(block.any.end, block.sees[r].end);
    }
    block.all.begin = std::max(block.all.begin, block.sees[r].begin);
    block.all.end = std::min(block.all.end, block.sees[r].end);
  }
  PackBlock(DotRow(0), packed_.depth, block.dot);
  if (with_plain) PackBlock(PlainRow(0), dim, block.plain);
  if (q_stride_ > 0 && pairs_ == nullptr) {
    // q.Tq[rel] for every rel of the table, once a query.
    const PackedTable& table = *packed_.q_table;
    for (int64_t p = 0; p < table.cols; p += kColsI) {
      Product(block.plain, kRows, kAdjacent, table.Head(h) + p * dim, kCols,
              static_cast<size_t>(dim),
              Store{block.q_row + kRelPad + p, static_cast<size_t>(q_stride_)});
    }
    for (int64_t r = 0; r < kRowsI; ++r) {
      PadRel(block.q_row + r * q_stride_, table.map.width());
    }
  }
}

inline Scorer::ByRel Scorer::AddedRows(const Block& block, Interval keys) {
  if (q_stride_ > 0) {
    const RelMap& map = packed_.q_table->map;
    return {.rows = block.q_row,
            .stride = q_stride_,
            .first = map.first,
            .width = map.width()};
  }
  if (packed_.q_table_band) {
    const Tokens& t = call_.Keys(block.b);
    const int64_t n0 = t.position[static_cast<size_t>(keys.begin)];
    const int64_t n1 = t.position[static_cast<size_t>(keys.end - 1)];
    int64_t low = block.position[0], high = low;
    for (int64_t r = 1; r < block.count; ++r) {
      low = std::min(low, block.position[r]);
      high = std::max(high, block.position[r]);
    }
    return Band(block, n0 - high, n1 - low);
  }
  if (by_rel_) {
    return {.rows = packed_.bias->Row(block.h),
            .stride = 0,
            .first = packed_.bias->map.first,
            .width = packed_.bias->map.width()};
  }
  return {};
}

// q.Tq (and the bias) for rels [first_rel, last_rel]: one GEMM over the table's
// own columns.
inline Scorer::ByRel Scorer::Band(const Block& block, int64_t first_rel,
                                  int64_t last_rel) {
  const PackedTable& table = *packed_.q_table;
  const int64_t dim = call_.sizes.head_dim;
  const int64_t end = table.map.width() - 1;
  const int64_t from = AlignDown(
      std::clamp<int64_t>(first_rel - table.map.first, 0, end), kColsI);
  const int64_t to =
      std::clamp<int64_t>(last_rel - table.map.first, 0, end) + 1;
  const int64_t width = AlignUp(to - from, kColsI);
  const int64_t stride = width + 2 * kRelPad;
  band_.Resize(stride * kRowsI);
  for (int64_t p = 0; p < width; p += kColsI) {
    const float* panel = table.Head(block.h) + (from + p) * dim;
    const Store store{band_.data() + kRelPad + p, static_cast<size_t>(stride)};
    if (bias_in_band_) {
      const RelMap& map = packed_.bias->map;
      const int64_t at =
          RelStart(table.map.first + from + p, map.first, map.width());
      Product(block.plain, kRows, kAdjacent, panel, kCols,
              static_cast<size_t>(dim),
              AddRow<Store>{packed_.bias->Row(block.h) + at, store});
    } else {
      Product(block.plain, kRows, kAdjacent, panel, kCols,
              static_cast<size_t>(dim), store);
    }
  }
  for (int64_t r = 0; r < kRowsI; ++r) {
    PadRel(band_.data() + r * stride, to - from);
  }
  return {.rows = band_.data(),
          .stride = stride,
          .first = table.map.first + from,
          .width = to - from};
}

// The panel of keys from p on, at positions from n on, with rows of pairs.
inline void Scorer::MultiplyPairs(const Block& block, int64_t p, int64_t n,
                                  const float* panel, const Store& store,
                                  float* max) const {
  const size_t depth = static_cast<size_t>(packed_.depth);
  const auto multiply = [&](const auto& end) {
    Product(block.dot, kRows, kAdjacent, panel, kCols, depth, end);
  };
  const float* rows[kRows];
  bool inside = true;
  for (int64_t r = 0; r < kRowsI; ++r) {
    // Rows that are padding repeat the last query.
    const int64_t query = std::min(r, block.count - 1);
    rows[r] = pairs_->Row(block.first + query, n - block.position[query]);
    inside &= rows[r] != nullptr;
  }
  if (inside) {
    if (max != nullptr) {
      multiply(AddRows<StoreMax>{rows, {store.c, store.ldc, max}});
    } else {
      multiply(AddRows<Store>{rows, store});
    }
    return;
  }
  const int64_t rel = n - block.position[0];
  const VF scale = hn::Set(kDF, pairs_->scale());
  const float* keys = pairs_->FarKeys(rel, p);
  const VF key0 = hn::Mul(scale, hn::LoadU(kDF, keys));
  const VF key1 = hn::Mul(scale, hn::LoadU(kDF, keys + kLanes));
  const float* queries = pairs_->FarQueries(rel, block.first);
  if (max != nullptr) {
    multiply(
        AddOuter<StoreMax>{key0, key1, queries, {store.c, store.ldc, max}});
  } else {
    multiply(AddOuter<Store>{key0, key1, queries, store});
  }
}

template <int64_t kLds>
void Scorer::Scores(const Block& block, int64_t tile, int64_t lo, int64_t hi,
                    float* s, float* row_max) {
  const float* panels = packed_.Keys(block.b, block.h);
  const size_t depth = static_cast<size_t>(packed_.depth);
  const Tokens& t = call_.Keys(block.b);
  const Interval seen{std::max(lo, block.any.begin),
                      std::min(hi, block.any.end)};
  const bool one_run =
      t.runs.size() == 1 || t.RunOf(seen.begin) == t.RunOf(seen.end - 1);
  // Panels that every row sees whole need no mask, and their maximum is taken
  // while they are in registers, unless something is added later.
  const Interval whole{AlignUp(std::max(block.all.begin, lo), kColsI),
                       AlignDown(std::min(block.all.end, hi), kColsI)};
  const bool late = pairs_ != nullptr ? call_.softcap > 0.0F : late_;
  const bool max_early = row_max != nullptr && !late &&
                         (one_run || (!packed_.q_table && !by_rel_));
  HWY_ALIGN float max[kRows * kLanes];
  std::fill_n(max, kRows * kLanes, kMinusInf);
  const ByRel added =
      one_run && pairs_ == nullptr ? AddedRows(block, seen) : ByRel{};
  const float* rows[kRows];
  for (int64_t p = lo; p < hi; p += kColsI) {
    const float* panel = panels + p * packed_.depth;
    const Store store{s + (p - tile), kLds};
    const StoreMax store_max{store.c, store.ldc, max};
    const bool with_max = max_early && p >= whole.begin && p < whole.end;
    // The position of the panel's first key, also where that is not seen.
    const int64_t n =
        t.position[static_cast<size_t>(seen.begin)] + (p - seen.begin);
    if (pairs_ != nullptr) {
      MultiplyPairs(block, p, n, panel, store, with_max ? max : nullptr);
    } else if (added.rows != nullptr) {
      for (int64_t r = 0; r < kRowsI; ++r) {
        rows[r] = added.rows + r * added.stride +
                  RelStart(n - block.position[r], added.first, added.width);
      }
      if (with_max) {
        Product(block.dot, kRows, kAdjacent, panel, kCols, depth,
                AddRows<StoreMax>{rows, store_max});
      } else {
        Product(block.dot, kRows, kAdjacent, panel, kCols, depth,
                AddRows<Store>{rows, store});
      }
    } else if (with_max) {
      Product(block.dot, kRows, kAdjacent, panel, kCols, depth, store_max);
    } else {
      Product(block.dot, kRows, kAdjacent, panel, kCols, depth, store);
    }
  }
  for (int64_t r = 0; r < block.count; ++r) {
    const Interval keys = Vectors(block, r, lo, hi);
    if (keys.begin == keys.end) continue;
    float* row = s + r * kLds - tile;  // indexed by key
    if (!one_run) AddScattered(block, r, keys, row);
    if (use_key_table_ && pairs_ == nullptr) AddKeyTable(block, r, keys, row);
    if (late_bias_ && one_run) AddBias(block, r, keys, row);
    if (call_.softcap > 0.0F) Cap(row, keys.begin, keys.end);
    // Lanes of the first and last vector that the row does not see. Last: a
    // bias of -infinity is capped, a mask is not.
    for (int64_t j = keys.begin; j < block.sees[r].begin; ++j) {
      row[j] = kMinusInf;
    }
    for (int64_t j = std::min(block.sees[r].end, keys.end); j < keys.end; ++j) {
      row[j] = kMinusInf;
    }
    if (row_max == nullptr) continue;
    VF vmax = hn::Load(kDF, max + r * kLanesI);
    for (int64_t j = keys.begin; j < keys.end; j += kLanesI) {
      if (max_early && j == whole.begin && whole.begin < whole.end) {
        j = whole.end;
        if (j >= keys.end) break;
      }
      vmax = hn::Max(vmax, hn::LoadU(kDF, row + j));
    }
    row_max[r] = hn::GetLane(hn::MaxOfLanes(kDF, vmax));
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_SCORE_INL_H_
