// Rows in and out: of any element type, as floats.
#include <bit>
#include <cstring>
#include <memory>

#include "core/fail.h"
#include "kernels/call.h"

namespace locus::kernels {
namespace {

float FromBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Branch-free half to float: shift the fields into place and let a multiply fix
// the exponent bias, subnormals included. Infinities and NaNs are patched.
float FromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7FFFU) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;
  uint32_t out = std::bit_cast<uint32_t>(scaled);
  if (magnitude >= 0x0F800000U) out = magnitude | 0x70000000U;
  return std::bit_cast<float>(out | sign);
}

uint16_t ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 64U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

// Rounds to nearest, ties to even.
uint16_t ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (value != value) return static_cast<uint16_t>(sign | 0x7E00U);
  // From 65520 on it rounds to infinity.
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the last place is 2^-24, that of 0.5 in float: adding 0.5
    // rounds there.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    magnitude = std::bit_cast<uint32_t>(rounded) - 0x3F000000U;
    return static_cast<uint16_t>(sign | magnitude);
  }
  // 13 bits fewer, and an exponent that counts from 15 instead of 127.
  magnitude += 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000U) >> 13));
}

template <typename Convert>
void LoadNarrow(const void* data, int64_t stride, int64_t dim, float* dst,
                const Convert& convert) {
  const auto* src = static_cast<const uint16_t*>(data);
  for (int64_t d = 0; d < dim; ++d) dst[d] = convert(src[d * stride]);
}

}  // namespace

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
      LoadNarrow(static_cast<const uint16_t*>(data_) + at, step, dim_, dst,
                 FromBF16);
      break;
    case DType::kF16:
      LoadNarrow(static_cast<const uint16_t*>(data_) + at, step, dim_, dst,
                 FromF16);
      break;
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
      std::transform(src, src + count, static_cast<uint16_t*>(dst), ToBF16);
      break;
    case DType::kF16:
      std::transform(src, src + count, static_cast<uint16_t*>(dst), ToF16);
      break;
  }
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

}  // namespace locus::kernels
