// Gradients of the terms that touch scores and values: sums of ds (or p) along
// diagonals, by rel. Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_TERMS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_TERMS_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_TERMS_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_TERMS_INL_H_
#endif

#include "kernels/backward/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

class TermBackward {
 public:
  TermBackward(const BackwardPacked& bp, const Scorer& scorer, bool want,
               BackwardTile& tile, TaskGrads& grads);

  void BeginHead();
  void BeginQueries();
  // dp += do.Tv[b], before ds is known. dp is indexed by key.
  void AddToDp(const Block& block, int64_t i, int64_t r, Interval keys,
               float* dp) const;
  // After p and ds of keys [tile, tile + keys) are known.
  void AddKeys(int64_t tile, int64_t keys);
  // Adds to d_plain what comes back to the queries through the tables.
  void EndQueries();
  void EndHead();

 private:
  void AddRow(const Block& block, int64_t i, int64_t r, int64_t tile,
              Interval keys);
  void AddScatteredKeys(const Block& block, int64_t r, Interval keys,
                        const float* ds);
  void AddFarKeys(const Block& block, int64_t r, Interval keys,
                  const float* ds);
  void AddNearKeys(Interval any);
  void AddBias(const Block& block, int64_t r, Interval keys, const float* ds);
  void AddByRuns(const Block& block, int64_t r, Interval keys, const float* ds);
  void AddProfile(const Block& block, int64_t r, Interval keys,
                  const float* ds);
  void SumDiagonals(const Block& block, int64_t i, int64_t tile, int64_t keys);
  void AddBand(int64_t tile, int64_t keys);
  void AddScatteredBand(int64_t tile, int64_t keys);
  void AddDiagonal(const Block& block, int64_t r, Interval keys, const float* x,
                   const RelMap& map, float* to) const;

  const BackwardPacked& bp_;
  const Packed& packed_;
  const Call& call_;
  const Scorer& scorer_;
  BackwardTile& t_;
  TaskGrads& g_;
  bool want_;                 // gradients of terms are asked for
  bool short_table_ = false;  // q_table by whole rows
  bool bias_by_rel_ = false;
  int64_t rel_stride_ = 0;    // of a query's ds by rel
  int64_t v_rel_stride_ = 0;  // of a query's p by rel, and of do.Tv
  // A key table without a query table over the same buckets has rows of ds by
  // rel of its own.
  int64_t key_rel_stride_ = 0;
  // Queries and keys of the tile count up by one, so diagonals are straight.
  bool straight_ = false;
  int64_t sum_first_ = 0;  // rel of the first of rel_sum, where straight
  int64_t sum_count_ = 0;
  FloatBuffer d_key_table_;
};

inline TermBackward::TermBackward(const BackwardPacked& bp,
                                  const Scorer& scorer, bool want,
                                  BackwardTile& tile, TaskGrads& grads)
    : bp_(bp),
      packed_(bp.packed),
      call_(bp.packed.call),
      scorer_(scorer),
      t_(tile),
      g_(grads),
      want_(want) {
  const Terms& terms = call_.terms;
  if (packed_.q_table) {
    short_table_ = !packed_.q_table_band;
    const int64_t width = packed_.q_table->map.width();
    if (short_table_) rel_stride_ = AlignUp(width, kLanesI) + 2 * kRelPad;
    // Added to kRows rows at a time, from any row on.
    g_.q_table.assign(static_cast<size_t>((width + kRowsI) * bp_.dim_stride),
                      0.0F);
  }
  if (scorer_.needs_key_table() &&
      !(short_table_ && packed_.q_table->map == packed_.k_map)) {
    key_rel_stride_ = AlignUp(packed_.k_map.width(), kLanesI) + 2 * kRelPad;
  }
  if (packed_.v_table) {
    const int64_t width = packed_.v_table->map.width();
    v_rel_stride_ = AlignUp(bp_.v_panels->cols, kLanesI) + 2 * kRelPad;
    g_.v_table.assign(
        static_cast<size_t>(AlignUp(width, kRowsI) * bp_.value_pad), 0.0F);
  }
  if (!want_) return;
  if (terms.bias) {
    const auto* table = std::get_if<BiasTable>(&*terms.bias);
    const bool apart = table != nullptr && (table->buckets.grid.has_value() ||
                                            table->buckets.special.has_value());
    bias_by_rel_ = packed_.bias != nullptr && !apart;
    if (bias_by_rel_) {
      g_.bias.assign(static_cast<size_t>(packed_.bias->map.width()), 0.0);
    } else if (apart) {
      g_.special.assign(static_cast<size_t>(table->buckets.count), 0.0);
    } else if (const auto* profile = std::get_if<BiasProfile>(&*terms.bias)) {
      g_.profile = BiasProfileGrads{
          std::vector<double>(), std::vector<double>(profile->row_gain.size()),
          Tensor::Zeros(DType::kF64, profile->base.shape()),
          Tensor::Zeros(DType::kF64, profile->slope.shape())};
      g_.profile_by_rel.assign(packed_.profile->size(), 0.0);
    }
  }
  if (terms.k_table) {
    if (packed_.fold_key_row) {
      g_.key_row.assign(static_cast<size_t>(call_.sizes.head_dim), 0.0);
    } else {
      g_.k_table.assign(
          static_cast<size_t>(AlignUp(terms.k_table->buckets.count, kRowsI) *
                              bp_.dim_stride),
          0.0F);
    }
  }
}

inline void TermBackward::BeginQueries() {
  if (short_table_) {
    t_.by_rel.Resize(kBwdQueries * rel_stride_);
    std::fill_n(t_.by_rel.data(), kBwdQueries * rel_stride_, 0.0F);
  }
  if (key_rel_stride_ > 0) {
    t_.key_by_rel.Resize(kBwdQueries * key_rel_stride_);
    std::fill_n(t_.key_by_rel.data(), kBwdQueries * key_rel_stride_, 0.0F);
  }
  if (v_rel_stride_ > 0) {
    // do.Tv by rel, once a query; and p by rel.
    const int64_t dim = call_.sizes.value_dim;
    t_.v_row.Resize(kBwdQueries * v_rel_stride_);
    t_.p_by_rel.Resize(kBwdQueries * v_rel_stride_);
    std::fill_n(t_.p_by_rel.data(), kBwdQueries * v_rel_stride_, 0.0F);
    const PackedTable& table = *bp_.v_panels;
    for (int64_t n = 0; n < t_.n_blocks; ++n) {
      float* rows_to = t_.v_row.data() + n * kRowsI * v_rel_stride_;
      for (int64_t p = 0; p < table.cols; p += kColsI) {
        Product(
            t_.d_pack.data() + n * kRowsI * dim, kRows, kAdjacent,
            table.Head(t_.h) + p * dim, kCols, static_cast<size_t>(dim),
            Store{rows_to + kRelPad + p, static_cast<size_t>(v_rel_stride_)});
      }
      for (int64_t r = 0; r < kRowsI; ++r) {
        PadRel(rows_to + r * v_rel_stride_, table.map.width());
      }
    }
  }
  if (!g_.special.empty()) {
    const int64_t size = packed_.bias->map.width() + 2 * kRelPad;
    t_.rel_sum.Resize(size);
    std::fill_n(t_.rel_sum.data(), size, 0.0F);
  }
  const Tokens& keys = call_.Keys(t_.b);
  const Interval any = t_.Any();
  if (any.begin >= any.end) return;
  straight_ =
      keys.runs.size() == 1 || keys.RunOf(any.begin) == keys.RunOf(any.end - 1);
  for (int64_t i = 1; i < t_.count; ++i) {
    straight_ &= t_.Position(i) == t_.Position(0) + i;
  }
  if (bias_by_rel_ && straight_) {
    // Room for a vector before and after.
    sum_first_ = keys.position[static_cast<size_t>(any.begin)] -
                 t_.Position(t_.count - 1) - 2 * kColsI - kBwdKeys;
    sum_count_ = any.end - any.begin + t_.count + 4 * kColsI + 2 * kBwdKeys;
    t_.rel_sum.Resize(sum_count_);
    std::fill_n(t_.rel_sum.data(), sum_count_, 0.0F);
  }
}

inline void TermBackward::AddToDp(const Block& block, int64_t i, int64_t r,
                                  Interval keys, float* dp) const {
  if (v_rel_stride_ == 0) return;
  const RelMap& map = packed_.v_table->map;
  const float* row = t_.v_row.data() + i * v_rel_stride_;
  scorer_.ForKeys(
      block, r, keys,
      [&](int64_t j, int64_t rel) {
        const VF add =
            hn::LoadU(kDF, row + RelStart(rel, map.first, map.width()));
        hn::StoreU(hn::Add(hn::LoadU(kDF, dp + j), add), kDF, dp + j);
      },
      [&](int64_t j, int64_t rel) {
        dp[j] += row[RelStart(rel, map.first, map.width())];
      });
}

inline void TermBackward::AddKeys(int64_t tile, int64_t keys) {
  const bool by_row =
      short_table_ || v_rel_stride_ > 0 || scorer_.needs_key_table() ||
      (want_ && call_.terms.bias && !(bias_by_rel_ && straight_));
  for (int64_t n = 0; n < t_.n_blocks; ++n) {
    const Block& block = t_.blocks[static_cast<size_t>(n)];
    const int64_t begin = std::max(block.any.begin, tile);
    const int64_t end = std::min(block.any.end, tile + keys);
    if (begin >= end) continue;
    if (bias_by_rel_ && straight_) SumDiagonals(block, n * kRowsI, tile, keys);
    if (!by_row) continue;
    for (int64_t r = 0; r < block.count; ++r) {
      const Interval seen = Scorer::Vectors(block, r, tile, tile + keys);
      if (seen.begin < seen.end) AddRow(block, n * kRowsI + r, r, tile, seen);
    }
  }
  if (packed_.q_table_band) AddBand(tile, keys);
}

inline void TermBackward::AddRow(const Block& block, int64_t i, int64_t r,
                                 int64_t tile, Interval keys) {
  const float* p = t_.P(i) - tile;
  const float* ds = t_.Ds(i) - tile;
  if (short_table_) {
    AddDiagonal(block, r, keys, ds, packed_.q_table->map,
                t_.by_rel.data() + i * rel_stride_);
  }
  if (v_rel_stride_ > 0) {
    AddDiagonal(block, r, keys, p, packed_.v_table->map,
                t_.p_by_rel.data() + i * v_rel_stride_);
  }
  if (scorer_.needs_key_table()) {
    if (!straight_) {
      AddScatteredKeys(block, r, keys, ds);
    } else {
      if (key_rel_stride_ > 0) {
        AddDiagonal(block, r, keys, ds, packed_.k_map,
                    t_.key_by_rel.data() + i * key_rel_stride_);
      }
      AddFarKeys(block, r, keys, ds);
    }
  }
  if (!want_ || !call_.terms.bias || (bias_by_rel_ && straight_)) return;
  if (g_.profile) {
    AddProfile(block, r, keys, ds);
  } else if (!g_.special.empty()) {
    AddByRuns(block, r, keys, ds);
  } else {
    AddBias(block, r, keys, ds);
  }
}

// Adds x[keys) to `to` by rel, padded as PadRel.
inline void TermBackward::AddDiagonal(const Block& block, int64_t r,
                                      Interval keys, const float* x,
                                      const RelMap& map, float* to) const {
  const int64_t width = map.width();
  VF low = hn::Zero(kDF), high = hn::Zero(kDF);
  scorer_.ForKeys(
      block, r, keys,
      [&](int64_t j, int64_t rel) {
        const int64_t at = RelStart(rel, map.first, width);
        const VF w = hn::LoadU(kDF, x + j);
        if (at == 0) {
          low = hn::Add(low, w);
        } else if (at == width + kRelPad) {
          high = hn::Add(high, w);
        } else {
          hn::StoreU(hn::Add(hn::LoadU(kDF, to + at), w), kDF, to + at);
        }
      },
      [&](int64_t j, int64_t rel) {
        to[RelStart(rel, map.first, width)] += x[j];
      });
  to[0] += hn::GetLane(hn::SumOfLanes(kDF, low));
  to[width + kRelPad] += hn::GetLane(hn::SumOfLanes(kDF, high));
}

inline void TermBackward::EndQueries() {
  const int64_t rows = t_.n_blocks * kRowsI;
  const auto fold = [](float* row, int64_t width) {
    for (int64_t e = 0; e < kRelPad; ++e) {
      row[kRelPad] += row[e];
      row[kRelPad + width - 1] += row[kRelPad + width + e];
    }
  };
  if (scorer_.needs_key_table() && straight_) AddNearKeys(t_.Any());
  if (short_table_) {
    const int64_t width = packed_.q_table->map.width();
    for (int64_t i = 0; i < rows; ++i) {
      fold(t_.by_rel.data() + i * rel_stride_, width);
    }
    const PackedRows& table = *bp_.q_rows;
    for (int64_t n = 0; n < t_.n_blocks; ++n) {
      AddProduct(t_.by_rel.data() + n * kRowsI * rel_stride_ + kRelPad, 1,
                 rel_stride_, table.Head(t_.h), width,
                 t_.d_plain.data() + n * kRowsI * bp_.dim_stride,
                 bp_.dim_stride, bp_.dim_stride);
    }
    for (int64_t e = 0; e < width; e += kRowsI) {
      AddProduct(t_.by_rel.data() + kRelPad + e, rel_stride_, kAdjacent,
                 t_.Plain(), rows, g_.q_table.data() + e * bp_.dim_stride,
                 bp_.dim_stride, bp_.dim_stride);
    }
  }
  if (v_rel_stride_ > 0) {
    const int64_t width = packed_.v_table->map.width();
    for (int64_t i = 0; i < rows; ++i) {
      fold(t_.p_by_rel.data() + i * v_rel_stride_, width);
    }
    for (int64_t e = 0; e < width; e += kRowsI) {
      AddProduct(t_.p_by_rel.data() + kRelPad + e, v_rel_stride_, kAdjacent,
                 t_.DOut(), rows, g_.v_table.data() + e * bp_.value_pad,
                 bp_.value_pad, bp_.value_pad);
    }
  }
  if (bias_by_rel_ && straight_) {
    const RelMap& map = packed_.bias->map;
    for (int64_t n = 0; n < sum_count_; ++n) {
      const int64_t e =
          std::clamp<int64_t>(sum_first_ + n - map.first, 0, map.width() - 1);
      g_.bias[static_cast<size_t>(e)] +=
          static_cast<double>(t_.rel_sum.data()[n]);
    }
  }
  if (!g_.special.empty()) {
    const RelMap& map = packed_.bias->map;
    fold(t_.rel_sum.data(), map.width());
    for (int64_t e = 0; e < map.width(); ++e) {
      g_.special[static_cast<size_t>(map.bucket[static_cast<size_t>(e)])] +=
          static_cast<double>(t_.rel_sum.data()[kRelPad + e]);
    }
  }
  straight_ = false;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_TERMS_INL_H_
