// bf16 and f16 as storage types, tested through rotation: promoted, rotated,
// demoted.
#include "kernels/compare.h"
#include "locus/rotary.h"

namespace locus::testing {
namespace {

using Positions = std::vector<int64_t>;

constexpr DType kAll[] = {DType::kF32, DType::kBF16, DType::kF16};

Rotation Example(PairLayout layout, int64_t pairs) {
  return {.layout = layout,
          .rotary_dim = 2 * pairs,
          .theta = std::vector<double>(static_cast<size_t>(pairs), 0.5)};
}

// NaN and infinity are confined to their pair.
TEST(ConvertTest, BadNumbersStayInTheirPair) {
  OnEveryTarget([] {
    for (DType dtype : kAll) {
      for (double bad : {double{INFINITY}, double{-INFINITY}, double{NAN}}) {
        Tensor x = RandomTensor({1, 1, 2, 16}, 1);
        x.MutableData<double>()[5] = bad;
        x = x.To(dtype);
        const Rotation r = Example(PairLayout::kInterleaved, 8);
        const Tensor y = Rotate(x, r, Positions{3, 4});
        for (int64_t d = 0; d < 16; ++d) {
          EXPECT_EQ(std::isfinite(y.At(0, 0, 0, d)), d != 4 && d != 5);
          EXPECT_TRUE(std::isfinite(y.At(0, 0, 1, d)));
        }
      }
    }
  });
}

// Bit patterns 0 .. count - 1 in the first channel of every pair, 0 in the
// second: [1, 1, count / pairs, 2 * pairs]. A single pair runs in single lanes,
// 32 pairs in vectors.
Tensor Patterns(DType dtype, int64_t count, const Rotation& r) {
  const int64_t pairs = r.NumPairs();
  Tensor x = Tensor::Zeros(dtype, {1, 1, count / pairs, 2 * pairs});
  uint16_t* data = x.MutableData<uint16_t>();
  for (int64_t n = 0; n < count; ++n) {
    data[n / pairs * 2 * pairs + r.FirstOfPair(n % pairs)] =
        static_cast<uint16_t>(n);
  }
  return x;
}

template <typename F>
void ForEachForm(const F& f) {
  OnEveryTarget([&] {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      for (PairLayout layout :
           {PairLayout::kInterleaved, PairLayout::kHalves}) {
        for (int64_t pairs : {1, 32}) f(dtype, Example(layout, pairs));
      }
    }
  });
}

// Every 16-bit number is unchanged at position 0, where it is promoted and
// demoted again. NaN remains NaN.
TEST(ConvertTest, NumbersSurvivePositionZero) {
  ForEachForm([](DType dtype, const Rotation& r) {
    const Tensor x = Patterns(dtype, 1 << 16, r);
    const Tensor y = Rotate(x, r, Positions(static_cast<size_t>(x.size(2)), 0));
    int64_t wrong = 0;
    for (int64_t i = 0; i < x.size(2); ++i) {
      for (int64_t p = 0; p < r.NumPairs(); ++p) {
        const int64_t d = r.FirstOfPair(p);
        const double before = x.At(0, 0, i, d), after = y.At(0, 0, i, d);
        wrong += std::isnan(before)
                     ? !std::isnan(after)
                     : before != after ||
                           std::signbit(before) != std::signbit(after);
      }
    }
    EXPECT_EQ(wrong, 0);
  });
}

// Demoting rounds as Tensor::To does: to nearest, ties to even, to infinity.
TEST(ConvertTest, RoundsLikeTensors) {
  ForEachForm([](DType dtype, Rotation r) {
    // The product of a 16-bit number and the gain is exact in float32. Some f16
    // results are between subnormals, including ties; twice the largest number
    // overflows.
    for (int shift : {-20, -14, -3, 1}) {
      r.gain = std::ldexp(1.0 + 0x1p-10, shift);
      const Tensor x = Patterns(dtype, 0x7C00, r);
      const Positions zero(static_cast<size_t>(x.size(2)), 0);
      const Tensor exact = Rotate(x.To(DType::kF32), r, zero);
      EXPECT_EQ(Rotate(x, r, zero).ToVector(), exact.To(dtype).ToVector());
    }
  });
}

}  // namespace
}  // namespace locus::testing
