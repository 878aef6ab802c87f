// Rows of narrower types as floats, and back.
#include "kernels/simd/rows.h"

#include <bit>

#include "kernels/compare.h"

namespace locus::testing {
namespace {

// Floats of every exponent, including the limits of f16, are rounded as by the
// tensor's own conversion.
TEST(StoreFloatsTest, RoundsAsTensorsDo) {
  std::vector<float> values = {0.0F,       -0.0F,      65504.0F, 65519.996F,
                               65520.0F,   1e30F,      INFINITY, -INFINITY,
                               0x1p-14F,   0x1p-24F,   0x1p-25F, 0x1.8p-24F,
                               0x1.002p0F, 0x1.006p0F, 1e-40F};
  std::mt19937 engine(1);
  for (int n = 0; n < 20000; ++n) {
    const float mantissa = 1.0F + 0x1p-23F * static_cast<float>(engine() >> 9);
    values.push_back(
        std::ldexp(mantissa, static_cast<int>(engine() % 44) - 27));
  }
  const int64_t count = static_cast<int64_t>(values.size());
  const Tensor wide = Tensor::Borrow(DType::kF32, {count}, {}, values.data());
  OnEveryTarget([&] {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      std::vector<uint16_t> narrow(values.size());
      kernels::StoreFloats(values.data(), count, dtype, narrow.data());
      const Tensor expected = wide.To(dtype);
      for (size_t n = 0; n < narrow.size(); ++n) {
        ASSERT_EQ(narrow[n], expected.Data<uint16_t>()[n]) << values[n];
      }
    }
  });
}

// Quiet and signalling NaNs, including those whose payload is entirely in the
// half that is cut off.
TEST(StoreFloatsTest, NaNStaysNaN) {
  std::vector<float> values;
  for (uint32_t bits : {0x7FC00000U, 0xFFC00001U, 0x7F800001U, 0xFF80FFFFU}) {
    values.insert(values.end(), 17, std::bit_cast<float>(bits));
  }
  const int64_t count = static_cast<int64_t>(values.size());
  OnEveryTarget([&] {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      std::vector<uint16_t> narrow(values.size());
      kernels::StoreFloats(values.data(), count, dtype, narrow.data());
      const Tensor stored = Tensor::Borrow(dtype, {count}, {}, narrow.data());
      for (int64_t n = 0; n < count; ++n) {
        EXPECT_TRUE(std::isnan(stored.At(n))) << n;
      }
    }
  });
}

// Every 16-bit number, with adjacent elements and with a stride.
TEST(RowsTest, LoadsWhatTensorsHold) {
  constexpr int64_t kCount = 1 << 16;
  std::vector<uint16_t> bits(static_cast<size_t>(2 * kCount));
  for (size_t n = 0; n < bits.size(); ++n) bits[n] = static_cast<uint16_t>(n);
  OnEveryTarget([&] {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      for (int64_t step : {1, 2}) {
        const Tensor x = Tensor::Borrow(dtype, {1, 1, 1, kCount},
                                        {0, 0, 0, step}, bits.data());
        std::vector<float> row(static_cast<size_t>(kCount));
        kernels::Rows(x).Load(0, 0, 0, row.data());
        for (int64_t d = 0; d < kCount; ++d) {
          const float expected = static_cast<float>(x.At(0, 0, 0, d));
          const float loaded = row[static_cast<size_t>(d)];
          ASSERT_TRUE(std::isnan(expected)
                          ? std::isnan(loaded)
                          : std::bit_cast<uint32_t>(expected) ==
                                std::bit_cast<uint32_t>(loaded))
              << d << ": " << loaded << " is not " << expected;
        }
      }
    }
  });
}

}  // namespace
}  // namespace locus::testing
