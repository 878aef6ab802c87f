// Gradients of a bias, row by row: where it is no row by rel, or diagonals are
// not straight. Included once a SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_BIAS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_BIAS_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_BIAS_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_BIAS_INL_H_
#endif

#include "kernels/backward/terms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// A bias by two-dimensional offsets, or with a token apart.
inline void TermBackward::AddByRuns(const Block& block, int64_t r,
                                    Interval keys, const float* ds) {
  const BucketMap& buckets = std::get<BiasTable>(*call_.terms.bias).buckets;
  const auto& special = buckets.special;
  const auto add = [&](int32_t bucket, int64_t j) {
    g_.special[static_cast<size_t>(bucket)] += static_cast<double>(ds[j]);
  };
  if (special && block.position[r] == special->position) {
    scorer_.ForRuns(
        block, r, keys, buckets,
        [&](int64_t j, int64_t count, int64_t /*rel*/) {
          for (int64_t e = j; e < j + count; ++e) add(special->as_query, e);
        },
        [&](int64_t j) { add(special->as_both, j); });
    return;
  }
  const RelMap& map = packed_.bias->map;
  scorer_.ForRuns(
      block, r, keys, buckets,
      [&](int64_t j, int64_t count, int64_t rel) {
        for (int64_t e = 0; e < count; e += kLanesI) {
          const VF d = hn::IfThenElseZero(
              hn::FirstN(kDF, static_cast<size_t>(count - e)),
              hn::LoadU(kDF, ds + j + e));
          float* to =
              t_.rel_sum.data() + RelStart(rel + e, map.first, map.width());
          hn::StoreU(hn::Add(hn::LoadU(kDF, to), d), kDF, to);
        }
      },
      [&](int64_t j) { add(special->as_key, j); });
}

// Bias gradients key by key, in float64: for scattered positions and ramps over
// far positions.
inline void TermBackward::AddBias(const Block& block, int64_t r, Interval keys,
                                  const float* ds) {
  const Tokens& t = call_.Keys(t_.b);
  const int64_t m = block.position[r];
  const int64_t begin = std::max(keys.begin, block.sees[r].begin);
  const int64_t end = std::min(keys.end, block.sees[r].end);
  for (int64_t j = begin; j < end; ++j) {
    const int64_t n = t.position[static_cast<size_t>(j)];
    const double d = static_cast<double>(ds[j]);
    if (bias_by_rel_) {
      const RelMap& map = packed_.bias->map;
      const int64_t e =
          std::clamp<int64_t>(n - m - map.first, 0, map.width() - 1);
      g_.bias[static_cast<size_t>(e)] += d;
    } else {
      (n < m ? g_.past : g_.future) -= d * std::abs(static_cast<double>(m - n));
    }
  }
}

// x = u g,  s += base[h, s] + slope[h, s] x
inline void TermBackward::AddProfile(const Block& block, int64_t r,
                                     Interval keys, const float* ds) {
  const auto& profile = std::get<BiasProfile>(*call_.terms.bias);
  const int64_t row = profile.base.size(0) == 1 ? 0 : t_.h;
  const int64_t at = row * profile.base.size(1);
  const size_t q_row =
      static_cast<size_t>(block.position[r] - profile.first_position);
  const double gain = profile.row_gain[q_row];
  double* d_base = g_.profile->base.MutableData<double>() + at;
  double* d_slope = g_.profile->slope.MutableData<double>() + at;
  const double* slope = profile.slope.Data<double>() + at;
  SegmentWalk walk(profile);
  const VD vgain = hn::Set(kDD, gain), zero = hn::Zero(kDD);
  // Sums of the segment that the walk is in, by lane.
  size_t open = 0;
  VD sum = zero, sum_x = zero, d_gain = zero;
  const auto close = [&] {
    d_base[open] += hn::GetLane(hn::SumOfLanes(kDD, sum));
    d_slope[open] += hn::GetLane(hn::SumOfLanes(kDD, sum_x));
    sum = sum_x = zero;
  };
  // Where the row sees nothing, ds is zero.
  scorer_.ForKeys(
      block, r, keys,
      [&](int64_t j, int64_t rel) {
        const double* u = packed_.profile->At(rel);
        double* d_u = g_.profile_by_rel.data() + packed_.profile->Index(rel);
        for (int64_t l = 0; l < kLanesI; l += kLanesD) {
          const VD distance = hn::LoadU(kDD, u + l);
          const VD x = hn::Mul(distance, vgain);
          const VD d = hn::PromoteTo(kDD, hn::LoadU(kDHalf, ds + j + l));
          VD d_x = zero;
          walk.ForSegments(x, [&](size_t segment, MD lanes) {
            if (segment != open) close();
            open = segment;
            const VD here = hn::IfThenElseZero(lanes, d);
            sum = hn::Add(sum, here);
            sum_x = hn::MulAdd(here, x, sum_x);
            d_x = hn::MulAdd(here, hn::Set(kDD, slope[segment]), d_x);
          });
          hn::StoreU(hn::MulAdd(d_x, vgain, hn::LoadU(kDD, d_u + l)), kDD,
                     d_u + l);
          d_gain = hn::MulAdd(d_x, distance, d_gain);
        }
      },
      [&](int64_t j, int64_t rel) {
        const double u = *packed_.profile->At(rel), x = u * gain;
        const size_t segment = walk.Of(x);
        const double d = static_cast<double>(ds[j]);
        d_base[segment] += d;
        d_slope[segment] += d * x;
        const double d_x = d * slope[segment];
        g_.profile_by_rel[static_cast<size_t>(packed_.profile->Index(rel))] +=
            d_x * gain;
        g_.profile->row_gain[q_row] += d_x * u;
      });
  close();
  g_.profile->row_gain[q_row] += hn::GetLane(hn::SumOfLanes(kDD, d_gain));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_BIAS_INL_H_
