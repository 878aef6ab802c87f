#include "kernels/simd/rows.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/fail.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/rows.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
//
#include "kernels/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

template <typename From, typename To>
HWY_INLINE void Convert(const From* from, int64_t count, To* to) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t n = 0;
  for (; n + lanes <= count; n += lanes) {
    Demote(d, Promote(d, from + n), to + n);
  }
  for (; n < count; ++n) Demote(d1, Promote(d1, from + n), to + n);
}

// `count` numbers of dtype as floats and back.
void PromoteRow(const void* from, int64_t count, DType dtype, float* to) {
  WithType(dtype, [&]<typename T>() {
    Convert(static_cast<const T*>(from), count, to);
  });
}
void DemoteRow(const float* from, int64_t count, DType dtype, void* to) {
  WithType(dtype,
           [&]<typename T>() { Convert(from, count, static_cast<T*>(to)); });
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace locus {
HWY_EXPORT(PromoteRow);
HWY_EXPORT(DemoteRow);

namespace kernels {
namespace {

template <typename T, typename U>
void CopyStrided(const T* src, int64_t step, int64_t count, U* dst) {
  for (int64_t d = 0; d < count; ++d) dst[d] = static_cast<U>(src[d * step]);
}

}  // namespace

Rows::Rows(const Tensor& t)
    : data_(t.Raw()), dtype_(t.dtype()), dim_(t.size(3)) {
  for (int a = 0; a < 4; ++a) stride_[a] = t.strides()[static_cast<size_t>(a)];
}

void Rows::Load(int64_t b, int64_t h, int64_t i, float* dst) const {
  const int64_t row = i * stride_[2], step = stride_[3];
  if (dtype_ == DType::kF64) {
    return CopyStrided(Head<double>(b, h) + row, step, dim_, dst);
  }
  if (dtype_ == DType::kF32) {
    const float* src = Head<float>(b, h) + row;
    if (step != 1) return CopyStrided(src, step, dim_, dst);
    std::memcpy(dst, src, static_cast<size_t>(dim_) * sizeof(float));
    return;
  }
  const uint16_t* src = Head<uint16_t>(b, h) + row;
  if (step == 1) {
    return HWY_DYNAMIC_DISPATCH(PromoteRow)(src, dim_, dtype_, dst);
  }
  uint16_t adjacent[64];
  constexpr int64_t kMost = static_cast<int64_t>(std::size(adjacent));
  for (int64_t first = 0; first < dim_; first += kMost) {
    const int64_t count = std::min(kMost, dim_ - first);
    CopyStrided(src + first * step, step, count, adjacent);
    HWY_DYNAMIC_DISPATCH(PromoteRow)(adjacent, count, dtype_, dst + first);
  }
}

void StoreFloats(const float* src, int64_t count, DType dtype, void* dst) {
  if (dtype == DType::kF64) {
    std::copy_n(src, count, static_cast<double*>(dst));
  } else if (dtype == DType::kF32) {
    std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
  } else {
    HWY_DYNAMIC_DISPATCH(DemoteRow)(src, count, dtype, dst);
  }
}

}  // namespace kernels
}  // namespace locus
#endif
