// Gradients of a bias, s += B[h, b(m - n)]: ds is summed by offset, with SIMD
// along diagonals where positions are consecutive, else key by key. Compiled
// once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_BIAS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_BIAS_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_BIAS_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_BIAS_INL_H_
#endif

#include "kernels/backward/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

class BiasGrad {
 public:
  BiasGrad(const BackwardTables& bp, const Scorer& scorer,
           const BackwardTile& tile)
      : call_(bp.packed.call),
        scorer_(scorer),
        t_(tile),
        bias_(bp.packed.bias.get()) {
    if (bias_ == nullptr) return;
    if (bias_->by_offset()) {
      sums_.Resize(DiagonalSums(call_.sizes.k_len, kBwdQueries));
    } else {
      by_pair_ = std::holds_alternative<BiasTable>(*call_.terms.bias);
      if (by_pair_) sums_.Resize(bias_->map().width() + 2 * kEndPad);
    }
  }

  void BeginQueries();
  // Blocks are added along their diagonals, or else rows one by one.
  bool by_row() const { return bias_ != nullptr && !diagonal_; }
  bool by_block() const { return diagonal_; }
  void AddBlock(const Block& block, int64_t n, int64_t tile, int64_t keys);
  // ds of row r, indexed by key.
  void AddRow(const Block& block, int64_t r, Interval keys, const float* ds) {
    if (bias_->profile()) {
      AddProfile(block, r, keys, ds);
    } else if (by_pair_) {
      AddPairs(block, r, Within(keys, block.seen[r]), ds);
    } else {
      AddKeys(block, r, Within(keys, block.seen[r]), ds);
    }
  }
  void EndQueries();

 private:
  // Size of the sums along the diagonals of a tile, with room for a vector
  // before and after.
  static int64_t DiagonalSums(int64_t keys, int64_t queries) {
    return keys + queries + 4 * kColsI + 2 * kBwdKeys;
  }
  void AddKeys(const Block& block, int64_t r, Interval seen, const float* ds);
  void AddPairs(const Block& block, int64_t r, Interval seen, const float* ds);
  void AddProfile(const Block& block, int64_t r, Interval keys,
                  const float* ds);

  const Call& call_;
  const Scorer& scorer_;
  const BackwardTile& t_;
  const BiasTerm* const bias_;  // nullptr if there is none
  bool by_pair_ = false;        // a table over a 2-D window or special tokens
  bool diagonal_ = false;
  int64_t max_offset_ = 0;  // offset of the first of the diagonal sums
  int64_t count_ = 0;
  FloatBuffer sums_;
};

inline void BiasGrad::BeginQueries() {
  diagonal_ = bias_ != nullptr && bias_->by_offset() && t_.straight;
  if (diagonal_) {
    const Interval any = t_.Any();
    max_offset_ = t_.Position(t_.count - 1) -
                  call_.Keys(t_.b).Position(any.begin) + 2 * kColsI + kBwdKeys;
    count_ = DiagonalSums(any.size(), t_.count);
  } else if (by_pair_) {
    count_ = bias_->map().width() + 2 * kEndPad;
  } else {
    return;
  }
  std::fill_n(sums_.data(), count_, 0.0F);
}

// With key column c = x + r, entry x of the sums has the offset of the first
// query and the first key, minus x. Reads outside the tile find the zeros
// between rows.
inline void BiasGrad::AddBlock(const Block& block, int64_t n, int64_t tile,
                               int64_t keys) {
  const int64_t seen = std::max(block.any.begin, tile);
  const int64_t offset =
      block.position[0] - call_.Keys(t_.b).Position(seen) + (seen - tile);
  float* to = sums_.data() + (max_offset_ - offset);
  const float* ds = t_.Ds(n * kRowsI);
  for (int64_t x = -AlignUp(kRowsI - 1, kLanesI); x < keys; x += kLanesI) {
    VF sum = hn::LoadU(kDF, to + x);
    for (int64_t r = 0; r < kRowsI; ++r) {
      sum = hn::Add(sum, hn::LoadU(kDF, ds + r * kBwdStride + x + r));
    }
    hn::StoreU(sum, kDF, to + x);
  }
}

// In float64: for scattered positions, and for ramps over far-apart ones.
inline void BiasGrad::AddKeys(const Block& block, int64_t r, Interval seen,
                              const float* ds) {
  const Tokens& t = call_.Keys(t_.b);
  for (int64_t j = seen.begin; j < seen.end; ++j) {
    const int64_t offset = block.position[r] - t.Position(j);
    const double d = static_cast<double>(ds[j]);
    if (bias_->by_offset()) {
      t_.term_sums->bias[static_cast<size_t>(bias_->map().Entry(offset))] += d;
    } else {
      (offset > 0 ? t_.term_sums->past : t_.term_sums->future) -=
          d * std::abs(static_cast<double>(offset));
    }
  }
}

// A table over a 2-D window, or with a special token.
inline void BiasGrad::AddPairs(const Block& block, int64_t r, Interval seen,
                               const float* ds) {
  const BucketMap& buckets = std::get<BiasTable>(*call_.terms.bias).buckets;
  const auto& special = buckets.special;
  const auto add = [&](int32_t bucket, int64_t j) {
    t_.term_sums->special[static_cast<size_t>(bucket)] +=
        static_cast<double>(ds[j]);
  };
  const bool from_special = special && block.position[r] == special->position;
  BiasTerm::ForRuns(
      buckets, block.position[r], call_.Keys(t_.b), seen,
      [&](int64_t j, int64_t end, int64_t offset) {
        if (from_special) {
          for (; j < end; ++j) add(special->as_query, j);
          return;
        }
        for (; j < end; j += kLanesI, offset -= kLanesI) {
          VF d = hn::LoadU(kDF, ds + j);
          if (j + kLanesI > end) {
            d = hn::IfThenElseZero(
                hn::FirstN(kDF, static_cast<size_t>(end - j)), d);
          }
          float* to = sums_.data() + PaddedEntry(bias_->map(), offset);
          hn::StoreU(hn::Add(hn::LoadU(kDF, to), d), kDF, to);
        }
      },
      [&](int64_t j) {
        add(from_special ? special->as_both : special->as_key, j);
      });
}

// x = u g,  s += base[h, segment] + slope[h, segment] x
//
// HWY_FLATTEN inlines the callbacks, so that the sums stay in registers.
inline HWY_FLATTEN void BiasGrad::AddProfile(const Block& block, int64_t r,
                                             Interval keys, const float* ds) {
  const auto& profile = std::get<BiasProfile>(*call_.terms.bias);
  const ProfileByOffset& distances = *bias_->profile();
  const ProfileRow row(profile, t_.h, block.position[r]);
  TermSums& g = *t_.term_sums;
  double* d_base = g.profile->base.MutableData<double>() + row.head;
  double* d_slope = g.profile->slope.MutableData<double>() + row.head;
  SegmentWalk walk(profile);
  const VD gain = hn::Set(kDD, row.gain), zero = hn::Zero(kDD);
  // Sums of the current segment of the walk, per lane.
  size_t open = 0;
  VD sum = zero, sum_x = zero, d_gain = zero;
  const auto close = [&] {
    d_base[open] += hn::GetLane(hn::SumOfLanes(kDD, sum));
    d_slope[open] += hn::GetLane(hn::SumOfLanes(kDD, sum_x));
    sum = sum_x = zero;
  };
  // ds is zero for keys that the row does not see.
  scorer_.ForKeys(
      block, r, keys,
      [&](int64_t j, int64_t offset) {
        const double* u = distances.At(offset);
        double* d_u = g.profile_by_offset.data() + distances.Entry(offset);
        for (int64_t l = 0; l < kLanesI; l += kLanesD) {
          const VD distance = hn::LoadU(kDD, u + l);
          const VD x = hn::Mul(distance, gain);
          const VD d = hn::PromoteTo(kDD, hn::LoadU(kDHalf, ds + j + l));
          VD d_x = zero;
          walk.ForSegments(x, [&](size_t segment, MD lanes) {
            if (segment != open) close();
            open = segment;
            const VD here = hn::IfThenElseZero(lanes, d);
            sum = hn::Add(sum, here);
            sum_x = hn::MulAdd(here, x, sum_x);
            d_x = hn::MulAdd(here, hn::Set(kDD, row.slope[segment]), d_x);
          });
          hn::StoreU(hn::MulAdd(d_x, gain, hn::LoadU(kDD, d_u + l)), kDD,
                     d_u + l);
          d_gain = hn::MulAdd(d_x, distance, d_gain);
        }
      },
      [&](int64_t j, int64_t offset) {
        const double u = *distances.At(offset), x = u * row.gain;
        const size_t segment = walk.Of(x);
        const double d = static_cast<double>(ds[j]);
        d_base[segment] += d;
        d_slope[segment] += d * x;
        const double d_x = d * row.slope[segment];
        g.profile_by_offset[static_cast<size_t>(distances.Entry(offset))] +=
            d_x * row.gain;
        g.profile->row_gain[row.query] += d_x * u;
      });
  close();
  g.profile->row_gain[row.query] += hn::GetLane(hn::SumOfLanes(kDD, d_gain));
}

inline void BiasGrad::EndQueries() {
  if (diagonal_) {
    for (int64_t n = 0; n < count_; ++n) {
      const int64_t e = bias_->map().Entry(max_offset_ - n);
      t_.term_sums->bias[static_cast<size_t>(e)] +=
          static_cast<double>(sums_.data()[n]);
    }
  } else if (by_pair_) {
    const OffsetMap& map = bias_->map();
    FoldEnds(sums_.data(), map.width());
    for (int64_t e = 0; e < map.width(); ++e) {
      t_.term_sums
          ->special[static_cast<size_t>(map.bucket[static_cast<size_t>(e)])] +=
          static_cast<double>(sums_.data()[kEndPad + e]);
    }
  }
  diagonal_ = false;
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_BIAS_INL_H_
