// A softmax over one row, in vectors.
#include "bench/materialised.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/softmax.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
//
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace locus::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls body(offset, mask) for vectors of `count` numbers; the mask of the last
// one keeps what lies beyond from being touched.
template <class D, class Body>
HWY_INLINE void ForEach(D d, size_t count, const Body& body) {
  const auto all = hn::FirstN(d, hn::Lanes(d));
  size_t n = 0;
  for (; n + hn::Lanes(d) <= count; n += hn::Lanes(d)) body(n, all);
  if (n < count) body(n, hn::FirstN(d, count - n));
}

void Softmax(float* HWY_RESTRICT x, const float* HWY_RESTRICT bias,
             int64_t count_in, float scale) {
  const size_t count = static_cast<size_t>(count_in);
  const hn::ScalableTag<float> d;
  const auto lowest = hn::Set(d, -INFINITY);
  const auto scales = hn::Set(d, scale);
  auto most = lowest;
  ForEach(d, count, [&](size_t n, auto mask) HWY_ATTR {
    auto s = hn::Mul(hn::MaskedLoad(mask, d, x + n), scales);
    if (bias != nullptr) s = hn::Add(s, hn::MaskedLoad(mask, d, bias + n));
    hn::BlendedStore(s, mask, d, x + n);
    most = hn::Max(most, hn::IfThenElse(mask, s, lowest));
  });
  const auto top = hn::MaxOfLanes(d, most);
  auto sum = hn::Zero(d);
  ForEach(d, count, [&](size_t n, auto mask) HWY_ATTR {
    const auto e = hn::Exp(d, hn::Sub(hn::MaskedLoad(mask, d, x + n), top));
    hn::BlendedStore(e, mask, d, x + n);
    sum = hn::Add(sum, hn::IfThenElseZero(mask, e));
  });
  const auto inverse = hn::Div(hn::Set(d, 1.0F), hn::SumOfLanes(d, sum));
  ForEach(d, count, [&](size_t n, auto mask) HWY_ATTR {
    hn::BlendedStore(hn::Mul(hn::MaskedLoad(mask, d, x + n), inverse), mask, d,
                     x + n);
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace locus::bench {

HWY_EXPORT(Softmax);

void SoftmaxRow(float* x, const float* bias, int64_t count, float scale) {
  HWY_DYNAMIC_DISPATCH(Softmax)(x, bias, count, scale);
}

}  // namespace locus::bench
#endif
