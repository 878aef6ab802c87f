// The frequencies and gains of RoPE's scalings, compared with formulas written
// out here and with hand-computed values.
#include <gtest/gtest.h>

#include <numbers>

#include "locus/encodings/rope.h"
#include "support/formulas.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

constexpr double kPi = std::numbers::pi;

Rotation Scaled(int64_t head_dim, const RopeScaling& scaling,
                double base = 10000.0, int64_t length = 1) {
  return Rope(head_dim, PairLayout::kHalves, {.base = base, .scaling = scaling})
      .RotationFor(length);
}

std::vector<double> Plain(int dim, double base) {
  std::vector<double> w;
  for (int p = 0; p < dim / 2; ++p) {
    w.push_back(1.0 / std::pow(base, 2.0 * p / dim));
  }
  return w;
}

// Frequencies span many orders of magnitude: compare each relative to its own.
void ExpectFrequencies(const std::vector<double>& actual,
                       const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t p = 0; p < actual.size(); ++p) {
    EXPECT_NEAR(actual[p], expected[p], kPaperTolerance * std::abs(expected[p]))
        << "pair " << p;
  }
}

TEST(RopeScalingTest, LinearDividesEveryFrequency) {
  std::vector<double> expected = Plain(64, 10000.0);
  for (double& w : expected) w /= 8.0;
  const Rotation r = Scaled(64, LinearScaling{.factor = 8.0});
  ExpectFrequencies(r.theta, expected);
  EXPECT_EQ(r.gain, 1.0);
}

TEST(RopeScalingTest, DynamicStretchesTheBasePastTheLength) {
  const DynamicScaling scaling{.factor = 2.0, .max_length = 2048};
  for (int64_t length : {1, 2048}) {
    ExpectFrequencies(Scaled(128, scaling, 10000.0, length).theta,
                      Plain(128, 10000.0));
  }
  // Twice the length: 2 * 2 - 1 = 3 times, to the power 128 / 126.
  ExpectFrequencies(Scaled(128, scaling, 10000.0, 4096).theta,
                    Plain(128, 10000.0 * std::pow(3.0, 128.0 / 126.0)));
  const Rope rope(128, PairLayout::kHalves, {.scaling = scaling});
  EXPECT_TRUE(rope.ChangesWithLength());
  // The length of a call is its last position plus one.
  const auto lowered = [&](int64_t length) {
    return rope.Lower(Shape::SelfAttention(1, 128, length)).terms.rotate->Id();
  };
  EXPECT_EQ(lowered(2048), lowered(1));
  EXPECT_NE(lowered(2049), lowered(2048));
}

TEST(RopeScalingTest, AlphaStretchesTheBase) {
  ExpectFrequencies(Scaled(128, AlphaScaling{.alpha = 1000.0}).theta,
                    Plain(128, 10000.0 * std::pow(1000.0, 128.0 / 126.0)));
}

// YaRN as published: the pair that makes n full rotations over the original
// length is c(n) = r ln(L / (2 pi n)) / (2 ln base).
std::vector<double> PaperYarn(int r, double base, const YarnScaling& y) {
  const auto c = [&](double turns) {
    return r * std::log(double(y.original_length) / (2.0 * kPi * turns)) /
           (2.0 * std::log(base));
  };
  double low = c(y.beta_fast), high = c(y.beta_slow);
  if (y.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, double(r - 1));
  if (low == high) high += 0.001;
  std::vector<double> w = Plain(r, base);
  for (int p = 0; p < r / 2; ++p) {
    const double interpolated =
        std::min(1.0, std::max(0.0, (p - low) / (high - low)));
    double& each = w[size_t(p)];
    each = interpolated * each / y.factor + (1.0 - interpolated) * each;
  }
  return w;
}

TEST(RopeScalingTest, YarnMatchesPaperFormula) {
  for (double factor : {4.0, 16.0, 40.0}) {
    for (bool truncate : {true, false}) {
      for (auto [dim, base] :
           {std::pair<int, double>{128, 10000.0}, {64, 150000.0}, {32, 50.0}}) {
        const YarnScaling y{
            .factor = factor, .original_length = 4096, .truncate = truncate};
        const Rotation r = Scaled(dim, y, base);
        ExpectFrequencies(r.theta, PaperYarn(dim, base, y));
        EXPECT_NEAR(r.gain, 1.0 + 0.1 * std::log(factor), kPaperTolerance);
      }
    }
  }
  // The two ends of the blend coincide: a step.
  const YarnScaling step{.factor = 4.0,
                         .original_length = 4096,
                         .beta_fast = 2.0,
                         .beta_slow = 2.0,
                         .truncate = false};
  ExpectFrequencies(Scaled(64, step).theta, PaperYarn(64, 10000.0, step));
}

// Head 128, base 10000, length 4096: c(32) = 20.94 and c(1) = 45.03, so pairs
// up to 20 keep their frequency, pairs from 46 are interpolated, and pair 33 is
// halfway.
TEST(RopeScalingTest, YarnHoldsHandComputedValues) {
  const Rotation r =
      Scaled(128, YarnScaling{.factor = 16.0, .original_length = 4096});
  const std::vector<double> w = Plain(128, 10000.0);
  EXPECT_NEAR(r.theta[20] / w[20], 1.0, kPaperTolerance);
  EXPECT_NEAR(r.theta[21] / w[21], 1.0 - 1.0 / 26.0 * 15.0 / 16.0,
              kPaperTolerance);
  EXPECT_NEAR(r.theta[33] / w[33], 0.5 + 0.5 / 16.0, kPaperTolerance);
  EXPECT_NEAR(r.theta[46] / w[46], 1.0 / 16.0, kPaperTolerance);
  EXPECT_NEAR(r.theta[63] / w[63], 1.0 / 16.0, kPaperTolerance);
  EXPECT_NEAR(r.gain, 1.2772588722239781, kPaperTolerance);
}

TEST(RopeScalingTest, YarnGainFollowsItsSettings) {
  const auto gain = [](YarnScaling y) {
    y.original_length = 4096;
    return Scaled(64, y).gain;
  };
  EXPECT_EQ(gain({.factor = 1.0}), 1.0);
  EXPECT_EQ(gain({.factor = 40.0, .attention_factor = 1.5}), 1.5);
  // DeepSeek: equal magnitudes cancel here and change the softmax scale.
  EXPECT_EQ(gain({.factor = 40.0, .mscale = 1.0, .mscale_all_dim = 1.0}), 1.0);
  // (0.0707 ln 40 + 1) / (0.1 ln 40 + 1), with ln 40 = 3.6888794541139363.
  EXPECT_NEAR(gain({.factor = 40.0, .mscale = 0.707, .mscale_all_dim = 1.0}),
              1.2608037774058553 / 1.3688879454113936, kPaperTolerance);
  // One of the two alone has no effect.
  EXPECT_NEAR(gain({.factor = 40.0, .mscale = 0.707}), 1.3688879454113936,
              kPaperTolerance);
}

// Llama 3.1: wavelengths below 8192 / 4 are kept, those above 8192 / 1 are
// divided by 8. With base 500000 and head 128 these are pairs up to 28 and from
// 35.
TEST(RopeScalingTest, Llama3MatchesPaperFormula) {
  const Rotation r = Scaled(128, Llama3Scaling{}, 500000.0);
  const std::vector<double> w = Plain(128, 500000.0);
  std::vector<double> expected;
  for (size_t p = 0; p < 64; ++p) {
    // Full rotations over the original length.
    const double turns = 8192.0 * w[p] / (2.0 * kPi);
    const double keep = std::clamp((turns - 1.0) / (4.0 - 1.0), 0.0, 1.0);
    expected.push_back(keep * w[p] + (1.0 - keep) * w[p] / 8.0);
  }
  ExpectFrequencies(r.theta, expected);
  EXPECT_NEAR(r.theta[28], w[28], kPaperTolerance * w[28]);
  EXPECT_LT(r.theta[29], w[29] * 0.99);
  EXPECT_GT(r.theta[34], w[34] / 8.0 * 1.01);
  EXPECT_NEAR(r.theta[35], w[35] / 8.0, kPaperTolerance * w[35]);
  EXPECT_EQ(r.gain, 1.0);
}

TEST(RopeScalingTest, LongRopeSwitchesListsAndHasAGain) {
  LongRopeScaling s{.short_factor = {1.0, 1.5, 2.0, 4.0},
                    .long_factor = {1.0, 8.0, 20.0, 64.0},
                    .original_length = 4096,
                    .factor = 32.0};
  const auto expected = [](const std::vector<double>& divisors) {
    std::vector<double> w = Plain(8, 10000.0);
    for (size_t p = 0; p < 4; ++p) w[p] /= divisors[p];
    return w;
  };
  ExpectFrequencies(Scaled(8, s, 10000.0, 4096).theta,
                    expected(s.short_factor));
  ExpectFrequencies(Scaled(8, s, 10000.0, 4097).theta, expected(s.long_factor));
  // sqrt(1 + ln 32 / ln 4096) = sqrt(1 + 5 / 12), for both lists.
  EXPECT_NEAR(Scaled(8, s).gain, std::sqrt(17.0 / 12.0), kPaperTolerance);
  s.attention_factor = 1.25;
  EXPECT_EQ(Scaled(8, s).gain, 1.25);
  s.attention_factor.reset();
  s.factor = 1.0;
  EXPECT_EQ(Scaled(8, s).gain, 1.0);
}

TEST(RopeScalingTest, ProportionalTurnsTheFirstShare) {
  const Rotation r =
      Scaled(16, ProportionalScaling{.partial = 0.25, .factor = 2.0}, 10000.0);
  // The exponent runs over all 16 channels; two of the eight pairs rotate.
  const double second = std::pow(10000.0, -2.0 / 16.0) / 2.0;
  ExpectFrequencies(r.theta, {0.5, second, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(r.rotary_dim, 16);
  EXPECT_EQ(r.SecondOfPair(1), 9);
}

// Scaled frequencies in float32: linear scaling is a single float32 division,
// bit for bit.
TEST(RopeScalingTest, Float32LinearEqualsFloat32Arithmetic) {
  const Rotation r = Rope(64, PairLayout::kHalves,
                          {.scaling = LinearScaling{.factor = 3.0},
                           .angles = AngleMode::kFloat32})
                         .RotationFor(1);
  std::vector<double> cos(32), sin(32);
  r.CosSin(54321, cos.data(), sin.data());
  for (size_t p = 0; p < 32; ++p) {
    const float inv_freq =
        1.0F / std::pow(10000.0F, float(2 * p) / 64.0F) / 3.0F;
    EXPECT_EQ(cos[p], double(std::cos(54321.0F * inv_freq)));
    EXPECT_EQ(sin[p], double(std::sin(54321.0F * inv_freq)));
  }
}

TEST(RopeScalingTest, RefusesBadInput) {
  const auto build = [](const RopeScaling& scaling, int64_t dim = 8,
                        int64_t rotary_dim = 0) {
    return ErrorOf([&] {
      Rope(dim, PairLayout::kHalves,
           {.rotary_dim = rotary_dim, .scaling = scaling});
    });
  };
  EXPECT_EQ(build(LinearScaling{.factor = 0.0}),
            "linear scaling's factor must be positive and finite, got 0");
  EXPECT_EQ(build(DynamicScaling{.factor = 2.0}),
            "dynamic scaling's max_length must be positive, got 0");
  EXPECT_EQ(build(AlphaScaling{.alpha = 2.0}, 2),
            "alpha scaling needs more than one rotary pair, got rotary_dim 2");
  EXPECT_EQ(build(YarnScaling{.factor = 4.0}),
            "YaRN's original_length must be positive, got 0");
  EXPECT_EQ(build(YarnScaling{.factor = NAN, .original_length = 64}),
            "YaRN's factor must be positive and finite, got nan");
  EXPECT_EQ(
      build(YarnScaling{
          .factor = 4.0, .original_length = 64, .attention_factor = -1.0}),
      "YaRN's attention_factor must be positive and finite, got -1");
  EXPECT_EQ(build(LongRopeScaling{.short_factor = {1, 1, 1, 1},
                                  .long_factor = {1, 1},
                                  .original_length = 64}),
            "LongRoPE needs 4 factors in each list, got 2");
  EXPECT_EQ(build(Llama3Scaling{.low_freq_factor = 4.0}),
            "llama3 scaling needs high_freq_factor > low_freq_factor, got 4 "
            "and 4");
  EXPECT_EQ(build(ProportionalScaling{.partial = 1.5}),
            "proportional scaling's partial must lie in (0, 1], got 1.5");
  EXPECT_EQ(build(ProportionalScaling{.partial = 0.5}, 8, 4),
            "proportional scaling pairs the whole head of 8, got rotary_dim 4");
  EXPECT_EQ(ErrorOf([] {
              Rope(4, PairLayout::kHalves,
                   {.scaling = AlphaScaling{.alpha = 2.0},
                    .frequencies = {1.0, 0.1}});
            }),
            "given frequencies have no base to stretch: dynamic and alpha "
            "scaling need a base");
}

}  // namespace
}  // namespace locus::testing
