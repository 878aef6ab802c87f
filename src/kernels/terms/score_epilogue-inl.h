// What is added to scores after the product: terms of scattered positions, key
// tables, biases that are no row by rel, and the soft-cap. Included once a SIMD
// target.
#if defined(LOCUS_SRC_KERNELS_TERMS_SCORE_EPILOGUE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_SCORE_EPILOGUE_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_SCORE_EPILOGUE_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_SCORE_EPILOGUE_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include "kernels/terms/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// What Scores adds in registers where positions are consecutive, key by key.
inline void Scorer::AddScattered(const Block& block, int64_t r, Interval keys,
                                 float* s) {
  const Tokens& t = call_.Keys(block.b);
  const int64_t m = block.position[r];
  const int64_t begin = std::max(keys.begin, block.sees[r].begin);
  const int64_t end = std::min(keys.end, block.sees[r].end);
  if (q_stride_ > 0) {
    const RelMap& map = packed_.q_table->map;
    const float* row = block.q_row + r * q_stride_;
    for (int64_t j = begin; j < end; ++j) {
      s[j] += row[RelStart(t.position[static_cast<size_t>(j)] - m, map.first,
                           map.width())];
    }
  }
  if (packed_.q_table_band) {
    // A band for each stretch of the row's keys; it carries a bias by rel.
    for (int64_t j = begin; j < end;) {
      const Run& run = t.runs[t.RunOf(j)];
      const int64_t stop = std::min(end, run.first + run.count);
      const int64_t rel = t.position[static_cast<size_t>(j)] - m;
      const ByRel band = Band(block, rel, rel + stop - 1 - j);
      const float* row = band.rows + r * band.stride;
      for (int64_t at = j; at < stop; ++at) {
        s[at] += row[RelStart(rel + at - j, band.first, band.width)];
      }
      j = stop;
    }
  }
  if (call_.terms.bias && !bias_in_band_) {
    AddBias(block, r, keys, s);
  }
}

inline void Scorer::AddKeyTable(const Block& block, int64_t r, Interval keys,
                                float* s) const {
  const float scale = packed_.ScaleOf(block.position[r]);
  const VF vscale = hn::Set(kDF, scale);
  const float* table = key_table_->Row(0);
  const int64_t cols = key_table_->cols();
  ForBuckets(
      block, r, keys, packed_.k_map, cols,
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

inline void Scorer::AddBias(const Block& block, int64_t r, Interval keys,
                            float* s) const {
  if (profile_ != nullptr) {
    AddProfile(block, r, keys, s);
    return;
  }
  const int64_t h = block.h;
  const int64_t m = block.position[r];
  const Tokens& t = call_.Keys(block.b);
  const int64_t begin = std::max(keys.begin, block.sees[r].begin);
  const int64_t end = std::min(keys.end, block.sees[r].end);
  if (by_rel_) {
    const PackedBias& bias = *packed_.bias;
    const float* row = bias.Row(h);
    const auto at = [&](int64_t rel) {
      return row + RelStart(rel, bias.map.first, bias.map.width());
    };
    ForKeys(
        block, r, keys,
        [&](int64_t j, int64_t rel) {
          const VF add = hn::LoadU(kDF, at(rel));
          hn::StoreU(hn::Add(hn::LoadU(kDF, s + j), add), kDF, s + j);
        },
        [&](int64_t j, int64_t rel) { s[j] += *at(rel); });
    return;
  }
  if (ramp_ != nullptr) {
    // Positions too far apart for a row by rel.
    const size_t head = static_cast<size_t>(h);
    const float past = static_cast<float>(ramp_->past[head] * kLog2E);
    const float future = static_cast<float>(-ramp_->future[head] * kLog2E);
    for (int64_t j = begin; j < end; ++j) {
      const float x =
          static_cast<float>(t.position[static_cast<size_t>(j)] - m);
      s[j] += x * (x < 0.0F ? past : future);
    }
    return;
  }
  AddByRuns(block, r, keys, s);
}

// A bias by two-dimensional offsets, or with a token apart.
inline void Scorer::AddByRuns(const Block& block, int64_t r, Interval keys,
                              float* s) const {
  const BucketMap& buckets = table_->buckets;
  const auto& special = buckets.special;
  const auto value = [&](int32_t bucket) {
    return PackedBias::Value(*table_, block.h, bucket);
  };
  if (special && block.position[r] == special->position) {
    const float from_it = value(special->as_query);
    ForRuns(
        block, r, keys, buckets,
        [&](int64_t j, int64_t count, int64_t /*rel*/) {
          for (int64_t e = j; e < j + count; ++e) s[e] += from_it;
        },
        [&](int64_t j) { s[j] += value(special->as_both); });
    return;
  }
  const RelMap& map = packed_.bias->map;
  const float* row = packed_.bias->Row(block.h);
  ForRuns(
      block, r, keys, buckets,
      [&](int64_t j, int64_t count, int64_t rel) {
        for (int64_t e = 0; e < count; e += kLanesI) {
          const VF add =
              hn::LoadU(kDF, row + RelStart(rel + e, map.first, map.width()));
          float* to = s + j + e;
          hn::BlendedStore(hn::Add(hn::LoadU(kDF, to), add),
                           hn::FirstN(kDF, static_cast<size_t>(count - e)), kDF,
                           to);
        }
      },
      [&](int64_t j) { s[j] += value(special->as_key); });
}

inline void Scorer::AddProfile(const Block& block, int64_t r, Interval keys,
                               float* s) const {
  const BiasProfile& p = *profile_;
  const int64_t h = p.base.size(0) == 1 ? 0 : block.h;
  const int64_t m = block.position[r];
  const double gain = p.row_gain[static_cast<size_t>(m - p.first_position)];
  const double* base = p.base.Data<double>() + h * p.base.size(1);
  const double* slope = p.slope.Data<double>() + h * p.slope.size(1);
  SegmentWalk walk(p);
  const VD vgain = hn::Set(kDD, gain), log2e = hn::Set(kDD, kLog2E);
  ForKeys(
      block, r, keys,
      [&](int64_t j, int64_t rel) {
        const double* u = packed_.profile->At(rel);
        for (int64_t l = 0; l < kLanesI; l += kLanesD) {
          const VD x = hn::Mul(hn::LoadU(kDD, u + l), vgain);
          VD value = x;  // if that is NaN
          walk.ForSegments(x, [&](size_t segment, MD lanes) {
            value = hn::IfThenElse(lanes,
                                   hn::MulAdd(hn::Set(kDD, slope[segment]), x,
                                              hn::Set(kDD, base[segment])),
                                   value);
          });
          const auto add = hn::DemoteTo(kDHalf, hn::Mul(log2e, value));
          hn::StoreU(hn::Add(hn::LoadU(kDHalf, s + j + l), add), kDHalf,
                     s + j + l);
        }
      },
      [&](int64_t j, int64_t rel) {
        const double x = *packed_.profile->At(rel) * gain;
        const size_t segment = walk.Of(x);
        s[j] +=
            static_cast<float>(kLog2E * (base[segment] + slope[segment] * x));
      });
}

inline void Scorer::Cap(float* s, int64_t begin, int64_t end) const {
  // cap tanh(s / cap), with s and cap both in units of log2.
  const float cap = static_cast<float>(call_.softcap * kLog2E);
  const VF vcap = hn::Set(kDF, cap), inverse = hn::Set(kDF, 1.0F / cap);
  for (int64_t j = begin; j < end; j += kLanesI) {
    const VF x = hn::LoadU(kDF, s + j);
    hn::StoreU(hn::Mul(vcap, hn::Tanh(kDF, hn::Mul(x, inverse))), kDF, s + j);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_SCORE_EPILOGUE_INL_H_
