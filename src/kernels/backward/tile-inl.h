// A tile of the backward pass: p and ds of some queries of one head against
// some keys. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_TILE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_TILE_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_TILE_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_TILE_INL_H_
#endif

#include <algorithm>
#include <span>

#include "kernels/backward/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// 96 queries x 192 keys: p and ds take 84 KiB each and stay in L2, and each of
// the five products has a depth of at least 96 (or D), so loading and storing
// the accumulators costs a few percent. 96 and 192 are multiples of both sides
// of the micro-kernel (12 x 32, 6 x 16, 6 x 8).
constexpr int64_t kBwdQueries = 96;
static_assert(kBwdQueries == DisentangledRows::kQueries);
constexpr int64_t kBwdKeys = 192;
// 32 zeros separate the rows. Reads along diagonals may go past either end of a
// row by kRows - 1 columns and a vector; the gap also spreads rows over cache
// sets.
constexpr int64_t kBwdGap = 32;
constexpr int64_t kBwdStride = kBwdKeys + kBwdGap;
static_assert(kBwdGap >= static_cast<int64_t>(kRows - 1 + kLanes));

// Scratch of one worker, and the state of its current tile.
struct BackwardTile {
  BackwardTile(const BackwardTables& bp, int64_t block_floats);

  KeySums* sums = nullptr;  // what the current task adds to
  TermSums* term_sums = nullptr;
  int64_t b = 0, h = 0;
  int64_t first = 0, count = 0;  // queries, in sorted order
  int64_t n_blocks = 0;          // of kRows queries
  bool finite = true;            // whether q and do of all queries are finite
  Block blocks[kBwdQueries / kRowsI];
  TileRows look[kBwdQueries / kRowsI];  // the current keys that each row sees
  float lse[kBwdQueries];               // of each row, times log2(e)
  float delta[kBwdQueries];             // do.o - dlse of each row
  // sum_j ds_ij k_j.Tk[b] of each row, for the gradient of its scale.
  double key_dots[kBwdQueries];

  FloatBuffer block_memory;
  FloatBuffer p, ds;    // [kBwdGap] [kBwdQueries][kBwdStride]
  FloatBuffer d_block;  // do of one block: [kRows][Dv]
  FloatBuffer q_rows, plain_rows, d_rows;  // InPanels: q, plain q, do
  FloatBuffer d_pack;                      // do: [blocks][Dv][kRows]
  FloatBuffer d_q;                         // [kBwdQueries][depth padded]
  FloatBuffer d_plain;  // [kBwdQueries][table_dim padded]: through the tables
  // Whether the positions of the queries, and of the keys that they see, are
  // consecutive, so that a diagonal has a single offset.
  bool straight = false;

  float* P(int64_t i) { return p.data() + kBwdGap + i * kBwdStride; }
  float* Ds(int64_t i) { return ds.data() + kBwdGap + i * kBwdStride; }
  const float* Ds(int64_t i) const {
    return ds.data() + kBwdGap + i * kBwdStride;
  }
  InPanels Q() const { return {q_rows.data(), kBwdQueries}; }
  InPanels Plain() const { return {plain_rows.data(), kBwdQueries}; }
  InPanels DOut() const { return {d_rows.data(), kBwdQueries}; }
  int64_t Position(int64_t i) const {
    return blocks[i / kRowsI].position[i % kRowsI];
  }
  // The smallest interval that contains the keys that any query sees.
  Interval Any() const {
    Interval any;
    for (const Block& block :
         std::span(blocks, static_cast<size_t>(n_blocks))) {
      any = Around(any, block.any);
    }
    return any;
  }
};

inline BackwardTile::BackwardTile(const BackwardTables& bp,
                                  int64_t block_floats)
    : block_memory(kBwdQueries / kRowsI * block_floats),
      p(kBwdGap + kBwdQueries * kBwdStride),
      ds(kBwdGap + kBwdQueries * kBwdStride),
      d_block(kRowsI * bp.packed.call.sizes.value_dim),
      q_rows(kBwdQueries * bp.depth_stride),
      d_rows(kBwdQueries * bp.value_pad),
      d_pack(kBwdQueries * bp.packed.call.sizes.value_dim),
      d_q(kBwdQueries * bp.depth_stride) {
  if (bp.packed.q_table) {
    plain_rows.Resize(kBwdQueries * bp.table_stride);
    d_plain.Resize(kBwdQueries * bp.table_stride);
  }
  // The gaps between rows stay zero throughout.
  std::fill_n(p.data(), kBwdGap + kBwdQueries * kBwdStride, 0.0F);
  std::fill_n(ds.data(), kBwdGap + kBwdQueries * kBwdStride, 0.0F);
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_TILE_INL_H_
