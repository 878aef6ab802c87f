// Dropout of a row of weights: the hash of terms/dropout.h with SIMD. Compiled
// once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_TERMS_DROPOUT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_TERMS_DROPOUT_INL_H_
#undef LOCUS_SRC_KERNELS_TERMS_DROPOUT_INL_H_
#else
#define LOCUS_SRC_KERNELS_TERMS_DROPOUT_INL_H_
#endif

#include "kernels/plan/plan.h"
#include "kernels/simd/product-inl.h"
#include "terms/dropout.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

class DropoutTerm {
 public:
  explicit DropoutTerm(const kernels::Call& call)
      : call_(call), dropout_(call.plan.options.dropout) {
    const int64_t limit = DropoutLimit(dropout_);
    // Every weight is kept if the rate rounds to 0 in 32 bits.
    present_ = limit <= std::numeric_limits<int32_t>::max();
    limit_ = static_cast<int32_t>(limit);
    if (present_) gain_ = static_cast<float>(DropoutGain(dropout_));
  }

  bool present() const { return present_; }
  // The factor of the weights that are kept; 1 without dropout.
  float gain() const { return gain_; }

  // Calls f(j, kept) for each vector of keys [begin, end), in sorted order, of
  // query i of head h; `kept` is a lane mask.
  template <typename F>
  HWY_INLINE void ForVectors(int64_t b, int64_t h, int64_t i, int64_t begin,
                             int64_t end, const F& f) const {
    const DropoutRow row(dropout_, b, h, call_.plan.tokens.QuerySource(b, i));
    const auto middle = hn::Set(kDU, row.middle);
    const auto first = hn::Set(kDU, DropoutRow::kFirst);
    const auto second = hn::Set(kDU, DropoutRow::kSecond);
    const hn::RebindToSigned<DU> di;
    const auto limit = hn::Set(di, limit_);
    const auto call = [&](int64_t j, hn::Vec<DU> x) HWY_ATTR {
      x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), first);
      x = hn::Xor(hn::Xor(x, hn::ShiftRight<15>(x)), middle);
      x = hn::Mul(x, second);
      f(j, hn::RebindMask(kDF, hn::Lt(hn::BitCast(di, x), limit)));
    };
    const int64_t* order = call_.plan.tokens.KeyOrder(b);
    if (order == nullptr) {
      auto x = hn::Add(hn::Mul(hn::Iota(kDU, static_cast<uint32_t>(begin)),
                               hn::Set(kDU, row.step)),
                       hn::Set(kDU, row.start));
      const auto step = hn::Set(kDU, static_cast<uint32_t>(kLanes) * row.step);
      for (int64_t j = begin; j < end; j += kLanesI) {
        call(j, x);
        x = hn::Add(x, step);
      }
      return;
    }
    const int64_t count = call_.plan.mask.Keys(b);  // `end` may be past it
    for (int64_t j = begin; j < end; j += kLanesI) {
      HWY_ALIGN uint32_t x[kLanes] = {};
      for (int64_t n = 0; n < std::min(kLanesI, count - j); ++n) {
        x[n] = row.Start(order[j + n]);
      }
      call(j, hn::Load(kDU, x));
    }
  }

  // Zeroes the dropped ones of the weights p (indexed by key) of keys `seen`.
  // Writes whole vectors.
  void Drop(int64_t b, int64_t h, int64_t i, kernels::Interval seen,
            float* p) const {
    ForVectors(b, h, i, seen.begin, seen.end,
               [&](int64_t j, auto kept) HWY_ATTR {
                 hn::StoreU(hn::IfThenElseZero(kept, hn::LoadU(kDF, p + j)),
                            kDF, p + j);
               });
  }

 private:
  using DU = hn::RebindToUnsigned<DF>;
  static constexpr DU kDU = {};

  const kernels::Call& call_;
  const Dropout dropout_;
  bool present_ = false;
  int32_t limit_ = 0;
  float gain_ = 1.0F;
};

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_TERMS_DROPOUT_INL_H_
