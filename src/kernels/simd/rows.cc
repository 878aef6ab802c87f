// Rows in and out: of any element type, as floats, and turned.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>

#include "core/fail.h"
#include "kernels/plan/call.h"
#include "kernels/rotary/token_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/rows.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
//
#include "kernels/rotary/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

template <DType kFrom, DType kTo, typename T, typename U>
HWY_INLINE void Convert(const T* from, int64_t count, U* to) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t n = 0;
  for (; n + lanes <= count; n += lanes) {
    StoreAs<kTo>(d, LoadAs<kFrom>(d, from + n), to + n);
  }
  for (; n < count; ++n) StoreAs<kTo>(d1, LoadAs<kFrom>(d1, from + n), to + n);
}

// `count` numbers of dtype, kBF16 or kF16, as floats and back.
void WidenRow(const uint16_t* from, int64_t count, DType dtype, float* to) {
  dtype == DType::kBF16 ? Convert<DType::kBF16, DType::kF32>(from, count, to)
                        : Convert<DType::kF16, DType::kF32>(from, count, to);
}
void NarrowRow(const float* from, int64_t count, DType dtype, uint16_t* to) {
  dtype == DType::kBF16 ? Convert<DType::kF32, DType::kBF16>(from, count, to)
                        : Convert<DType::kF32, DType::kF16>(from, count, to);
}

void TurnRow(float* x, const float* cos, const float* sin, int64_t pairs,
             PairLayout layout) {
  RotateRowInPlace(x, cos, sin, pairs, layout, /*back=*/false);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace locus {
HWY_EXPORT(WidenRow);
HWY_EXPORT(NarrowRow);
HWY_EXPORT(TurnRow);

namespace kernels {

Rows::Rows(const Tensor& t)
    : data_(t.Raw()), dtype_(t.dtype()), dim_(t.size(3)) {
  for (int a = 0; a < 4; ++a) stride_[a] = t.strides()[static_cast<size_t>(a)];
}

void Rows::Load(int64_t b, int64_t h, int64_t i, float* dst) const {
  const int64_t at = b * stride_[0] + h * stride_[1] + i * stride_[2];
  const int64_t step = stride_[3];
  switch (dtype_) {
    case DType::kF32: {
      const float* src = static_cast<const float*>(data_) + at;
      if (step == 1) {
        std::memcpy(dst, src, static_cast<size_t>(dim_) * sizeof(float));
      } else {
        for (int64_t d = 0; d < dim_; ++d) dst[d] = src[d * step];
      }
      break;
    }
    case DType::kF64: {
      const double* src = static_cast<const double*>(data_) + at;
      for (int64_t d = 0; d < dim_; ++d) {
        dst[d] = static_cast<float>(src[d * step]);
      }
      break;
    }
    case DType::kBF16:
    case DType::kF16: {
      const uint16_t* src = static_cast<const uint16_t*>(data_) + at;
      if (step == 1) {
        HWY_DYNAMIC_DISPATCH(WidenRow)(src, dim_, dtype_, dst);
        break;
      }
      uint16_t adjacent[64];
      constexpr int64_t kMost = static_cast<int64_t>(std::size(adjacent));
      for (int64_t first = 0; first < dim_; first += kMost) {
        const int64_t count = std::min(kMost, dim_ - first);
        for (int64_t d = 0; d < count; ++d) {
          adjacent[d] = src[(first + d) * step];
        }
        HWY_DYNAMIC_DISPATCH(WidenRow)(adjacent, count, dtype_, dst + first);
      }
      break;
    }
  }
}

void StoreFloats(const float* src, int64_t count, DType dtype, void* dst) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
      break;
    case DType::kF64:
      std::copy_n(src, count, static_cast<double*>(dst));
      break;
    case DType::kBF16:
    case DType::kF16:
      HWY_DYNAMIC_DISPATCH(NarrowRow)
      (src, count, dtype, static_cast<uint16_t*>(dst));
      break;
  }
}

void RotateRow(const Rotation& rotation, const RotationTable& table, int64_t i,
               float* x) {
  const int64_t pairs = rotation.NumPairs(), at = i * pairs;
  HWY_DYNAMIC_DISPATCH(TurnRow)
  (x + rotation.first_channel, table.cos.data() + at, table.sin.data() + at,
   pairs, rotation.layout);
}

void StoreRow(Tensor& t, int64_t row, const float* src, int64_t dim) {
  const int64_t at = row * dim;
  switch (t.dtype()) {
    case DType::kF32:
      StoreFloats(src, dim, t.dtype(), t.MutableData<float>() + at);
      break;
    case DType::kF64:
      StoreFloats(src, dim, t.dtype(), t.MutableData<double>() + at);
      break;
    default:
      StoreFloats(src, dim, t.dtype(), t.MutableData<uint16_t>() + at);
  }
}

namespace {

// As Tensor::Empty, but in one piece of memory from the plain allocator, which
// is quicker than the aligned one where there is little to write: short calls
// feel it. `strides` are those of dense rows.
Tensor NewSmall(DType dtype, int64_t elements, std::vector<int64_t> shape,
                std::vector<int64_t> strides) {
  constexpr size_t kLine = 64;  // where it begins
  const int64_t bytes = elements * DTypeBytes(dtype);
  auto storage = std::make_shared_for_overwrite<std::byte[]>(
      static_cast<size_t>(bytes) + kLine);
  const auto at = reinterpret_cast<uintptr_t>(storage.get());
  const void* data = storage.get() + (kLine - at % kLine);
  return Tensor::Borrow(dtype, std::move(shape), std::move(strides), data,
                        std::move(storage));
}

AttentionResult NewLarge(const CallSizes& s, DType dtype, bool with_lse) {
  return {
      .out = Tensor::Empty(dtype, {s.batch, s.q_heads, s.q_len, s.value_dim}),
      .lse = with_lse
                 ? Tensor::Empty(DType::kF32, {s.batch, s.q_heads, s.q_len})
                 : Tensor()};
}

}  // namespace

AttentionResult NewResult(const CallSizes& s, DType dtype, bool with_lse) {
  // 64 KiB of floats. Sizes may be anything here: their product is no int64.
  constexpr double kSmall = 16384.0;
  const double elements =
      static_cast<double>(s.batch) * static_cast<double>(s.q_heads) *
      static_cast<double>(s.q_len) * static_cast<double>(s.value_dim);
  if (elements > kSmall || elements == 0.0) {
    return NewLarge(s, dtype, with_lse);
  }
  const int64_t head = s.q_len * s.value_dim;
  const int64_t rows = s.batch * s.q_heads * s.q_len;
  AttentionResult small{.out =
                            NewSmall(dtype, rows * s.value_dim,
                                     {s.batch, s.q_heads, s.q_len, s.value_dim},
                                     {s.q_heads * head, head, s.value_dim, 1})};
  if (with_lse) {
    small.lse = NewSmall(DType::kF32, rows, {s.batch, s.q_heads, s.q_len},
                         {s.q_heads * s.q_len, s.q_len, 1});
  }
  return small;
}

}  // namespace kernels
}  // namespace locus
#endif
