// Rotation of tensors: the SIMD kernels against float64, with every entry
// point.
#include <numeric>

#include "kernels/compare.h"
#include "locus/locus.h"

namespace locus::testing {
namespace {

using Positions = std::vector<int64_t>;

Positions From(int64_t first, int64_t count) {
  Positions positions(static_cast<size_t>(count));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

Tensor Random(std::vector<int64_t> shape, uint64_t seed, DType dtype) {
  return RandomTensor(std::move(shape), seed).To(dtype);
}

// Half the distance between adjacent numbers above 1: one rounding of the type.
double UnitRoundoff(DType dtype) {
  return dtype == DType::kBF16  ? 0x1p-8
         : dtype == DType::kF16 ? 0x1p-11
                                : 0x1p-24;
}

// y is x rotated, within
//   4 u32 gain (|a| + |b|)   cos and sin, two products and a sum, rounded
//   + u |y|                  the storage; f16 has no steps below 2^-24
// element by element, where a and b are the two channels of the pair.
void ExpectRotated(const Tensor& y, const Tensor& x, const Rotation& r,
                   const Positions& positions) {
  ASSERT_EQ(y.dtype(), x.dtype());
  ASSERT_EQ(y.shape(), x.shape());
  const Tensor expected = Rotate(x.To(DType::kF64), r, positions);
  std::vector<int64_t> partner(static_cast<size_t>(x.size(3)), -1);
  for (int64_t p = 0; p < r.NumPairs(); ++p) {
    partner[static_cast<size_t>(r.FirstOfPair(p))] = r.SecondOfPair(p);
    partner[static_cast<size_t>(r.SecondOfPair(p))] = r.FirstOfPair(p);
  }
  const double u = UnitRoundoff(x.dtype());
  int64_t wrong = 0;
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (int64_t h = 0; h < x.size(1); ++h) {
      for (int64_t i = 0; i < x.size(2); ++i) {
        for (int64_t d = 0; d < x.size(3); ++d) {
          const double actual = y.At(b, h, i, d);
          const int64_t other = partner[static_cast<size_t>(d)];
          if (other < 0) {
            wrong += actual != x.At(b, h, i, d);
            continue;
          }
          const double single =
              4.0 * 0x1p-24 * r.gain *
              (std::abs(x.At(b, h, i, d)) + std::abs(x.At(b, h, i, other)));
          const double e = expected.At(b, h, i, d);
          const double least = x.dtype() == DType::kF16 ? 0x1p-25 : 0.0;
          const double bound =
              single + std::max(u * (std::abs(e) + single), least);
          wrong += !(std::abs(actual - e) <= bound);
        }
      }
    }
  }
  EXPECT_EQ(wrong, 0) << "of " << x.NumElements() << " elements";
}

void ExpectSame(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(a.dtype(), b.dtype());
  EXPECT_EQ(a.ToVector(), b.ToVector());
}

// A contiguous copy that shares no memory.
Tensor Copy(const Tensor& x) {
  return Tensor::From(x.shape(), x.ToVector()).To(x.dtype());
}

Rotation Example(PairLayout layout, int64_t pairs, int64_t first_channel = 0) {
  Rotation r;
  r.layout = layout;
  r.rotary_dim = 2 * pairs;
  r.first_channel = first_channel;
  for (int64_t p = 0; p < pairs; ++p) {
    r.theta.push_back(
        std::pow(1e4, -static_cast<double>(p) / static_cast<double>(pairs)));
  }
  return r;
}

constexpr PairLayout kLayouts[] = {PairLayout::kInterleaved,
                                   PairLayout::kHalves};
constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};

// RoPE with every scaling, and with positions of several coordinates.
std::vector<Rotation> Rotations(int64_t dim, int64_t length) {
  const std::vector<double> stretch(static_cast<size_t>(dim / 2), 1.5);
  const std::vector<RopeScaling> scalings = {
      std::monostate(),
      LinearScaling{.factor = 4.0},
      DynamicScaling{.factor = 2.0, .max_length = 2048},
      AlphaScaling{.alpha = 3.0},
      YarnScaling{.factor = 16.0, .original_length = 4096},
      LongRopeScaling{.short_factor = stretch,
                      .long_factor = stretch,
                      .original_length = 4096,
                      .factor = 32.0},
      Llama3Scaling{},
      ProportionalScaling{.partial = 0.5, .factor = 2.0}};
  std::vector<Rotation> all;
  for (PairLayout layout : kLayouts) {
    for (const RopeScaling& scaling : scalings) {
      all.push_back(Rope(dim, layout, {.base = 5e5, .scaling = scaling})
                        .RotationFor(length));
    }
    for (RotaryPlace place : {RotaryPlace::kLeading, RotaryPlace::kTrailing}) {
      all.push_back(Rope(dim, layout, {.rotary_dim = dim / 4, .place = place})
                        .RotationFor(length));
    }
    all.push_back(
        Rope(dim, layout, {.angles = AngleMode::kFloat32}).RotationFor(length));
    const Shape shape = Shape::SelfAttention(1, dim, 1);
    all.push_back(*Rope2D(dim, layout, 24).Lower(shape).terms.rotate);
    for (MRopeSections dealing :
         {MRopeSections::kChunked, MRopeSections::kInterleaved}) {
      all.push_back(*MRope(dim, layout, {dim / 8, dim / 4, dim / 8}, dealing)
                         .Lower(shape)
                         .terms.rotate);
    }
  }
  return all;
}

// Positions for `length` tokens: from 0, and beyond 100,000.
std::vector<Positions> PositionsFor(const Rotation& r, int64_t length) {
  if (r.axes.size() == 3) {
    Positions near, far;
    for (int64_t i = 0; i < length; ++i) {
      near.push_back(PackPosition(i, i / 7, i % 7));
      far.push_back(PackPosition(100'003 + i, 7 * i, 200'000 - 70 * i));
    }
    return {near, far};
  }
  Positions scattered;
  for (int64_t i = 0; i < length; ++i) {
    scattered.push_back((i * 7'919'001) % 10'000'019);
  }
  return {From(0, length), From(131'000, length), scattered};
}

TEST(RotateTest, EveryRotaryEncodingEqualsFloat64) {
  OnEveryTarget([] {
    for (const Rotation& r : Rotations(/*dim=*/32, /*length=*/200'000)) {
      for (const Positions& positions : PositionsFor(r, 150)) {
        for (DType dtype : kFloats) {
          const Tensor x = Random({1, 2, 150, 32}, 1, dtype);
          ExpectRotated(Rotate(x, r, positions), x, r, positions);
        }
      }
    }
  });
}

// Frequencies per head are equivalent to a separate rotation for each, with
// those of a group's query heads equal.
TEST(RotateTest, HeadsOfFrequenciesAreRotationsOfTheirOwn) {
  for (PairLayout layout : kLayouts) {
    Rotation r = Example(layout, 7, /*first_channel=*/1);
    SetHeads(r, 2);
    for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      for (bool heads_inside : {false, true}) {
        Tensor x = Random({2, heads_inside ? 5 : 4, heads_inside ? 4 : 5, 16},
                          6, dtype);
        if (heads_inside) x = x.Transposed(1, 2);
        const Tensor y = Rotate(x, r, From(100, 5));
        const Tensor back = RotateBackward(x, r, From(100, 5));
        for (int64_t g = 0; g < 2; ++g) {
          const Tensor alone = Rotate(x, r.OfHead(g), From(100, 5));
          const Tensor alone_back =
              RotateBackward(x, r.OfHead(g), From(100, 5));
          for (int64_t b = 0; b < 2; ++b) {
            for (int64_t h : {2 * g, 2 * g + 1}) {
              for (int64_t i = 0; i < 5; ++i) {
                EXPECT_EQ(RowOf(y, b, h, i), RowOf(alone, b, h, i));
                EXPECT_EQ(RowOf(back, b, h, i), RowOf(alone_back, b, h, i));
              }
            }
          }
        }
        RotateInPlace(x, r, From(100, 5));
        EXPECT_EQ(x.ToVector(), y.ToVector());
      }
    }
    EXPECT_EQ(ErrorOf([&] {
                Rotate(Random({1, 3, 2, 16}, 1, DType::kF32), r);
              }),
              "frequencies of 2 heads do not fit x f32 [1, 3, 2, 16]");
    EXPECT_EQ(ErrorOf([&] { RotaryTable::UpTo(r, 4); }),
              "a table of cosines serves all heads, but the rotation has "
              "frequencies of 2 heads");
  }
}

// Every rotation of the list is covered.
TEST(RotateTest, EveryExampleOfTheListEqualsFloat64) {
  int64_t seen = 0;
  for (const EncodingInfo& info : Encodings()) {
    const auto encoding =
        info.example({.heads = 2, .head_dim = 64, .length = 128});
    const Terms terms = encoding->Lower(Shape::SelfAttention(2, 64, 128)).terms;
    if (!terms.rotate || !terms.rotate->log_decay.empty()) continue;
    SCOPED_TRACE(info.name);
    ++seen;
    for (const Positions& positions : PositionsFor(*terms.rotate, 128)) {
      const Tensor x = Random({1, 2, 128, 64}, 2, DType::kF32);
      ExpectRotated(Rotate(x, *terms.rotate, positions), x, *terms.rotate,
                    positions);
    }
  }
  EXPECT_GE(seen, 3) << "rope, rope-2d, mrope";
}

// Any number of pairs, at any channel: vectors, half vectors and remainders.
TEST(RotateTest, OddPairsAndPartialHeadsEqualFloat64) {
  OnEveryTarget([] {
    for (PairLayout layout : kLayouts) {
      for (int64_t pairs : {0, 1, 3, 4, 5, 8, 15, 17, 23, 37}) {
        for (DType dtype : kFloats) {
          SCOPED_TRACE(::testing::Message() << pairs << " pairs");
          const Rotation r = Example(layout, pairs, /*first_channel=*/3);
          const Tensor x = Random({2, 1, 5, 80}, 3, dtype);
          const Positions positions = {7, 100'001, -3, 0, 2};
          ExpectRotated(Rotate(x, r, positions), x, r, positions);
        }
      }
    }
  });
}

// Angles beyond 2^27, where positions are no longer split, and around it.
TEST(RotateTest, FarPositionsEqualFloat64) {
  const Rotation r = Example(PairLayout::kHalves, 8);
  const Tensor x = Random({1, 1, 6, 16}, 4, DType::kF32);
  const int64_t edge = int64_t{1} << 27;
  const Positions positions = {edge - 1, edge,         edge + 1,
                               -edge,    1'000 * edge, int64_t{1} << 52};
  ExpectRotated(Rotate(x, r, positions), x, r, positions);
}

// Views with the strides of a [B, L, H, D] array, of every second channel, and
// of both.
std::vector<Tensor> Views(DType dtype) {
  const Tensor tokens_first = Random({2, 9, 3, 24}, 5, dtype);
  const Tensor wide = Random({2, 3, 9, 48}, 6, dtype);
  const Tensor both = Random({2, 9, 3, 48}, 7, dtype);
  const auto every_second = [&](const Tensor& t) {
    std::vector<int64_t> shape = t.shape(), strides = t.strides();
    shape[3] /= 2;
    strides[3] *= 2;
    const void* data =
        dtype == DType::kF64   ? static_cast<const void*>(t.Data<double>())
        : dtype == DType::kF32 ? static_cast<const void*>(t.Data<float>())
                               : static_cast<const void*>(t.Data<uint16_t>());
    return Tensor::Borrow(dtype, shape, strides, data,
                          std::make_shared<Tensor>(t));
  };
  return {tokens_first.Transposed(1, 2), every_second(wide),
          every_second(both).Transposed(1, 2),
          wide.Transposed(2, 3).Transposed(2, 3)};
}

TEST(RotateTest, StridesAndPlacesGiveTheSameBits) {
  OnEveryTarget([] {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
      for (PairLayout layout : kLayouts) {
        const Rotation r = Example(layout, 9, /*first_channel=*/2);
        for (Tensor x : Views(dtype)) {
          const Positions positions = From(1'000, x.size(2));
          const Tensor dense = Copy(x);
          const Tensor expected = Rotate(dense, r, positions);
          if (dtype != DType::kF64) {
            ExpectRotated(expected, dense, r, positions);
          }
          ExpectSame(Rotate(x, r, positions), expected);
          ExpectSame(RotateBackward(x, r, positions),
                     RotateBackward(dense, r, positions));
          RotateInPlace(x, r, positions);
          ExpectSame(x, expected);
          RotateInPlace(x, r, positions, /*inverse=*/true);
          ExpectSame(x, Rotate(expected, r, positions, /*inverse=*/true));
        }
      }
    }
  });
}

TEST(RotateTest, InPlaceLeavesTheNeighboursAlone) {
  OnEveryTarget([] {
    for (DType dtype : kFloats) {
      // Tokens 1 .. 3 of 5, all but the last 3 channels.
      Tensor whole = Random({1, 2, 5, 21}, 8, dtype);
      const Tensor before = Copy(whole);
      const int64_t offset = 21 * DTypeBytes(dtype);
      const char* data =
          dtype == DType::kF32
              ? reinterpret_cast<const char*>(whole.Data<float>())
              : reinterpret_cast<const char*>(whole.Data<uint16_t>());
      Tensor part =
          Tensor::Borrow(dtype, {1, 2, 3, 18}, whole.strides(), data + offset);
      const Rotation r = Example(PairLayout::kInterleaved, 9);
      RotateInPlace(part, r, From(4, 3));
      const Tensor all = Rotate(before, r, From(3, 5));
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t i = 0; i < 5; ++i) {
          for (int64_t d = 0; d < 21; ++d) {
            const bool inside = i >= 1 && i <= 3;
            EXPECT_EQ(whole.At(0, h, i, d),
                      (inside ? all : before).At(0, h, i, d));
          }
        }
      }
    }
  });
}

TEST(RotateTest, InverseUndoesAndBackwardTransposes) {
  OnEveryTarget([] {
    for (Rotation r : {Example(PairLayout::kInterleaved, 11),
                       Example(PairLayout::kHalves, 11)}) {
      r.gain = 1.3;
      const Positions positions = {0, 5, 100'000, 77'777, -6};
      const Tensor x = Random({1, 3, 5, 24}, 9, DType::kF32);
      const Tensor y = Rotate(x, r, positions);
      // Two rotations of numbers below 8, each within 2 epsilons of its pair.
      EXPECT_LE(RelativeError(Rotate(y, r, positions, /*inverse=*/true), x),
                8 * kEps);
      Rotation mirrored = r;
      for (double& theta : mirrored.theta) theta = -theta;
      ExpectRotated(RotateBackward(x, r, positions), x, mirrored, positions);
      // A table does not store the gain; its inverse is that of each pair.
      const RotaryTable table(r, positions);
      ExpectSame(Rotate(y, table, {.inverse = true}),
                 Rotate(y, r, positions, /*inverse=*/true));
      ExpectSame(RotateBackward(x, table), RotateBackward(x, r, positions));
    }
  });
}

TEST(RotateTest, BitsDoNotDependOnThreads) {
  const Rotation r = Example(PairLayout::kHalves, 32);
  const Positions positions = From(70, 987);
  for (DType dtype : kFloats) {
    const Tensor x = Random({2, 3, 987, 64}, 10, dtype);
    const Tensor one = Rotate(x, r, positions, /*inverse=*/false, 1);
    for (int threads : {2, 3, 8}) {
      ExpectSame(Rotate(x, r, positions, /*inverse=*/false, threads), one);
      const RotaryTable table(r, positions, threads);
      ExpectSame(Rotate(x, table, {.threads = threads}), one);
    }
  }
}

// Long heads are processed one after another with tables computed in several
// steps, and large results use non-temporal stores. Short ones go token by
// token.
TEST(RotateTest, LongHeadsHaveTheBitsOfShortOnes) {
  constexpr int64_t kPairs = 512, kDim = 2 * kPairs, kPieces = 21, kShort = 100;
  const Positions positions = From(70, kPieces * kShort);
  for (DType dtype : kFloats) {
    const Tensor x = Random({1, 1, kPieces * kShort, kDim}, 11, dtype);
    const Tensor pieces =
        Tensor::Borrow(dtype, {kPieces, 1, kShort, kDim}, {}, x.Raw());
    OnEveryTarget([&] {
      for (PairLayout layout : kLayouts) {
        const Rotation r = Example(layout, kPairs);
        const std::vector<double> expected =
            Rotate(pieces, r, positions).ToVector();
        EXPECT_EQ(Rotate(x, r, positions).ToVector(), expected);
        EXPECT_EQ(Rotate(x, RotaryTable(r, positions)).ToVector(), expected);
      }
    });
  }
}

TEST(RotateTest, LongHeadsHaveTheBitsOfHeadsInsideTokens) {
  constexpr int64_t kPairs = 512, kDim = 2 * kPairs, kLength = 131;
  for (DType dtype : kFloats) {
    const Tensor x = Random({2, 3, kLength, kDim}, 13, dtype);
    const Tensor by_token = Copy(x.Transposed(1, 2)).Transposed(1, 2);
    OnEveryTarget([&] {
      for (PairLayout layout : kLayouts) {
        const Rotation r = Example(layout, kPairs);
        // Different positions per sequence, and shared ones.
        for (int64_t count : {2 * kLength, kLength}) {
          const Positions positions = From(70, count);
          const Tensor expected = Rotate(by_token, r, positions);
          for (int threads : {1, 3}) {
            ExpectSame(Rotate(x, r, positions, /*inverse=*/false, threads),
                       expected);
          }
          Tensor here = Copy(x);
          RotateInPlace(here, r, positions);
          ExpectSame(here, expected);
          RotateInPlace(here, r, positions, /*inverse=*/true);
          ExpectSame(here, Rotate(expected, r, positions, /*inverse=*/true));
        }
      }
    });
  }
}

TEST(RotateTest, ResultsLieAsTheirInputs) {
  const Tensor x = Random({2, 3, 5, 8}, 12, DType::kF32);
  const Rotation r = Example(PairLayout::kHalves, 4);
  EXPECT_TRUE(Rotate(x, r).IsContiguous());
  const Tensor by_token = Copy(x.Transposed(1, 2)).Transposed(1, 2);
  EXPECT_EQ(Rotate(by_token, r).strides(), by_token.strides());
}

// Decoded one by one, packed or whole: the bits of a row depend only on its
// position.
TEST(RotateTest, RowsDependOnThePositionAlone) {
  OnEveryTarget([] {
    for (const Rotation& r : Rotations(/*dim=*/32, /*length=*/4096)) {
      for (Positions positions : PositionsFor(r, 100)) {
        const RotaryTable table(r, positions);
        for (size_t i = 0; i < positions.size(); i += 9) {
          const RotaryTable single(r, std::span(positions).subspan(i, 1));
          for (int64_t p = 0; p < r.NumPairs(); ++p) {
            EXPECT_EQ(single.cos().At(0, p), table.cos().At(i, p));
            EXPECT_EQ(single.sin().At(0, p), table.sin().At(i, p));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace locus::testing
