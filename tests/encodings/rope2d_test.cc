#include "locus/encodings/rope2d.h"

#include "locus/rotary.h"
#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(rope_2d);
LOCUS_COVERS(mrope);

namespace locus::testing {
namespace {

constexpr PairLayout kLayouts[] = {PairLayout::kInterleaved,
                                   PairLayout::kHalves};

// Dot product of q and k after rotating pair p of each by its own angle.
double TurnedDot(PairLayout layout, const std::vector<double>& q,
                 const std::vector<double>& k,
                 const std::function<double(size_t p)>& q_angle,
                 const std::function<double(size_t p)>& k_angle) {
  const size_t pairs = q.size() / 2;
  double sum = 0.0;
  for (size_t p = 0; p < pairs; ++p) {
    const bool interleaved = layout == PairLayout::kInterleaved;
    const size_t a = interleaved ? 2 * p : p;
    const size_t b = interleaved ? 2 * p + 1 : p + pairs;
    const auto turn = [&](const std::vector<double>& x, double angle) {
      return std::pair(x[a] * std::cos(angle) - x[b] * std::sin(angle),
                       x[a] * std::sin(angle) + x[b] * std::cos(angle));
    };
    const auto [qa, qb] = turn(q, q_angle(p));
    const auto [ka, kb] = turn(k, k_angle(p));
    sum += qa * ka + qb * kb;
  }
  return sum / std::sqrt(double(q.size()));
}

// Pairs 0 and 1 of 4 rotate by y, pairs 2 and 3 by x, with the frequencies 1
// and base^(-1/2) of a head of 4.
TEST(Rope2DTest, MatchesPaperFormula) {
  constexpr int64_t kWidth = 5;
  const double slow = 1.0 / std::sqrt(100.0);
  const auto angle = [&](int64_t position) {
    const double y = double(position / kWidth), x = double(position % kWidth);
    return [=](size_t p) {
      return std::vector<double>{y, y * slow, x, x * slow}[p];
    };
  };
  for (PairLayout layout : kLayouts) {
    for (bool causal : {false, true}) {
      for (int64_t first : {int64_t{0}, kFar}) {
        const PaperCase c{.causal = causal, .first_position = first};
        const double error = PaperError(
            Rope2D(8, layout, kWidth, 100.0), c,
            [&](int64_t, const auto& q, const auto& k, int64_t m, int64_t n) {
              return TurnedDot(layout, q, k, angle(m), angle(n));
            });
        EXPECT_LE(error, AngleTolerance(first));
      }
    }
  }
}

// A common shift by whole rows has no effect.
TEST(Rope2DTest, ScoresDependOnOffsetsOnly) {
  const Rope2D rope(8, PairLayout::kHalves, 4);
  const Tensor x = RandomTensor({1, 1, 12, 8}, 1);
  const auto attend = [&](int64_t first) {
    const std::vector<int64_t> positions = PositionsFrom(first, 12);
    AttentionOptions options;
    options.q_positions = positions;
    options.k_positions = positions;
    return reference::Attention(x, x, x, rope, options).out;
  };
  EXPECT_LE(RelativeError(attend(4 * 7), attend(0)), kPaperTolerance);
  EXPECT_LE(RelativeError(attend(4 * kFar), attend(0)), AngleTolerance(kFar));
  // Half a row does: x wraps.
  EXPECT_GT(RelativeError(attend(2), attend(0)), 1e-3);
}

TEST(Rope2DTest, RefusesBadInput) {
  const PairLayout layout = PairLayout::kHalves;
  EXPECT_EQ(ErrorOf([&] { Rope2D(6, layout, 4); }),
            "2-D RoPE needs a head_dim divisible by 4, got 6");
  EXPECT_EQ(ErrorOf([&] { Rope2D(8, layout, 0); }),
            "2-D RoPE's width must be a positive number, at most 2^24, got 0");
  EXPECT_EQ(ErrorOf([&] { Rope2D(8, layout, 4, NAN); }),
            "2-D RoPE's base must be positive and finite, got nan");
  EXPECT_EQ(ErrorOf([&] {
              Rope2D(8, layout, 4).Lower(Shape::SelfAttention(1, 4, 4));
            }),
            "2-D RoPE was made for heads of 8 channels, but the call has 4");
  const Tensor x = RandomTensor({1, 1, 1, 8}, 1);
  const std::vector<int64_t> positions = {-1};
  AttentionOptions options;
  options.q_positions = positions;
  options.k_positions = positions;
  EXPECT_EQ(ErrorOf([&] {
              reference::Attention(x, x, x, Rope2D(8, layout, 4), options);
            }),
            "rotation by coordinates needs positions >= 0, got -1");
}

// A call without positions is the grid in raster order, and a window counts
// along the rows: key (y, x) is seen by queries up to `left` raster steps
// later.
TEST(Rope2DTest, DefaultPositionsAreTheRaster) {
  constexpr int64_t kHeight = 3, kWidth = 4, kDim = 8, kLeft = 5;
  const Tensor x = RandomTensor({1, 1, kHeight * kWidth, kDim}, 1);
  const Rope2D rope(kDim, PairLayout::kHalves, kWidth, 100.0);
  const AttentionOptions options{.causal = true,
                                 .window = Window{.left = kLeft, .right = 0}};
  const Tensor out = reference::Attention(x, x, x, rope, options).out;
  const auto angle = [](int64_t at) {
    return [at](size_t p) {
      const int64_t c = p < 2 ? at / kWidth : at % kWidth;
      return double(c) * (p % 2 == 0 ? 1.0 : 0.1);  // 100^(-2p / 4)
    };
  };
  const auto row = [&](int64_t i) {
    std::vector<double> values;
    for (int64_t d = 0; d < kDim; ++d) values.push_back(x.At(0, 0, i, d));
    return values;
  };
  for (int64_t i = 0; i < kHeight * kWidth; ++i) {
    double total = 0.0;
    std::vector<double> sum(kDim);
    for (int64_t j = std::max<int64_t>(i - kLeft, 0); j <= i; ++j) {
      const double p = std::exp(
          TurnedDot(PairLayout::kHalves, row(i), row(j), angle(i), angle(j)));
      total += p;
      for (size_t d = 0; d < sum.size(); ++d) sum[d] += p * row(j)[d];
    }
    for (int64_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(out.At(0, 0, i, d), sum[static_cast<size_t>(d)] / total,
                  1e-12);
    }
  }
}

// ----------------------------------------------------------------- M-RoPE

enum Coordinate : int32_t { kT, kH, kW };

// Which coordinate rotates each pair.
std::vector<int32_t> AxesOf(int64_t head_dim, std::array<int64_t, 3> sections,
                            MRopeSections dealing) {
  return MRope(head_dim, PairLayout::kHalves, sections, dealing)
      .Lower(Shape::SelfAttention(1, head_dim, 2))
      .terms.rotate->axis;
}

TEST(MRopeTest, DealsPairsAsPublished) {
  EXPECT_EQ(AxesOf(16, {2, 3, 3}, MRopeSections::kChunked),
            (std::vector<int32_t>{kT, kT, kH, kH, kH, kW, kW, kW}));
  EXPECT_EQ(AxesOf(16, {4, 2, 2}, MRopeSections::kInterleaved),
            (std::vector<int32_t>{kT, kH, kW, kT, kH, kW, kT, kT}));
  EXPECT_EQ(AxesOf(16, {3, 3, 2}, MRopeSections::kInterleaved),
            (std::vector<int32_t>{kT, kH, kW, kT, kH, kW, kT, kH}));
  // Qwen3-VL: 24, 20, 20 of 64, so that the last four pairs are time.
  const auto axes = AxesOf(128, {24, 20, 20}, MRopeSections::kInterleaved);
  EXPECT_EQ(std::ranges::count(axes, kT), 24);
  EXPECT_EQ(std::ranges::count(axes, kH), 20);
  EXPECT_EQ(std::ranges::count(axes, kW), 20);
  EXPECT_EQ(std::vector<int32_t>(axes.end() - 6, axes.end()),
            (std::vector<int32_t>{kH, kW, kT, kT, kT, kT}));
}

TEST(MRopeTest, MatchesPaperFormula) {
  // Text, then a 2 x 2 image at two times, then text.
  const int64_t tokens[][3] = {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {2, 2, 3},
                               {2, 3, 2}, {2, 3, 3}, {3, 2, 2}, {3, 3, 3},
                               {4, 4, 4}, {9, 8, 7}};
  constexpr int64_t kLength = 10, kDim = 16;
  struct Dealt {
    std::array<int64_t, 3> sections;
    MRopeSections dealing;
    std::vector<size_t> axis;  // written out by hand
  };
  const Dealt dealt[] = {
      {{2, 3, 3}, MRopeSections::kChunked, {0, 0, 1, 1, 1, 2, 2, 2}},
      {{4, 2, 2}, MRopeSections::kInterleaved, {0, 1, 2, 0, 1, 2, 0, 0}}};
  const Tensor q = RandomTensor({1, 1, kLength, kDim}, 1);
  const Tensor k = RandomTensor({1, 1, kLength, kDim}, 2);
  for (const Dealt& each : dealt) {
    for (PairLayout layout : kLayouts) {
      for (int64_t shift : {int64_t{0}, kFar}) {
        std::vector<int64_t> positions;
        for (const auto& [t, h, w] : tokens) {
          positions.push_back(PackPosition(t + shift, h + shift, w + shift));
        }
        AttentionOptions options;
        options.q_positions = positions;
        options.k_positions = positions;
        const MRope rope(kDim, layout, each.sections, each.dealing, 1e4);
        const Tensor scores =
            reference::Scorer(
                q, k, rope.Lower(Shape::SelfAttention(1, kDim, 1)).terms,
                options)
                .Of(0, 0);
        const auto angle = [&](int64_t i) {
          return [&, i](size_t p) {
            const int64_t at = tokens[i][each.axis[p]] + shift;
            return double(at) / std::pow(1e4, 2.0 * double(p) / double(kDim));
          };
        };
        Tensor expected = Tensor::Zeros(DType::kF64, {kLength, kLength});
        for (int64_t i = 0; i < kLength; ++i) {
          for (int64_t j = 0; j < kLength; ++j) {
            std::vector<double> qi, kj;
            for (int64_t d = 0; d < kDim; ++d) {
              qi.push_back(q.At(0, 0, i, d));
              kj.push_back(k.At(0, 0, j, d));
            }
            expected.MutableData<double>()[i * kLength + j] =
                TurnedDot(layout, qi, kj, angle(i), angle(j));
          }
        }
        EXPECT_LE(RelativeError(scores, expected), AngleTolerance(shift));
      }
    }
  }
}

TEST(MRopeTest, TextEqualsOrdinaryRope) {
  const Tensor x = RandomTensor({1, 2, 7, 16}, 3);
  for (MRopeSections dealing :
       {MRopeSections::kChunked, MRopeSections::kInterleaved}) {
    for (PairLayout layout : kLayouts) {
      for (int64_t first : {int64_t{0}, kFar}) {
        const std::vector<int64_t> plain = PositionsFrom(first, 7);
        std::vector<int64_t> packed;
        for (int64_t p : plain) packed.push_back(PackPosition(p, p, p));
        const auto attend = [&](const Encoding& e,
                                const std::vector<int64_t>& positions) {
          AttentionOptions options{.causal = true};
          options.q_positions = positions;
          options.k_positions = positions;
          return reference::Attention(x, x, x, e, options).out.ToVector();
        };
        const auto rope = attend(Rope(16, layout, {.base = 1e6}), plain);
        const MRope text(16, layout, {2, 3, 3}, dealing, 1e6);
        EXPECT_EQ(attend(text, packed), rope);
        EXPECT_EQ(attend(text, plain), rope);
        if (first == 0) {
          EXPECT_EQ(attend(text, {}), rope);
        }
      }
    }
  }
}

TEST(MRopeTest, RefusesBadInput) {
  const PairLayout layout = PairLayout::kHalves;
  EXPECT_EQ(ErrorOf([&] {
              MRope(16, layout, {2, 3, 4});
            }),
            "M-RoPE's sections must sum to head_dim / 2 = 8, got [2, 3, 4]");
  EXPECT_EQ(ErrorOf([&] {
              MRope(16, layout, {10, -1, -1});
            }),
            "M-RoPE's sections must sum to head_dim / 2 = 8, got [10, -1, -1]");
  EXPECT_EQ(ErrorOf([&] {
              MRope(8, layout, {2, 1, 1}, MRopeSections::kChunked, -1.0);
            }),
            "M-RoPE's base must be positive and finite, got -1");
  EXPECT_EQ(ErrorOf([&] {
              MRope(8, layout, {2, 1, 1}).Lower(Shape::SelfAttention(1, 4, 4));
            }),
            "M-RoPE was made for heads of 8 channels, but the call has 4");
  EXPECT_EQ(ErrorOf([] { PackPosition(0, -1, 0); }),
            "a packed position holds coordinates from 0 to 1048575, got "
            "(0, -1, 0)");
  EXPECT_EQ(ErrorOf([] { PackPosition(kPackedAxis, 0, 0); }),
            "a packed position holds coordinates from 0 to 1048575, got "
            "(1048576, 0, 0)");
}

}  // namespace
}  // namespace locus::testing
