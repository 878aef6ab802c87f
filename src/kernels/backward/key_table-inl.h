// Gradients of a key table, s += scale_i k_j.Tk[b]: those of the products
// k_j.Tk[b], by bucket and key, while tiles are computed, and from them those
// of keys and table, once a head. Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_KEY_TABLE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_KEY_TABLE_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_KEY_TABLE_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_KEY_TABLE_INL_H_
#endif

#include "kernels/backward/terms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

inline void TermBackward::BeginHead() {
  if (!scorer_.needs_key_table()) return;
  // Blocks of kRows keys may reach past the last panel of the last bucket.
  const int64_t size =
      AlignUp(call_.terms.k_table->buckets.count, kRowsI) * packed_.cols +
      kRowsI;
  d_key_table_.Resize(size);
  std::fill_n(d_key_table_.data(), size, 0.0F);
}

// Row r of a block whose positions do not count up.
inline void TermBackward::AddScatteredKeys(const Block& block, int64_t r,
                                           Interval keys, const float* ds) {
  const float scale =
      static_cast<float>(call_.terms.scale.At(block.position[r]));
  const VF vscale = hn::Set(kDF, scale);
  float* table = d_key_table_.data();
  const int64_t cols = packed_.cols;
  scorer_.ForBuckets(
      block, r, keys, packed_.k_map, cols,
      [&](int64_t j, int64_t end, int64_t bucket) {
        float* row = table + bucket * cols;
        for (; j < end; j += kLanesI) {
          hn::StoreU(hn::MulAdd(vscale, hn::LoadU(kDF, ds + j),
                                hn::LoadU(kDF, row + j)),
                     kDF, row + j);
        }
      },
      [&](int64_t j, VI at) {
        // Lanes are different keys, so no two meet.
        const VF old = hn::GatherIndex(kDF, table, at);
        hn::ScatterIndex(hn::MulAdd(vscale, hn::LoadU(kDF, ds + j), old), kDF,
                         table, at);
      },
      [&](int64_t j, int64_t at) { table[at] += scale * ds[j]; });
}

// Keys beyond either end of the map, where the bucket stays the same: of row r,
// whose positions count up.
inline void TermBackward::AddFarKeys(const Block& block, int64_t r,
                                     Interval keys, const float* ds) {
  const Tokens& t = call_.Keys(t_.b);
  const RelMap& map = packed_.k_map;
  const int64_t begin = std::max(keys.begin, block.sees[r].begin);
  const int64_t end = std::min(keys.end, block.sees[r].end);
  // The key at entry 0 of the map.
  const int64_t zero = begin + map.first + block.position[r] -
                       t.position[static_cast<size_t>(begin)];
  const float scale =
      static_cast<float>(call_.terms.scale.At(block.position[r]));
  const auto add = [&](int64_t j, int64_t to, int64_t bucket) {
    float* row = d_key_table_.data() + bucket * packed_.cols;
    const VF vscale = hn::Set(kDF, scale);
    for (; j + kLanesI <= to; j += kLanesI) {
      hn::StoreU(
          hn::MulAdd(vscale, hn::LoadU(kDF, ds + j), hn::LoadU(kDF, row + j)),
          kDF, row + j);
    }
    for (; j < to; ++j) row[j] += scale * ds[j];
  };
  add(begin, std::clamp(zero, begin, end), map.bucket.front());
  add(std::clamp(zero + map.width(), begin, end), end, map.bucket.back());
}

// Keys within the map, for all queries of the tile, which see keys in `any`:
// query i meets key base + e + i at entry e. For one entry that is a stretch of
// one row of the table, so the queries' rows by rel are read by columns, four
// at a time. Scattering along the diagonals would touch a cache line a pair.
inline void TermBackward::AddNearKeys(Interval any) {
  if (any.begin >= any.end) return;
  const RelMap& map = packed_.k_map;
  const bool own = key_rel_stride_ > 0;
  const float* rows = (own ? t_.key_by_rel : t_.by_rel).data() + kRelPad;
  const int64_t stride = own ? key_rel_stride_ : rel_stride_;
  const int64_t cols = packed_.cols;
  const int64_t base =
      map.first + t_.Position(0) -
      call_.Keys(t_.b).position[static_cast<size_t>(any.begin)] + any.begin;
  HWY_ALIGN float scale[kBwdQueries] = {};
  for (int64_t i = 0; i < t_.count; ++i) {
    scale[i] = static_cast<float>(call_.terms.scale.At(t_.Position(i)));
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
      float* row = d_key_table_.data() +
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
inline void TermBackward::EndHead() {
  if (!scorer_.needs_key_table()) return;
  const CallSizes& s = call_.sizes;
  const Tensor& rows = call_.terms.k_table->rows;
  const int64_t count = rows.size(1), cols = packed_.cols;
  const int64_t padded = AlignUp(count, kRowsI);
  FloatBuffer table(padded * bp_.dim_stride), keys(cols * bp_.dim_stride);
  FloatBuffer d_keys(AlignUp(cols, kRowsI) * bp_.dim_stride);
  std::fill_n(table.data(), padded * bp_.dim_stride, 0.0F);
  std::fill_n(keys.data(), cols * bp_.dim_stride, 0.0F);
  std::fill_n(d_keys.data(), AlignUp(cols, kRowsI) * bp_.dim_stride, 0.0F);
  std::vector<float> scratch(static_cast<size_t>(s.head_dim));
  for (int64_t t = 0; t < count; ++t) {
    std::copy_n(TableRow(rows, t_.h, t, scratch.data()), s.head_dim,
                table.data() + t * bp_.dim_stride);
  }
  const Tokens& tokens = call_.Keys(t_.b);
  for (int64_t j = 0; j < tokens.size(); ++j) {
    call_.k.Load(t_.b, call_.KvHead(t_.h),
                 tokens.source[static_cast<size_t>(j)],
                 keys.data() + j * bp_.dim_stride);
  }
  if (want_) {
    for (int64_t t = 0; t < count; t += kRowsI) {
      AddProduct(d_key_table_.data() + t * cols, 1, cols,
                 RowMajor{keys.data(), bp_.dim_stride}, cols,
                 g_.k_table.data() + t * bp_.dim_stride, bp_.dim_stride,
                 bp_.dim_stride);
    }
  }
  for (int64_t j = 0; j < cols; j += kRowsI) {
    AddProduct(d_key_table_.data() + j, cols, kAdjacent,
               RowMajor{table.data(), bp_.dim_stride}, count,
               d_keys.data() + j * bp_.dim_stride, bp_.dim_stride,
               bp_.dim_stride);
  }
  g_.plain_keys.reserve(static_cast<size_t>(tokens.size() * s.head_dim));
  for (int64_t j = 0; j < tokens.size(); ++j) {
    const float* row = d_keys.data() + j * bp_.dim_stride;
    g_.plain_keys.insert(g_.plain_keys.end(), row, row + s.head_dim);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_KEY_TABLE_INL_H_
