// Element types, strides and limits of Tensor.
#include "locus/tensor.h"

#include <bit>
#include <cstring>

#include "locus/error.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

constexpr int kPatterns = 65536;

std::vector<uint16_t> AllPatterns() {
  std::vector<uint16_t> bits;
  for (int n = 0; n < kPatterns; ++n) bits.push_back(static_cast<uint16_t>(n));
  return bits;
}

// The value of a bit pattern, by the definition of the format: sign, exponent
// field of `exponent_bits`, mantissa of 15 - exponent_bits bits.
double Meaning(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int field = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (field == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * INFINITY : NAN;
  }
  const int hidden = field == 0 ? 0 : 1 << mantissa_bits;
  return sign * std::ldexp(hidden + mantissa,
                           std::max(field, 1) - bias - mantissa_bits);
}

int ExponentBits(DType dtype) { return dtype == DType::kBF16 ? 8 : 5; }

uint16_t Narrow(double value, DType dtype) {
  return Tensor::From({1}, std::vector<double>{value})
      .To(dtype)
      .Data<uint16_t>()[0];
}

TEST(TensorTest, EveryNarrowPatternReadsAsItsMeaning) {
  const std::vector<uint16_t> bits = AllPatterns();
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const Tensor t = Tensor::Borrow(dtype, {kPatterns}, {}, bits.data());
    for (int n = 0; n < kPatterns; ++n) {
      const double meaning =
          Meaning(bits[static_cast<size_t>(n)], ExponentBits(dtype));
      if (std::isnan(meaning)) {
        ASSERT_TRUE(std::isnan(t.At(n))) << n;
      } else {
        ASSERT_EQ(t.At(n), meaning) << n;
        ASSERT_EQ(std::signbit(t.At(n)), std::signbit(meaning)) << n;
      }
    }
  }
}

TEST(TensorTest, EveryNarrowPatternRoundTrips) {
  const std::vector<uint16_t> bits = AllPatterns();
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const Tensor t = Tensor::Borrow(dtype, {kPatterns}, {}, bits.data());
    for (DType through : {DType::kF32, DType::kF64}) {
      const Tensor back = t.To(through).To(dtype);
      for (int n = 0; n < kPatterns; ++n) {
        if (std::isnan(t.At(n))) {
          ASSERT_TRUE(std::isnan(back.At(n))) << n;
        } else {
          ASSERT_EQ(back.Data<uint16_t>()[n], n);
        }
      }
    }
  }
}

// Halfway cases round to the even pattern, anything else to the nearest one.
// One float32 step off halfway is the least that bf16 must distinguish.
TEST(TensorTest, NarrowingRoundsToNearestEven) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const int bits = ExponentBits(dtype);
    const int infinity = ((1 << bits) - 1) << (15 - bits);
    for (int n = 0; n + 1 < infinity; ++n) {
      const double lo = Meaning(static_cast<uint16_t>(n), bits);
      const double hi = Meaning(static_cast<uint16_t>(n + 1), bits);
      const float middle = static_cast<float>(0.5 * (lo + hi));
      ASSERT_EQ(double{middle}, 0.5 * (lo + hi));
      ASSERT_EQ(Narrow(middle, dtype), n % 2 == 0 ? n : n + 1);
      ASSERT_EQ(Narrow(std::nextafter(middle, 0.0F), dtype), n);
      ASSERT_EQ(Narrow(std::nextafter(middle, INFINITY), dtype), n + 1);
      ASSERT_EQ(Narrow(-double{middle}, dtype),
                0x8000 | (n % 2 == 0 ? n : n + 1));
    }
    EXPECT_EQ(Narrow(1e300, dtype), infinity);
    EXPECT_EQ(Narrow(-INFINITY, dtype), 0x8000 | infinity);
    EXPECT_EQ(Narrow(-0.0, dtype), 0x8000);
    EXPECT_EQ(Narrow(1e-300, dtype), 0);
  }
  // Half a step above the largest number is the first to overflow.
  EXPECT_EQ(Narrow(65519.99, DType::kF16), 0x7BFF);
  EXPECT_EQ(Narrow(65520.0, DType::kF16), 0x7C00);
}

TEST(TensorTest, NamesAndSizes) {
  EXPECT_EQ(DTypeName(DType::kF32), "f32");
  EXPECT_EQ(DTypeName(DType::kF64), "f64");
  EXPECT_EQ(DTypeName(DType::kBF16), "bf16");
  EXPECT_EQ(DTypeName(DType::kF16), "f16");
  EXPECT_EQ(DTypeBytes(DType::kF32), 4);
  EXPECT_EQ(DTypeBytes(DType::kF64), 8);
  EXPECT_EQ(DTypeBytes(DType::kBF16), 2);
  EXPECT_EQ(DTypeBytes(DType::kF16), 2);
  EXPECT_EQ(Tensor().Describe(), "none");
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(Tensor().NumElements(), 0);
  const Tensor t = Tensor::Zeros(DType::kBF16, {2, 0, 3});
  EXPECT_EQ(t.Describe(), "bf16 [2, 0, 3]");
  EXPECT_TRUE(t.defined());
  EXPECT_EQ(t.NumElements(), 0);
  EXPECT_EQ(t.size(-1), 3);
  EXPECT_EQ(t.size(0), 2);
  EXPECT_TRUE(t.ToVector().empty());
  EXPECT_EQ(Tensor::From({}, std::vector<double>{5.0}).At(), 5.0);
}

TEST(TensorTest, StridesSelectElements) {
  const std::vector<double> data = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const Tensor rows = Tensor::Borrow(DType::kF64, {3, 4}, {}, data.data());
  EXPECT_TRUE(rows.IsContiguous());
  EXPECT_EQ(rows.At(2, 1), 9.0);
  const Tensor t = rows.Transposed(0, 1);
  EXPECT_EQ(t.shape(), (std::vector<int64_t>{4, 3}));
  EXPECT_FALSE(t.IsContiguous());
  EXPECT_EQ(t.ToVector(),
            (std::vector<double>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  EXPECT_EQ(rows.Transposed(-2, -1).ToVector(), t.ToVector());
  EXPECT_EQ(t.Data<double>(), data.data()) << "a view, not a copy";
  const Tensor copy = t.To(DType::kF64);
  EXPECT_TRUE(copy.IsContiguous());
  EXPECT_EQ(copy.ToVector(), t.ToVector());
  EXPECT_EQ(rows.To(DType::kF64).Data<double>(), data.data());

  // Every other column, in reverse; and one row repeated by a stride of 0.
  const Tensor odd =
      Tensor::Borrow(DType::kF64, {3, 2}, {4, -2}, data.data() + 3);
  EXPECT_EQ(odd.ToVector(), (std::vector<double>{3, 1, 7, 5, 11, 9}));
  const Tensor same = Tensor::Borrow(DType::kF64, {2, 3}, {0, 1}, data.data());
  EXPECT_EQ(same.ToVector(), (std::vector<double>{0, 1, 2, 0, 1, 2}));
  EXPECT_FALSE(same.IsContiguous());
  // The stride of an axis of size 1 does not matter.
  EXPECT_TRUE(
      Tensor::Borrow(DType::kF64, {1, 3}, {99, 1}, data.data()).IsContiguous());
}

TEST(TensorTest, BorrowKeepsItsOwnerAlive) {
  auto storage = std::make_shared<std::vector<float>>(3, 2.5F);
  const std::weak_ptr<std::vector<float>> watch = storage;
  Tensor copy;
  {
    const Tensor t =
        Tensor::Borrow(DType::kF32, {3}, {}, storage->data(), storage);
    storage.reset();
    copy = t;
  }
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(copy.At(2), 2.5);
  copy = Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST(TensorTest, CopiesShareStorage) {
  Tensor a = Tensor::Zeros(DType::kF32, {2});
  const Tensor b = a;
  a.MutableData<float>()[1] = 4.0F;
  EXPECT_EQ(b.At(1), 4.0);
}

TEST(TensorTest, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] {
              Tensor::Zeros(DType::kF32, {2, -1});
            }),
            "tensor sizes must not be negative, got [2, -1]");
  EXPECT_EQ(ErrorOf([] {
              Tensor::Zeros(DType::kF64, {int64_t{1} << 31, int64_t{1} << 31});
            }),
            "a tensor of sizes [2147483648, 2147483648] is too large");
  EXPECT_EQ(ErrorOf([] {
              Tensor::From({2, 3}, std::vector<float>(5));
            }),
            "a tensor of sizes [2, 3] needs 6 values, got 5");
  const double value = 0.0;
  EXPECT_EQ(ErrorOf([&] {
              Tensor::Borrow(DType::kF64, {1}, {1, 1}, &value);
            }),
            "a tensor of rank 1 needs 1 strides, got 2");
  EXPECT_EQ(ErrorOf([] { Tensor::Borrow(DType::kF64, {2}, {}, nullptr); }),
            "a borrowed tensor of sizes [2] has no data");
  const Tensor f32 = Tensor::Zeros(DType::kF32, {2, 3});
  EXPECT_EQ(ErrorOf([&] { f32.Data<double>(); }),
            "elements of f32 [2, 3] read as another type");
  EXPECT_EQ(ErrorOf([&] { f32.Data<uint32_t>(); }),
            "elements of f32 [2, 3] read as another type");
  EXPECT_EQ(ErrorOf([&] { f32.Transposed(0, 2); }), "f32 [2, 3] has no axis 2");
  EXPECT_EQ(ErrorOf([&] { f32.Transposed(-3, 0); }),
            "f32 [2, 3] has no axis -3");
}

TEST(TensorTest, SlicedSharesStorage) {
  std::vector<double> numbers(24);
  for (size_t n = 0; n < numbers.size(); ++n) {
    numbers[n] = static_cast<double>(n);
  }
  const Tensor x = Tensor::From({2, 3, 4}, numbers);
  const Tensor rows = x.Sliced(1, 1, 3);
  EXPECT_EQ(rows.shape(), (std::vector<int64_t>{2, 2, 4}));
  EXPECT_EQ(rows.Data<double>(), x.Data<double>() + 4);
  EXPECT_EQ(rows.At(1, 1, 3), x.At(1, 2, 3));
  EXPECT_EQ(x.Sliced(-1, 2, 4).At(1, 2, 0), x.At(1, 2, 2));
  EXPECT_EQ(x.Transposed(0, 2).Sliced(0, 3, 4).At(0, 1, 1), x.At(1, 1, 3));
  EXPECT_EQ(x.Sliced(0, 2, 2).NumElements(), 0);
  EXPECT_EQ(rows.To(DType::kF32).At(1, 0, 0), x.At(1, 1, 0));
  EXPECT_THROW((void)x.Sliced(3, 0, 1), Error);
  EXPECT_THROW((void)x.Sliced(1, -1, 1), Error);
  EXPECT_THROW((void)x.Sliced(1, 2, 1), Error);
  EXPECT_THROW((void)x.Sliced(1, 0, 4), Error);
  EXPECT_THROW((void)Tensor().Sliced(0, 0, 0), Error);
}

}  // namespace
}  // namespace locus::testing
