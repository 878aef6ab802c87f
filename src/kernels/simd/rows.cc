#include "kernels/simd/rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>

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

// Converts `count` elements of type dtype to floats, and back.
void PromoteRow(const void* from, int64_t count, DType dtype, float* to) {
  WithStoredType(dtype, [&]<typename T>() {
    Convert(static_cast<const T*>(from), count, to);
  });
}
void DemoteRow(const float* from, int64_t count, DType dtype, void* to) {
  WithType(dtype,
           [&]<typename T>() { Convert(from, count, static_cast<T*>(to)); });
}

// The bits of the largest |x|; as bits, NaN is larger than infinity, and
// infinity than any number.
int32_t LargestBits(const float* x, int64_t count) {
  const hn::ScalableTag<int32_t> d;
  const hn::RebindToFloat<decltype(d)> df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto magnitude = hn::Set(d, 0x7FFFFFFF);
  auto most = hn::Zero(d);
  int64_t n = 0;
  for (; n + lanes <= count; n += lanes) {
    const auto bits = hn::BitCast(d, hn::LoadU(df, x + n));
    most = hn::Max(most, hn::And(bits, magnitude));
  }
  int32_t largest = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; n < count; ++n) {
    largest =
        std::max(largest, std::bit_cast<int32_t>(x[n]) & int32_t{0x7FFFFFFF});
  }
  return largest;
}

// x[0 .. count) *= scale.
void MultiplyRow(float scale, int64_t count, float* x) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t n = 0;
  for (; n + lanes <= count; n += lanes) {
    hn::StoreU(hn::Mul(hn::Set(d, scale), hn::LoadU(d, x + n)), d, x + n);
  }
  for (; n < count; ++n) x[n] *= scale;
}

// x / scale, rounded to nearest even; the scale ensures the range [-127, 127].
template <class D>
HWY_INLINE void DivideAndRound(D d, const float* x, float scale, int8_t* to) {
  const hn::Rebind<int8_t, D> d8;
  const auto ratio = hn::Div(hn::LoadU(d, x), hn::Set(d, scale));
  hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(ratio)), d8, to);
}

void DivideRow(const float* x, int64_t count, float scale, int8_t* to) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t n = 0;
  for (; n + lanes <= count; n += lanes) {
    DivideAndRound(d, x + n, scale, to + n);
  }
  for (; n < count; ++n) DivideAndRound(d1, x + n, scale, to + n);
}

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace locus {
HWY_EXPORT(PromoteRow);
HWY_EXPORT(DemoteRow);
HWY_EXPORT(LargestBits);
HWY_EXPORT(MultiplyRow);
HWY_EXPORT(DivideRow);

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

Rows::Rows(const Tensor& t, const Tensor& scales) : Rows(t) {
  if (!scales.defined()) return;
  scales_ = scales.Data<float>();
  scale_stride_[0] = scales.strides()[0];
  scale_stride_[1] = scales.strides()[1];
}

Rows::Rows(const Tensor& blocks, const int64_t* table, int64_t per_sequence)
    : Rows(blocks) {
  table_ = table;
  per_sequence_ = per_sequence;
  block_size_ = blocks.size(2);
}

void Rows::LoadPart(int64_t b, int64_t h, int64_t i, int64_t first,
                    int64_t count, float* dst) const {
  const int64_t step = stride_[3];
  if (dtype_ == DType::kF64) {
    return CopyStrided(At<double>(b, h, i) + first * step, step, count, dst);
  }
  if (dtype_ == DType::kF32) {
    const float* src = At<float>(b, h, i) + first * step;
    if (step != 1) return CopyStrided(src, step, count, dst);
    std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  if (dtype_ == DType::kI8) {
    const int8_t* src = At<int8_t>(b, h, i) + first * step;
    if (step == 1) {
      HWY_DYNAMIC_DISPATCH(PromoteRow)(src, count, dtype_, dst);
    } else {
      CopyStrided(src, step, count, dst);
    }
    if (const float* scales = Scales(b, h)) {
      HWY_DYNAMIC_DISPATCH(MultiplyRow)(scales[i], count, dst);
    }
    return;
  }
  const uint16_t* src = At<uint16_t>(b, h, i) + first * step;
  if (step == 1) {
    return HWY_DYNAMIC_DISPATCH(PromoteRow)(src, count, dtype_, dst);
  }
  uint16_t adjacent[64];
  constexpr int64_t kMost = static_cast<int64_t>(std::size(adjacent));
  for (int64_t done = 0; done < count; done += kMost) {
    const int64_t now = std::min(kMost, count - done);
    CopyStrided(src + done * step, step, now, adjacent);
    HWY_DYNAMIC_DISPATCH(PromoteRow)(adjacent, now, dtype_, dst + done);
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

float Quantize(const float* src, int64_t count, int8_t* dst) {
  const int32_t largest = HWY_DYNAMIC_DISPATCH(LargestBits)(src, count);
  if (largest >=
      std::bit_cast<int32_t>(std::numeric_limits<float>::infinity())) {
    std::fill_n(dst, count, int8_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float scale = std::max(std::bit_cast<float>(largest) / 127.0F,
                               std::numeric_limits<float>::min());
  HWY_DYNAMIC_DISPATCH(DivideRow)(src, count, scale, dst);
  return scale;
}

}  // namespace kernels
}  // namespace locus
#endif
