// Gradients along straight diagonals: of a bias by rel, and of a query table
// too wide for whole rows. Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_BAND_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_BAND_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_BAND_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_BAND_INL_H_
#endif

#include "kernels/backward/terms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// Sums ds of a block along its diagonals: with key column c = x + r, entry x of
// the sum is that of rel = (first key - first query) + x. What lies outside the
// tile are the zeros between rows.
inline void TermBackward::SumDiagonals(const Block& block, int64_t i,
                                       int64_t tile, int64_t keys) {
  const Tokens& t = call_.Keys(t_.b);
  const int64_t seen = std::max(block.any.begin, tile);
  const int64_t rel =
      t.position[static_cast<size_t>(seen)] - (seen - tile) - block.position[0];
  float* to = t_.rel_sum.data() + (rel - sum_first_);
  const float* ds = t_.Ds(i);
  for (int64_t x = -AlignUp(kRowsI - 1, kLanesI); x < keys; x += kLanesI) {
    VF sum = hn::LoadU(kDF, to + x);
    for (int64_t r = 0; r < kRowsI; ++r) {
      sum = hn::Add(sum, hn::LoadU(kDF, ds + r * kBwdStride + x + r));
    }
    hn::StoreU(sum, kDF, to + x);
  }
}

// A query table too wide for whole rows: dq += ds_rel Tq and dTq += ds_rel^T q,
// with ds_rel[i, rel] = ds[i, key at rel]. Where diagonals are straight that is
// ds itself, read askew: one more column a row. Reads past either end of a row
// find the zeros between rows.
inline void TermBackward::AddBand(int64_t tile, int64_t keys) {
  const RelMap& map = packed_.q_table->map;
  const Tokens& t = call_.Keys(t_.b);
  const int64_t seen = std::max(t_.Any().begin, tile);
  // Entry of the table for the first query and the first key of the tile.
  const int64_t origin = straight_
                             ? t.position[static_cast<size_t>(seen)] -
                                   (seen - tile) - t_.Position(0) - map.first
                             : 0;
  const int64_t rows = t_.n_blocks * kRowsI;
  if (!straight_ || origin - (rows - 1) < 0 || origin + keys > map.width()) {
    AddScatteredBand(tile, keys);
    return;
  }
  const PackedRows& table = *bp_.q_rows;
  for (int64_t n = 0; n < t_.n_blocks; ++n) {
    const Block& block = t_.blocks[static_cast<size_t>(n)];
    const int64_t from = std::max(block.any.begin, tile) - tile;
    const int64_t to = std::min(block.any.end, tile + keys) - tile;
    if (from >= to) continue;
    // Columns x = c - r from the last row's first to the first row's last.
    const int64_t x = from - (kRowsI - 1);
    AddProduct(t_.Ds(n * kRowsI) + x, 1, Fixed<kBwdStride + 1>(),
               table.Head(t_.h).From(origin - n * kRowsI + x), to - x,
               t_.d_plain.data() + n * kRowsI * bp_.dim_stride, bp_.dim_stride,
               bp_.dim_stride);
  }
  // Entry x of the band belongs to column x + i of query i.
  for (int64_t x = -(rows - 1); x < keys; x += kRowsI) {
    const int64_t from = std::max<int64_t>(-(x + kRowsI - 1), 0);
    const int64_t to = std::min(rows, keys - x);
    if (from >= to) continue;
    AddProduct(t_.Ds(from) + x + from, kBwdStride + 1, kAdjacent,
               t_.Plain().From(from), to - from,
               g_.q_table.data() + (origin + x) * bp_.dim_stride,
               bp_.dim_stride, bp_.dim_stride);
  }
}

inline void TermBackward::AddScatteredBand(int64_t tile, int64_t keys) {
  const RelMap& map = packed_.q_table->map;
  const Tokens& t = call_.Keys(t_.b);
  const int64_t width = map.width();
  const auto rel_at = [&](int64_t j, int64_t m) {
    return std::clamp<int64_t>(
        t.position[static_cast<size_t>(j)] - m - map.first, 0, width - 1);
  };
  const auto seen = [&](const Block& block, int64_t r) {
    return Interval{std::max(block.sees[r].begin, tile),
                    std::min(block.sees[r].end, tile + keys)};
  };
  int64_t first = width, last = -1;
  for (const Block& block : t_.blocks) {
    for (int64_t r = 0; r < block.count; ++r) {
      const auto [begin, end] = seen(block, r);
      if (begin >= end) continue;
      first = std::min(first, rel_at(begin, block.position[r]));
      last = std::max(last, rel_at(end - 1, block.position[r]));
    }
  }
  if (last < first) return;
  // Rows of the band are accumulated kRows rels at a time. Far positions may
  // span a wide table: in pieces.
  constexpr int64_t kPiece = 1020;  // a multiple of 12 and of 6
  const PackedRows& table = *bp_.q_rows;
  for (int64_t piece = AlignDown(first, kRowsI); piece <= last;
       piece += kPiece) {
    const int64_t span = AlignUp(std::min(last + 1 - piece, kPiece), kRowsI);
    const int64_t stride = AlignUp(span, kLanesI);
    t_.band.Resize(kBwdQueries * stride);
    std::fill_n(t_.band.data(), kBwdQueries * stride, 0.0F);
    bool any = false;
    for (int64_t i = 0; i < t_.count; ++i) {
      const Block& block = t_.blocks[static_cast<size_t>(i / kRowsI)];
      const auto [begin, end] = seen(block, i % kRowsI);
      const float* ds = t_.Ds(i) - tile;
      for (int64_t j = begin; j < end; ++j) {
        const int64_t at = rel_at(j, t_.Position(i)) - piece;
        if (at < 0 || at >= span) continue;
        t_.band.data()[i * stride + at] += ds[j];
        any = true;
      }
    }
    if (!any) continue;
    const int64_t depth = std::min(span, width - piece);
    for (int64_t n = 0; n < t_.n_blocks; ++n) {
      AddProduct(t_.band.data() + n * kRowsI * stride, 1, stride,
                 table.Head(t_.h).From(piece), depth,
                 t_.d_plain.data() + n * kRowsI * bp_.dim_stride,
                 bp_.dim_stride, bp_.dim_stride);
    }
    for (int64_t e = 0; e < span; e += kRowsI) {
      AddProduct(t_.band.data() + e, stride, kAdjacent, t_.Plain(),
                 t_.n_blocks * kRowsI,
                 g_.q_table.data() + (piece + e) * bp_.dim_stride,
                 bp_.dim_stride, bp_.dim_stride);
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_BAND_INL_H_
