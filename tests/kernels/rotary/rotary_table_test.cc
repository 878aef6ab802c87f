// Tables of cosines and sines: precomputed, or given by the caller.
#include <initializer_list>
#include <numeric>

#include "kernels/compare.h"
#include "locus/locus.h"

namespace locus::testing {
namespace {

constexpr PairLayout kLayouts[] = {PairLayout::kInterleaved,
                                   PairLayout::kHalves};

Tensor Random(std::vector<int64_t> shape, uint64_t seed,
              DType dtype = DType::kF32) {
  return RandomTensor(std::move(shape), seed).To(dtype);
}

void ExpectSame(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(a.dtype(), b.dtype());
  EXPECT_EQ(a.ToVector(), b.ToVector());
}

// Every value twice, at both channels of its pair in the layout.
Tensor Twice(const Tensor& table, PairLayout layout) {
  const int64_t rows = table.size(0), pairs = table.size(1);
  std::vector<double> out;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < 2 * pairs; ++c) {
      out.push_back(
          table.At(r, layout == PairLayout::kInterleaved ? c / 2 : c % pairs));
    }
  }
  return Tensor::From({rows, 2 * pairs}, std::move(out)).To(table.dtype());
}

// cos and sin differ from those in float64 by at most the float32 rounding of a
// number below 1, 2^-25, and the error of the angle.
TEST(RotaryTableTest, RowsAreRoundedFloat64) {
  OnEveryTarget([] {
    const Rotation r = Rope(128, PairLayout::kHalves).RotationFor(1);
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < 300; ++i) positions.push_back(i);
    for (int64_t i = 0; i < 300; ++i) positions.push_back(i * i * 111);
    const RotaryTable table(r, positions);
    std::vector<double> cos(64), sin(64);
    for (size_t i = 0; i < positions.size(); ++i) {
      r.CosSin(positions[i], cos.data(), sin.data());
      // Three angles are rounded, each by at most 2^-53 of itself.
      const double bound =
          0x1p-25 + 3 * 0x1p-53 * static_cast<double>(positions[i] + 64);
      for (size_t p = 0; p < 64; ++p) {
        EXPECT_NEAR(table.cos().At(i, p), cos[p], bound);
        EXPECT_NEAR(table.sin().At(i, p), sin[p], bound);
      }
    }
  });
}

// The same for pairs that rotate by two axes, with offsets, after two tokens
// that do not rotate: near the origin, over many rows, and far out.
TEST(RotaryTableTest, RowsOfMixedAxesAreRoundedFloat64) {
  OnEveryTarget([] {
    Rotation r;
    r.layout = PairLayout::kHalves;
    r.rotary_dim = 22;
    r.theta = RandomTensor({22}, 3).ToVector();
    r.axes = {{.divisor = 70, .offset = 0.5},
              {.divisor = 1, .modulus = 70, .offset = -34.5}};
    r.origin = 2;
    r.gain = 1.25;
    double fastest = 0.0;
    for (double w : r.theta) fastest = std::max(fastest, std::abs(w));
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < 300; ++i) positions.push_back(i);
    for (int64_t i = 0; i < 300; ++i) positions.push_back(i * i * 11'111);
    positions.push_back(int64_t{1} << 40);  // past what is split
    const RotaryTable table(r, positions);
    std::vector<double> cos(11), sin(11);
    for (size_t i = 0; i < positions.size(); ++i) {
      r.CosSin(positions[i], cos.data(), sin.data());
      // Per axis, three angles are rounded; the gain may make a number exceed
      // 1, where float32 has half the resolution.
      const double reach = static_cast<double>(positions[i]) / 70 + 140;
      const double bound = 1.25 * (0x1p-24 + 6 * 0x1p-53 * fastest * reach);
      for (size_t p = 0; p < 11; ++p) {
        EXPECT_NEAR(table.cos().At(i, p), cos[p], bound) << positions[i];
        EXPECT_NEAR(table.sin().At(i, p), sin[p], bound) << positions[i];
      }
    }
    // A row depends only on its position.
    for (size_t i : std::initializer_list<size_t>{1, 2, 77, 444, 600}) {
      const RotaryTable one(r, std::span(positions).subspan(i, 1));
      for (size_t p = 0; p < 11; ++p) {
        EXPECT_EQ(table.cos().At(i, p), one.cos().At(0, p));
        EXPECT_EQ(table.sin().At(i, p), one.sin().At(0, p));
      }
    }
  });
}

TEST(RotaryTableTest, GivesTheBitsOfTheRotation) {
  OnEveryTarget([] {
    for (PairLayout layout : kLayouts) {
      const Rotation r =
          Rope(32, layout, {.rotary_dim = 20, .place = RotaryPlace::kTrailing})
              .RotationFor(64);
      const RotaryTable table = RotaryTable::UpTo(r, 64);
      EXPECT_EQ(table.NumRows(), 64);
      EXPECT_EQ(table.NumPairs(), 10);
      EXPECT_EQ(table.first_channel(), 12);
      const Tensor x = Random({2, 3, 5, 32}, 1);
      ExpectSame(Rotate(x, table, {.first_row = 0}), Rotate(x, r));
      const std::vector<int64_t> shared = {3, 60, 0, 7, 7};
      ExpectSame(Rotate(x, table, {.rows = shared}), Rotate(x, r, shared));
      const std::vector<int64_t> each = {3, 60, 0, 7, 7, 1, 2, 3, 4, 5};
      ExpectSame(Rotate(x, table, {.rows = each}), Rotate(x, r, each));
      ExpectSame(Rotate(x, RotaryTable(r, each)), Rotate(x, r, each));
      const std::vector<int64_t> from = {59, 60, 61, 62, 63};
      ExpectSame(Rotate(x, table, {.first_row = 59}), Rotate(x, r, from));
      Tensor y = Tensor::From(x.shape(), x.ToVector()).To(DType::kF32);
      RotateInPlace(y, table, {.first_row = 59});
      ExpectSame(y, Rotate(x, r, from));
      RotateInPlace(y, table, {.first_row = 59, .inverse = true});
      EXPECT_LE(RelativeError(y, x), 8 * kEps);  // two rotations
    }
  });
}

TEST(RotaryTableTest, TakesGivenTablesInEveryForm) {
  OnEveryTarget([] {
    for (PairLayout layout : kLayouts) {
      const Rotation r = Rope(24, layout, {.rotary_dim = 14}).RotationFor(50);
      const RotaryTable table = RotaryTable::UpTo(r, 50);
      const Tensor x = Random({2, 2, 6, 24}, 2);
      const std::vector<int64_t> positions = {9, 8, 49, 0, 1, 2};
      const Tensor expected = Rotate(x, r, positions);
      const RotateWithOptions options{.rotary_dim = 14, .positions = positions};
      const Tensor cos2 = Twice(table.cos(), layout);
      const Tensor sin2 = Twice(table.sin(), layout);
      ExpectSame(RotateWith(x, table.cos(), table.sin(), layout, options),
                 expected);
      ExpectSame(RotateWith(x, cos2, sin2, layout, options), expected);
      ExpectSame(
          Rotate(x, RotaryTable(cos2, sin2, layout, 14), {.rows = positions}),
          expected);
      // A transposed view, and float64 that rounds back to the same float32.
      const Tensor cos_view =
          table.cos().Transposed(0, 1).To(DType::kF64).Transposed(0, 1);
      ExpectSame(RotateWith(x, cos_view, table.sin(), layout, options),
                 expected);
      ExpectSame(
          RotateWith(x, table.cos(), table.sin(), layout, {.rotary_dim = 14}),
          Rotate(x, r));
      ExpectSame(
          RotateWith(
              x, cos2, sin2, layout,
              {.rotary_dim = 14, .positions = positions, .inverse = true}),
          Rotate(x, r, positions, /*inverse=*/true));
    }
  });
}

// f64 tables rotate an f64 tensor without loss.
TEST(RotaryTableTest, KeepsFloat64) {
  for (PairLayout layout : kLayouts) {
    const Rotation r = Rope(12, layout).RotationFor(5);
    std::vector<double> cos(5 * 6), sin(5 * 6);
    for (int64_t i = 0; i < 5; ++i) {
      r.CosSin(i, cos.data() + i * 6, sin.data() + i * 6);
    }
    const Tensor x = RandomTensor({2, 1, 5, 12}, 3);
    ExpectSame(RotateWith(x, Tensor::From({5, 6}, cos),
                          Tensor::From({5, 6}, sin), layout),
               Rotate(x, r));
  }
}

TEST(RotaryTableTest, EmptyTensorsAreFine) {
  const Rotation r = Rope(8, PairLayout::kHalves).RotationFor(4);
  const RotaryTable table = RotaryTable::UpTo(r, 0);
  EXPECT_EQ(table.NumRows(), 0);
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2, 3, 0, 8}, {0, 3, 0, 8}, {1, 0, 0, 8}}) {
    Tensor x = Tensor::Zeros(DType::kF32, shape);
    EXPECT_EQ(Rotate(x, r).shape(), shape);
    EXPECT_EQ(Rotate(x, table).shape(), shape);
    RotateInPlace(x, table);
  }
}

TEST(RotaryTableTest, RefusesBadCalls) {
  const Rotation r = Rope(12, PairLayout::kHalves).RotationFor(9);
  const RotaryTable table = RotaryTable::UpTo(r, 9);
  const Tensor x = Random({2, 1, 4, 12}, 4);
  const auto error = [&](const RotateOptions& options) {
    return ErrorOf([&] { Rotate(x, table, options); });
  };
  EXPECT_EQ(error({.first_row = 5}), "");
  EXPECT_EQ(error({}),
            "a table of 9 rows does not fit 4 or 8 tokens; rows or first_row "
            "would say which of them to take");
  EXPECT_EQ(error({.first_row = 6}),
            "a token takes row 9 of a table that has rows 0 .. 8");
  const std::vector<int64_t> rows = {0, -1, 2, 3};
  EXPECT_EQ(error({.rows = rows}),
            "a token takes row -1 of a table that has rows 0 .. 8");
  EXPECT_EQ(error({.rows = rows, .first_row = 2}),
            "either rows or first_row, not both: got 4 rows and first_row 2");
  const std::vector<int64_t> three = {0, 1, 2};
  EXPECT_EQ(error({.rows = three}), "rows must number 4 or 8, got 3");
  EXPECT_EQ(ErrorOf([&] {
              RotateBackward(x, table, {.first_row = 0, .inverse = true});
            }),
            "RotateBackward is of Rotate, not of its inverse");
  EXPECT_EQ(ErrorOf([&] {
              Rotate(Random({1, 1, 9, 10}, 5), table);
            }),
            "rotary channels 0 .. 11 do not fit a head of 10");
  EXPECT_EQ(ErrorOf([&] {
              Rotate(Random({9, 12}, 5), table);
            }),
            "rotation needs x [B, H, L, D], got f32 [9, 12]");
  Tensor stretched = Tensor::Borrow(DType::kF32, {1, 2, 9, 12}, {0, 0, 12, 1},
                                    Random({9, 12}, 6).Data<float>());
  EXPECT_EQ(ErrorOf([&] { RotateInPlace(stretched, table); }),
            "rotation in place needs elements that do not overlap, got f32 "
            "[1, 2, 9, 12] with strides [0, 0, 12, 1]");
  EXPECT_EQ(ErrorOf([&] { RotaryTable::UpTo(r, -1); }),
            "a table's length must not be negative, got -1");
  Rotation decaying = r;
  decaying.log_decay.assign(6, -0.1);
  EXPECT_EQ(ErrorOf([&] { RotaryTable::UpTo(decaying, 4); }),
            "a rotation with decay (xPos) acts on pairs of tokens and cannot "
            "rotate one tensor alone");
}

TEST(RotaryTableTest, RefusesBadTables) {
  const Tensor x = Random({1, 1, 4, 12}, 7);
  const Rotation r = Rope(12, PairLayout::kHalves).RotationFor(9);
  const RotaryTable table = RotaryTable::UpTo(r, 9);
  const Tensor cos = table.cos(), sin = table.sin();
  const auto error = [&](const Tensor& c, const Tensor& s,
                         const RotateWithOptions& options = {}) {
    return ErrorOf([&] { RotateWith(x, c, s, PairLayout::kHalves, options); });
  };
  EXPECT_EQ(error(cos, sin), "");
  EXPECT_EQ(error(cos, Random({8, 6}, 8)),
            "cos and sin must both be [rows, 6] or [rows, 12], got f32 [9, 6] "
            "and f32 [8, 6]");
  EXPECT_EQ(error(cos, sin, {.rotary_dim = 8}),
            "cos and sin must both be [rows, 4] or [rows, 8], got f32 [9, 6] "
            "and f32 [9, 6]");
  EXPECT_EQ(error(cos, sin, {.rotary_dim = 5}),
            "rotary_dim must be even, got 5");
  const Tensor wide = Random({9, 7}, 9);
  EXPECT_EQ(error(wide, wide, {.rotary_dim = 14}),
            "rotary channels 0 .. 13 do not fit a head of 12");
  const std::vector<int64_t> late = {0, 1, 2, 9};
  EXPECT_EQ(error(cos, sin, {.positions = late}),
            "a token takes row 9 of a table that has rows 0 .. 8");
  EXPECT_EQ(
      ErrorOf([&] { RotaryTable(cos, sin, PairLayout::kHalves, 12, -2); }),
      "the first rotary channel must not be negative, got -2");
}

// The mistake to catch: tables of one layout passed as the other.
TEST(RotaryTableTest, RefusesTablesOfTheOtherLayout) {
  const Tensor cos = Tensor::From(
      {2, 4},
      std::vector<float>{1.0F, 1.0F, 1.0F, 1.0F, 0.5F, 0.25F, 0.5F, 0.25F});
  const Tensor x = Random({1, 1, 2, 4}, 10);
  EXPECT_EQ(ErrorOf([&] { RotateWith(x, cos, cos, PairLayout::kHalves); }), "");
  const std::string message =
      "columns 0 and 1 of cos belong to one pair but differ in row 1: 0.5 and "
      "0.25; is it of the other layout?";
  EXPECT_EQ(ErrorOf([&] { RotateWith(x, cos, cos, PairLayout::kInterleaved); }),
            message);
  EXPECT_EQ(
      ErrorOf([&] { RotaryTable(cos, cos, PairLayout::kInterleaved, 4); }),
      message);
}

}  // namespace
}  // namespace locus::testing
