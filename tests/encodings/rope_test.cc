#include "locus/encodings/rope.h"

#include "locus/rotary.h"
#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(rope);

namespace locus::testing {
namespace {

constexpr PairLayout kLayouts[] = {PairLayout::kInterleaved,
                                   PairLayout::kHalves};

// Rotates channels first .. first + 2 * w.size() by pos * w_p, pair by pair.
std::vector<double> Turned(std::vector<double> x, PairLayout layout,
                           size_t first, const std::vector<double>& w,
                           double pos) {
  for (size_t p = 0; p < w.size(); ++p) {
    const bool interleaved = layout == PairLayout::kInterleaved;
    const size_t a = first + (interleaved ? 2 * p : p);
    const size_t b = interleaved ? a + 1 : a + w.size();
    const double c = std::cos(pos * w[p]), s = std::sin(pos * w[p]);
    const double xa = x[a], xb = x[b];
    x[a] = xa * c - xb * s;
    x[b] = xa * s + xb * c;
  }
  return x;
}

// 1 / base^(2p / r).
std::vector<double> PaperFrequencies(int r, double base) {
  std::vector<double> w;
  for (int p = 0; p < r / 2; ++p) {
    w.push_back(1.0 / std::pow(base, 2.0 * p / r));
  }
  return w;
}

double RopeError(const Rope& rope, PairLayout layout, size_t first_channel,
                 const std::vector<double>& w, const PaperCase& c) {
  return PaperError(
      rope, c,
      [&](int64_t, const auto& q, const auto& k, int64_t m, int64_t n) {
        return ScaledDot(Turned(q, layout, first_channel, w, double(m)),
                         Turned(k, layout, first_channel, w, double(n)));
      });
}

TEST(RopeTest, MatchesPaperFormula) {
  for (PairLayout layout : kLayouts) {
    for (double base : {10000.0, 5e5}) {
      for (bool causal : {false, true}) {
        for (int64_t first : {int64_t{0}, kFar}) {
          const PaperCase c{.causal = causal, .first_position = first};
          EXPECT_LE(RopeError(Rope(8, layout, {.base = base}), layout, 0,
                              PaperFrequencies(8, base), c),
                    AngleTolerance(first));
        }
      }
    }
  }
}

TEST(RopeTest, RotatesPartOfTheHead) {
  for (PairLayout layout : kLayouts) {
    for (int64_t first : {int64_t{0}, kFar}) {
      const PaperCase c{.head_dim = 10, .first_position = first};
      RopeOptions o{.rotary_dim = 4};
      EXPECT_LE(RopeError(Rope(10, layout, o), layout, 0,
                          PaperFrequencies(4, 10000.0), c),
                AngleTolerance(first));
      o.place = RotaryPlace::kTrailing;
      EXPECT_LE(RopeError(Rope(10, layout, o), layout, 6,
                          PaperFrequencies(4, 10000.0), c),
                AngleTolerance(first));
    }
  }
}

TEST(RopeTest, TakesGivenFrequencies) {
  const std::vector<double> w = {0.7, -0.2, 0.0, 3.0};
  for (PairLayout layout : kLayouts) {
    EXPECT_LE(RopeError(Rope(8, layout, {.frequencies = w}), layout, 0, w, {}),
              kPaperTolerance);
  }
}

// The layouts differ: halves are the interleaved pairs of permuted channels.
TEST(RopeTest, LayoutsDifferByAPermutation) {
  const std::vector<int64_t> at = {5};
  const auto rotate = [&](PairLayout layout, std::vector<double> x) {
    return Rotate(Tensor::From({1, 1, 1, 4}, std::move(x)),
                  Rope(4, layout).RotationFor(8), at)
        .ToVector();
  };
  const auto pairs = rotate(PairLayout::kInterleaved, {1, 2, 3, 4});
  const auto halves = rotate(PairLayout::kHalves, {1, 3, 2, 4});
  EXPECT_EQ(pairs[0], halves[0]);
  EXPECT_EQ(pairs[1], halves[2]);
  EXPECT_EQ(pairs[2], halves[1]);
  EXPECT_EQ(pairs[3], halves[3]);
  EXPECT_NE(pairs, rotate(PairLayout::kHalves, {1, 2, 3, 4}));
}

TEST(RopeTest, IsOrthogonalAndInvertible) {
  const std::vector<int64_t> positions = {0, 1, 77, kFar, 10 * kFar};
  const Tensor x = RandomTensor({1, 2, 5, 8}, 1);
  const Tensor y = RandomTensor({1, 2, 5, 8}, 2);
  for (PairLayout layout : kLayouts) {
    const Rotation rotation = Rope(8, layout).RotationFor(10 * kFar);
    const Tensor rx = Rotate(x, rotation, positions);
    const Tensor ry = Rotate(y, rotation, positions);
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 5; ++i) {
        double before = 0.0, after = 0.0;
        for (int64_t d = 0; d < 8; ++d) {
          before += x.At(0, h, i, d) * y.At(0, h, i, d);
          after += rx.At(0, h, i, d) * ry.At(0, h, i, d);
        }
        EXPECT_NEAR(after, before, kPaperTolerance);
      }
    }
    EXPECT_LE(
        RelativeError(Rotate(rx, rotation, positions, /*inverse=*/true), x),
        kPaperTolerance);
    EXPECT_GT(RelativeError(rx, x), 0.1);
  }
  // The inverse undoes a gain as well.
  const Rotation yarn =
      Rope(8, PairLayout::kHalves,
           {.scaling = YarnScaling{.factor = 16.0, .original_length = 64}})
          .RotationFor(1024);
  EXPECT_GT(yarn.gain, 1.2);
  EXPECT_LE(RelativeError(Rotate(Rotate(x, yarn, positions), yarn, positions,
                                 /*inverse=*/true),
                          x),
            kPaperTolerance);
}

TEST(RopeTest, ScoresDependOnTheOffsetOnly) {
  const Tensor q = RandomTensor({1, 1, 9, 8}, 1);
  const Tensor k = RandomTensor({1, 1, 9, 8}, 2);
  for (PairLayout layout : kLayouts) {
    const Terms terms =
        Rope(8, layout).Lower(Shape::SelfAttention(1, 8, 9)).terms;
    const auto scores = [&](int64_t first) {
      const std::vector<int64_t> positions = PositionsFrom(first, 9);
      AttentionOptions options;
      options.q_positions = positions;
      options.k_positions = positions;
      return reference::Scorer(q, k, terms, options).Of(0, 0);
    };
    for (int64_t first : {int64_t{-400}, int64_t{3}, int64_t{5000}, kFar}) {
      EXPECT_LE(RelativeError(scores(first), scores(0)),
                AngleTolerance(std::abs(first)));
    }
  }
}

// Three separate scalars: the gain applies to cos and sin, the factor to the
// softmax scale, and the temperature to each query.
TEST(RopeTest, SoftmaxFactorAndTemperatureStayApart) {
  const std::vector<double> w = PaperFrequencies(8, 10000.0);
  const RopeOptions o{.softmax_factor = 1.7,
                      .temperature_beta = 0.1,
                      .temperature_shift = 1,
                      .temperature_span = 4};
  const Rope rope(8, PairLayout::kHalves, o);
  for (std::optional<double> scale : {std::optional<double>(), {0.2}}) {
    const PaperCase c{.scale = scale};
    const double error = PaperError(
        rope, c,
        [&](int64_t, const auto& q, const auto& k, int64_t m, int64_t n) {
          const double t = 1.0 + 0.1 * std::log(1.0 + double((m + 1) / 4));
          return t * 1.7 * scale.value_or(1.0 / std::sqrt(8.0)) *
                 Dot(Turned(q, PairLayout::kHalves, 0, w, double(m)),
                     Turned(k, PairLayout::kHalves, 0, w, double(n)));
        });
    EXPECT_LE(error, kPaperTolerance);
  }
  const Terms terms = rope.Lower(Shape::SelfAttention(1, 8, 4)).terms;
  EXPECT_EQ(terms.rotate->gain, 1.0);
  EXPECT_NEAR(terms.scale.scale, 1.7 / std::sqrt(8.0), kPaperTolerance);
  EXPECT_EQ(terms.scale.At(0, 2), terms.scale.scale);
  EXPECT_NEAR(terms.scale.At(0, 3) / terms.scale.scale,
              1.0 + 0.1 * std::log(2.0), kPaperTolerance);
}

// inv_freq, the angle and cos / sin in float32, as in the Hugging Face code:
// equal bit for bit, and measurably different from the exact angles.
TEST(RopeTest, Float32AnglesEqualFloat32Arithmetic) {
  constexpr int64_t kDim = 128;
  const Rotation single =
      Rope(kDim, PairLayout::kHalves, {.angles = AngleMode::kFloat32})
          .RotationFor(131072);
  const Rotation exact = Rope(kDim, PairLayout::kHalves).RotationFor(131072);
  std::vector<double> cos(kDim / 2), sin(kDim / 2), c(kDim / 2), s(kDim / 2);
  double worst = 0.0;
  for (int64_t position : {0, 1, 4095, 131071}) {
    single.CosSin(position, cos.data(), sin.data());
    exact.CosSin(position, c.data(), s.data());
    for (size_t p = 0; p < kDim / 2; ++p) {
      const float exponent = float(2 * p) / float(kDim);
      const float inv_freq = 1.0F / std::pow(10000.0F, exponent);
      const float angle = float(position) * inv_freq;
      EXPECT_EQ(cos[p], double(std::cos(angle)));
      EXPECT_EQ(sin[p], double(std::sin(angle)));
      worst = std::max(worst, std::abs(cos[p] - c[p]));
    }
  }
  EXPECT_GT(worst, 1e-4);
}

TEST(RopeTest, RefusesBadInput) {
  const auto build = [](int64_t dim, const RopeOptions& o) {
    return ErrorOf([&] { Rope(dim, PairLayout::kHalves, o); });
  };
  EXPECT_EQ(build(7, {}),
            "rotary_dim must be even and at most head_dim 7, got 7");
  EXPECT_EQ(build(8, {.rotary_dim = 3}),
            "rotary_dim must be even and at most head_dim 8, got 3");
  EXPECT_EQ(build(8, {.rotary_dim = 10}),
            "rotary_dim must be even and at most head_dim 8, got 10");
  EXPECT_EQ(build(0, {}),
            "RoPE's head_dim must be a positive number, at most 2^24, got 0");
  EXPECT_EQ(build(8, {.base = NAN}),
            "RoPE's base must be positive and finite, got nan");
  EXPECT_EQ(build(8, {.softmax_factor = 0.0}),
            "RoPE's softmax_factor must be positive and finite, got 0");
  EXPECT_EQ(build(8, {.temperature_beta = 0.1, .temperature_span = 0}),
            "the query temperature needs a finite beta and a positive span, "
            "got 0.1 and 0");
  EXPECT_EQ(build(8, {.frequencies = {1.0}}),
            "rotary_dim 8 needs 4 frequencies, got 1");
  EXPECT_EQ(build(2, {.frequencies = {NAN}}),
            "a RoPE frequency is not finite: nan");
  EXPECT_EQ(
      ErrorOf([] {
        Rope(8, PairLayout::kHalves).Lower(Shape::SelfAttention(1, 16, 4));
      }),
      "RoPE was made for heads of 8 channels, but the call has 16");
  EXPECT_EQ(ErrorOf([] {
              Rotate(RandomTensor({1, 1, 2, 8}, 1),
                     Rope(16, PairLayout::kHalves).RotationFor(2));
            }),
            "16 rotary channels from 0 on do not fit a head of 8");
}

}  // namespace
}  // namespace locus::testing
