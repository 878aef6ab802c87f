// Floats stored as narrower types.
#include "kernels/call.h"
#include "kernels/compare.h"

namespace locus::testing {
namespace {

// Floats of every exponent, the borders of f16 among them, round as the
// tensor's own conversion does.
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
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    std::vector<uint16_t> narrow(values.size());
    kernels::StoreFloats(values.data(), count, dtype, narrow.data());
    const Tensor expected = wide.To(dtype);
    for (size_t n = 0; n < narrow.size(); ++n) {
      ASSERT_EQ(narrow[n], expected.Data<uint16_t>()[n]) << values[n];
    }
    const float nan = NAN;
    uint16_t bits = 0;
    kernels::StoreFloats(&nan, 1, dtype, &bits);
    EXPECT_TRUE(std::isnan(Tensor::Borrow(dtype, {1}, {}, &bits).At(0)));
  }
}

}  // namespace
}  // namespace locus::testing
