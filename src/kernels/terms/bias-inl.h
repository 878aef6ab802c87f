// The bias B[h, b(m - n)] for all drivers: one row per head, indexed by offset,
// if the bias depends on the offset alone; otherwise computed along the keys of
// a query. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_TERMS_BIAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_BIAS_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_BIAS_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_BIAS_INL_H_
#endif

#include <algorithm>
#include <optional>

#include "core/buffer.h"
#include "kernels/plan/plan.h"
#include "kernels/terms/log2_domain.h"
#include "kernels/terms/offset_rows-inl.h"
#include "kernels/terms/profile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

// Adds the bias of a call, times log2(e), to rows of scores.
class BiasTerm {
 public:
  // kRows: a ramp is tabulated by offset, for drivers that add rows in
  // registers, unless positions are so far apart that a row would be longer
  // than the call. kComputed: it is evaluated per key.
  enum class Ramp { kRows, kComputed };
  BiasTerm(const Bias& bias, const CallSizes& sizes, const Shape& shape,
           Ramp ramp);

  // The row by offset, padded as in PadEnds; nullptr if there are no rows.
  const float* Row(int64_t h) const { return by_offset_ ? RowOf(h) : nullptr; }
  bool by_offset() const { return by_offset_; }
  // The offsets of the rows, if there are any.
  const OffsetMap& map() const { return map_; }
  const std::optional<ProfileByOffset>& profile() const { return distances_; }

  // s[j] += B for the keys `seen` of a query of head h at position m; s is
  // indexed by key, in sorted order.
  void Add(int64_t h, int64_t m, const Tokens& keys, Interval seen,
           float* s) const;

  // Calls along(j, end, offset) for the part of each run of keys that a query
  // at m sees, with the offset of key j.
  template <typename Along>
  static HWY_INLINE void ForRuns(int64_t m, const Tokens& keys, Interval seen,
                                 const Along& along) {
    int64_t j = seen.begin;
    for (size_t run = keys.RunOf(j); j < seen.end; ++run) {
      const int64_t end =
          std::min(seen.end, keys.runs[run].first + keys.runs[run].count);
      along(j, end, m - keys.Position(j));
      j = end;
    }
  }
  // The same with the offsets of the bucket map (respaced on a grid), and
  // special(j) for a special key, which is a run of its own.
  template <typename Along, typename Special>
  static void ForRuns(const BucketMap& map, int64_t m, const Tokens& keys,
                      Interval seen, const Along& along,
                      const Special& special) {
    const int64_t own = map.Respace(m);
    ForRuns(m, keys, seen, [&](int64_t j, int64_t end, int64_t /*offset*/) {
      const int64_t n = keys.Position(j);
      if (map.special && map.special->position == n) {
        special(j);
      } else {
        along(j, end, own - map.Respace(n));
      }
    });
  }

 private:
  const float* RowOf(int64_t h) const {
    return rows_.data() + (heads_ == 1 ? 0 : h) * stride_;
  }
  float Value(int64_t h, int32_t bucket) const {
    return Log2Bias(
        table_->values.At(table_->values.size(0) == 1 ? 0 : h, bucket));
  }
  void AddPairs(int64_t h, int64_t m, const Tokens& keys, Interval seen,
                float* s) const;
  void AddRamp(int64_t h, int64_t m, const Tokens& keys, Interval seen,
               float* s) const;
  void AddProfile(int64_t h, int64_t m, const Tokens& keys, Interval seen,
                  float* s) const;

  const BiasTable* table_;
  const BiasRamp* ramp_;
  const BiasProfile* profile_;
  bool by_offset_ = false;
  OffsetMap map_;
  int64_t heads_ = 0, stride_ = 0;
  FloatBuffer rows_;
  std::optional<ProfileByOffset> distances_;
};

inline BiasTerm::BiasTerm(const Bias& bias, const CallSizes& sizes,
                          const Shape& shape, Ramp how)
    : table_(std::get_if<BiasTable>(&bias)),
      ramp_(std::get_if<BiasRamp>(&bias)),
      profile_(std::get_if<BiasProfile>(&bias)) {
  if (profile_ != nullptr) {
    distances_.emplace(*profile_);
    return;
  }
  int64_t lo = shape.min_offset, hi = shape.max_offset;
  if (table_ != nullptr) {
    map_ = OffsetMap(table_->buckets, shape);
    lo = map_.min_offset();
    hi = map_.max_offset;
    by_offset_ = !kernels::ByPair(table_->buckets);
  } else {
    if (how == Ramp::kComputed || hi - lo > 4 * (sizes.q_len + sizes.k_len)) {
      return;
    }
    map_.max_offset = hi;
    map_.bucket.resize(static_cast<size_t>(hi - lo + 1));
    by_offset_ = true;
  }
  heads_ = kernels::BiasHeads(bias);
  stride_ = map_.width() + 2 * kEndPad;
  rows_.Resize(heads_ * stride_);
  kernels::FillBiasRows(bias, hi, lo, hi, map_.width(), stride_,
                        rows_.data() + kEndPad);
  for (int64_t h = 0; h < heads_; ++h) {
    PadEnds(rows_.data() + h * stride_, map_.width());
  }
}

inline void BiasTerm::Add(int64_t h, int64_t m, const Tokens& keys,
                          Interval seen, float* s) const {
  if (seen.empty()) return;
  if (by_offset_) {
    ForRuns(m, keys, seen, [&](int64_t j, int64_t end, int64_t offset) {
      AddRowByOffset(RowOf(h), map_, j, end, offset, s);
    });
  } else if (profile_ != nullptr) {
    AddProfile(h, m, keys, seen, s);
  } else if (table_ != nullptr) {
    AddPairs(h, m, keys, seen, s);
  } else {
    AddRamp(h, m, keys, seen, s);
  }
}

// A table over a 2-D window, or with a special token.
inline void BiasTerm::AddPairs(int64_t h, int64_t m, const Tokens& keys,
                               Interval seen, float* s) const {
  const auto& special = table_->buckets.special;
  const bool from_special = special && special->position == m;
  const float of_query = from_special ? Value(h, special->as_query) : 0.0F;
  ForRuns(
      table_->buckets, m, keys, seen,
      [&](int64_t j, int64_t end, int64_t offset) {
        if (from_special) {
          for (; j < end; ++j) s[j] += of_query;
        } else {
          AddRowByOffset(RowOf(h), map_, j, end, offset, s);
        }
      },
      [&](int64_t j) {
        s[j] += Value(h, from_special ? special->as_both : special->as_key);
      });
}

// B = -past max(m - n, 0) - future max(n - m, 0)
inline void BiasTerm::AddRamp(int64_t h, int64_t m, const Tokens& keys,
                              Interval seen, float* s) const {
  const size_t head = static_cast<size_t>(h);
  const VF past = hn::Set(kDF, static_cast<float>(-ramp_->past[head] * kLog2E));
  const VF future =
      hn::Set(kDF, static_cast<float>(ramp_->future[head] * kLog2E));
  ForRuns(m, keys, seen, [&](int64_t j, int64_t end, int64_t offset) {
    for (; j < end; j += kLanesI, offset -= kLanesI) {
      const VF x = hn::Sub(hn::Set(kDF, static_cast<float>(offset)),
                           hn::Iota(kDF, 0.0F));
      const VF slope = hn::IfThenElse(hn::Gt(x, hn::Zero(kDF)), past, future);
      const VF sum = hn::MulAdd(x, slope, hn::LoadU(kDF, s + j));
      StoreFirst(kDF, sum, end - j, s + j);
    }
  });
}

// x = u(|m - n|) g(m),  B = base[h, segment] + slope[h, segment] x
inline void BiasTerm::AddProfile(int64_t h, int64_t m, const Tokens& keys,
                                 Interval seen, float* s) const {
  const ProfileRow row(*profile_, h, m);
  SegmentWalk walk(*profile_);
  const VD gain = hn::Set(kDD, row.gain), log2e = hn::Set(kDD, kLog2E);
  ForRuns(m, keys, seen, [&](int64_t j, int64_t end, int64_t offset) {
    for (; j < end; j += kLanesD, offset -= kLanesD) {
      const VD x = hn::Mul(hn::LoadU(kDD, distances_->At(offset)), gain);
      VD value = x;  // if that is NaN
      walk.ForSegments(x, [&](size_t segment, MD lanes) {
        value = hn::IfThenElse(lanes,
                               hn::MulAdd(hn::Set(kDD, row.slope[segment]), x,
                                          hn::Set(kDD, row.base[segment])),
                               value);
      });
      const auto sum = hn::Add(hn::LoadU(kDHalf, s + j),
                               hn::DemoteTo(kDHalf, hn::Mul(log2e, value)));
      StoreFirst(kDHalf, sum, end - j, s + j);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_BIAS_INL_H_
