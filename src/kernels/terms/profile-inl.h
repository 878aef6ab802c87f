// A bias profile along the keys of a query: x = u(|m - n|) g(m), and the
// segment of each x. Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_TERMS_PROFILE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_PROFILE_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_PROFILE_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_PROFILE_INL_H_
#endif

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

#include "kernels/simd/product-inl.h"
#include "locus/terms.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

using DD = hn::ScalableTag<double>;
using VD = hn::Vec<DD>;
using MD = hn::Mask<DD>;
constexpr DD kDD;
constexpr hn::Rebind<float, DD> kDHalf;  // as many floats as kDD has doubles
constexpr int64_t kLanesD = static_cast<int64_t>(HWY_LANES(double));

// u(|m - n|) in the order of the keys, padded by a vector on either side.
class ProfileByOffset {
 public:
  explicit ProfileByOffset(const BiasProfile& profile)
      : reach_(static_cast<int64_t>(profile.distance.size()) - 1) {
    for (int64_t e = -reach_ - kLanesI; e <= reach_ + kLanesI; ++e) {
      const int64_t distance = std::min(std::abs(e), reach_);
      u_.push_back(profile.distance[static_cast<size_t>(distance)]);
    }
  }
  const double* At(int64_t offset) const { return u_.data() + Entry(offset); }
  // The index of an offset in a row of size().
  int64_t Entry(int64_t offset) const { return reach_ + kLanesI - offset; }
  size_t size() const { return u_.size(); }
  int64_t reach() const { return reach_; }

 private:
  int64_t reach_;
  std::vector<double> u_;
};

// The parts of a profile that a query of head h at position m needs.
struct ProfileRow {
  ProfileRow(const BiasProfile& profile, int64_t h, int64_t m)
      : query(static_cast<size_t>(m - profile.first_position)),
        head((profile.base.size(0) == 1 ? 0 : h) * profile.base.size(1)),
        gain(profile.row_gain[query]),
        base(profile.base.Data<double>() + head),
        slope(profile.slope.Data<double>() + head) {}

  size_t query;  // its entry of row_gain
  int64_t head;  // the start of its head in base and slope
  double gain;
  const double* base;
  const double* slope;
};

// The current segment of a walk along the keys. x varies slowly, so the next
// segment is found by a short linear search.
class SegmentWalk {
 public:
  explicit SegmentWalk(const BiasProfile& profile) : knots_(profile.knots) {
    SetBounds();
  }

  size_t Of(double x) {
    if (x >= low_ && x < high_) return at_;
    while (at_ > 0 && x < knots_[at_ - 1]) --at_;
    while (at_ < knots_.size() && x >= knots_[at_]) ++at_;
    SetBounds();
    return at_;
  }

  // Calls f(segment, lanes) for each segment that contains lanes of x.
  template <typename F>
  HWY_INLINE void ForSegments(VD x, const F& f) {
    MD inside = Inside(x);
    if (hn::AllTrue(kDD, inside)) {
      f(at_, inside);
      return;
    }
    HWY_ALIGN double lane[kLanesD];
    hn::Store(x, kDD, lane);
    MD left = hn::Eq(x, x);  // NaN is in no segment
    while (!hn::AllFalse(kDD, left)) {
      Of(lane[hn::FindFirstTrue(kDD, left)]);
      inside = hn::And(left, Inside(x));
      f(at_, inside);
      left = hn::AndNot(inside, left);
    }
  }

 private:
  HWY_INLINE MD Inside(VD x) const {
    const MD above = hn::Ge(x, hn::Set(kDD, low_));
    if (at_ == knots_.size()) return above;  // infinity too
    return hn::And(above, hn::Lt(x, hn::Set(kDD, high_)));
  }
  void SetBounds() {
    constexpr double kFar = std::numeric_limits<double>::infinity();
    low_ = at_ == 0 ? -kFar : knots_[at_ - 1];
    high_ = at_ == knots_.size() ? kFar : knots_[at_];
  }

  const std::vector<double>& knots_;
  size_t at_ = 0;
  double low_ = 0.0, high_ = 0.0;
};

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_PROFILE_INL_H_
