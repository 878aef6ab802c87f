// Gradients of a key table, s += scale_i k_j.Tk[b]: first those of the products
// k_j.Tk[b], by bucket and key, tile by tile; then from these, once per head,
// those of keys and table. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_KEY_TABLE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_KEY_TABLE_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_KEY_TABLE_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_KEY_TABLE_INL_H_
#endif

#include "kernels/backward/query_table-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

class KeyTableGrad {
 public:
  KeyTableGrad(const BackwardTables& bp, const Scorer& scorer,
               const QueryTableGrad& query_table, const BackwardTile& tile)
      : bp_(bp),
        packed_(bp.packed),
        call_(bp.packed.call),
        scorer_(scorer),
        query_table_(query_table),
        t_(tile) {
    if (!present()) return;
    // A query table over the same buckets already sums ds by offset.
    if (!(query_table.by_row() && packed_.q_table->map == packed_.k_map)) {
      stride_ = AlignUp(packed_.k_map.width(), kLanesI) + 2 * kEndPad;
      sums_.Resize(kBwdQueries * stride_);
    }
    // Blocks of kRows keys may reach past the last panel of the last bucket.
    const int64_t buckets = AlignUp(call_.terms.k_table->buckets.count, kRowsI);
    d_products_ = SumBuffer(buckets * packed_.cols + kRowsI);
    table_ = SumBuffer(buckets * bp_.dim_stride);
    keys_ = SumBuffer(packed_.cols * bp_.dim_stride);
  }
  bool present() const { return packed_.HasKeyTable(); }

  void BeginHead() { d_products_.Clear(); }
  void BeginQueries() {
    std::fill_n(sums_.data(), kBwdQueries * stride_, 0.0F);
  }
  // ds of row r of a block, query i of the tile; indexed by key.
  void AddRow(const Block& block, int64_t i, int64_t r, Interval keys,
              const float* ds) {
    if (!t_.straight) {
      AddScattered(block, r, keys, ds);
      return;
    }
    if (stride_ > 0) {
      SumByOffset(packed_.k_map, block.position[r], call_.Keys(block.b),
                  Within(keys, block.seen[r]), ds, sums_.data() + i * stride_);
    }
    AddFar(block, r, keys, ds);
  }
  // Must run before the rows of the query table are folded.
  void EndQueries() {
    if (present() && t_.straight) AddNear(t_.Any());
  }
  void EndHead();

 private:
  void AddScattered(const Block& block, int64_t r, Interval keys,
                    const float* ds);
  void AddFar(const Block& block, int64_t r, Interval keys, const float* ds);
  void AddNear(Interval any);

  const BackwardTables& bp_;
  const PackedTables& packed_;
  const Call& call_;
  const Scorer& scorer_;
  const QueryTableGrad& query_table_;
  const BackwardTile& t_;
  int64_t stride_ = 0;      // of sums_; 0 if they are the query table's
  FloatBuffer sums_;        // ds by offset: [kBwdQueries][stride_]
  SumBuffer d_products_;    // gradient of k_j.Tk[b]: [buckets][cols]
  SumBuffer table_, keys_;  // Tk and k of the head: rows dim_stride apart
};

// Row r of a block whose positions are not consecutive.
inline void KeyTableGrad::AddScattered(const Block& block, int64_t r,
                                       Interval keys, const float* ds) {
  const float scale =
      static_cast<float>(call_.terms.scale.At(block.h, block.position[r]));
  const VF vscale = hn::Set(kDF, scale);
  float* table = d_products_.data();
  const int64_t cols = packed_.cols;
  scorer_.ForBuckets(
      block, r, keys, packed_.k_map, cols,
      [&](int64_t j, int64_t end, int64_t bucket) {
        AddScaled(scale, ds + j, end - j, table + bucket * cols + j);
      },
      [&](int64_t j, VI at) {
        // Lanes are different keys, so no two update the same element.
        const VF old = hn::GatherIndex(kDF, table, at);
        hn::ScatterIndex(hn::MulAdd(vscale, hn::LoadU(kDF, ds + j), old), kDF,
                         table, at);
      },
      [&](int64_t j, int64_t at) { table[at] += scale * ds[j]; });
}

// Keys beyond either end of the map, where the bucket is constant, for row r of
// consecutive positions.
inline void KeyTableGrad::AddFar(const Block& block, int64_t r, Interval keys,
                                 const float* ds) {
  const OffsetMap& map = packed_.k_map;
  const auto [begin, end] = Within(keys, block.seen[r]);
  // The key at entry 0 of the map.
  const int64_t zero = begin - map.max_offset + block.position[r] -
                       call_.Keys(t_.b).Position(begin);
  const float scale =
      static_cast<float>(call_.terms.scale.At(block.h, block.position[r]));
  const auto add = [&](int64_t j, int64_t to, int64_t bucket) {
    AddScaled(scale, ds + j, to - j,
              d_products_.data() + bucket * packed_.cols + j);
  };
  add(begin, std::clamp(zero, begin, end), map.bucket.front());
  add(std::clamp(zero + map.width(), begin, end), end, map.bucket.back());
}

// Keys within the map, for all queries of the tile, which see keys in `any`:
// query i uses key base + e + i at entry e. For a fixed entry these are
// adjacent in one row of d_products_, so the queries' rows by offset are read
// by column, four at a time. Scattering along the diagonals would touch a cache
// line per pair.
inline void KeyTableGrad::AddNear(Interval any) {
  if (any.empty()) return;
  const OffsetMap& map = packed_.k_map;
  const float* rows =
      (stride_ > 0 ? sums_.data() : query_table_.rows()) + kEndPad;
  const int64_t stride = stride_ > 0 ? stride_ : query_table_.stride();
  const int64_t cols = packed_.cols;
  const int64_t base = any.begin - map.max_offset + t_.Position(0) -
                       call_.Keys(t_.b).Position(any.begin);
  HWY_ALIGN float scale[kBwdQueries] = {};
  for (int64_t i = 0; i < t_.count; ++i) {
    scale[i] = static_cast<float>(call_.terms.scale.At(t_.h, t_.Position(i)));
  }
  const int64_t from =
      std::clamp<int64_t>(any.begin - base - t_.count + 1, 0, map.width());
  const int64_t to = std::clamp<int64_t>(any.end - base, 0, map.width());
  HWY_ALIGN float quads[kBwdQueries * 4];
  HWY_ALIGN float column[4][kBwdQueries];
  for (int64_t e = from; e < to; e += 4) {
    for (int64_t i = 0; i < kBwdQueries; ++i) {
      std::copy_n(rows + i * stride + e, 4, quads + 4 * i);
    }
    for (int64_t i = 0; i < kBwdQueries; i += kLanesI) {
      VF x0, x1, x2, x3;
      hn::LoadInterleaved4(kDF, quads + 4 * i, x0, x1, x2, x3);
      const VF s = hn::Load(kDF, scale + i);
      hn::Store(hn::Mul(s, x0), kDF, column[0] + i);
      hn::Store(hn::Mul(s, x1), kDF, column[1] + i);
      hn::Store(hn::Mul(s, x2), kDF, column[2] + i);
      hn::Store(hn::Mul(s, x3), kDF, column[3] + i);
    }
    for (int64_t n = 0; n < std::min<int64_t>(4, to - e); ++n) {
      const int64_t j = base + e + n;
      float* row = d_products_.data() +
                   map.bucket[static_cast<size_t>(e + n)] * cols + j;
      if (j >= 0 && j + kBwdQueries <= cols) {
        for (int64_t i = 0; i < kBwdQueries; i += kLanesI) {
          hn::StoreU(
              hn::Add(hn::LoadU(kDF, row + i), hn::Load(kDF, column[n] + i)),
              kDF, row + i);
        }
      } else {
        const int64_t end = std::min(kBwdQueries, cols - j);
        for (int64_t i = std::max<int64_t>(0, -j); i < end; ++i) {
          row[i] += column[n][i];
        }
      }
    }
  }
}

// With dKT = gradient of k_j.Tk[b]:  dk += Tk^T dKT,  dTk += dKT k.
inline void KeyTableGrad::EndHead() {
  if (!present()) return;
  const CallSizes& s = call_.sizes;
  const Tensor& rows = call_.terms.k_table->rows;
  const int64_t count = rows.size(1), cols = packed_.cols;
  table_.Clear();
  keys_.Clear();
  for (int64_t t = 0; t < count; ++t) {
    float* to = table_.data() + t * bp_.dim_stride;
    const float* from = TableRow(rows, t_.h, t, to);
    if (from != to) std::copy_n(from, s.head_dim, to);
  }
  const Tokens& tokens = call_.Keys(t_.b);
  for (int64_t j = 0; j < tokens.size(); ++j) {
    call_.k.Load(t_.b, call_.KvHead(t_.h),
                 tokens.source[static_cast<size_t>(j)],
                 keys_.data() + j * bp_.dim_stride);
  }
  for (int64_t t = 0; t < count; t += kRowsI) {
    AddProduct(d_products_.data() + t * cols, 1, cols,
               RowMajor{keys_.data(), bp_.dim_stride}, cols,
               t_.term_sums->k_table.data() + t * bp_.dim_stride,
               bp_.dim_stride, bp_.dim_stride);
  }
  for (int64_t j = 0; j < cols; j += kRowsI) {
    AddProduct(d_products_.data() + j, cols, kAdjacent,
               RowMajor{table_.data(), bp_.dim_stride}, count,
               t_.sums->plain_keys.data() + j * bp_.dim_stride, bp_.dim_stride,
               bp_.dim_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_KEY_TABLE_INL_H_
