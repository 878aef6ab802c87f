// Configs resolve to what transformers' own models do with q and k.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "locus/models.h"
#include "locus/rotary.h"
#include "models/golden.h"

namespace locus::models {
namespace {

// Half a unit in the last place of float32.
constexpr double kRound = 0x1p-24;

struct Resolved {
  LayerPosition layer;
  Terms terms;
};

Resolved Resolve(const GoldenJson& c, AngleMode angles) {
  Resolved r;
  r.layer = FromConfig(c["config"].dump(), ReadOptions{.angles = angles});
  const auto positions = c["positions"].get<std::vector<int64_t>>();
  Shape shape = Shape::SelfAttention(
      r.layer.q_heads, r.layer.head_dim,
      *std::max_element(positions.begin(), positions.end()) + 1);
  shape.kv_heads = r.layer.kv_heads;
  shape.scale = r.layer.scale;
  r.terms = Build(r.layer.attention)->Lower(shape).terms;
  return r;
}

// The possible error of float32 frequencies and angles at a position: that of
// the frequency's power and scaling (4 roundings), the product and the
// reduction.
double AngleError(double position, double theta) {
  return (6.0 * position * theta + 4.0) * kRound;
}

// The largest deviation of the logits, and the largest relative to what float32
// can explain.
struct Deviation {
  double relative = 0.0;   // to |q| |k| scale
  double explained = 0.0;  // deviation over its bound; at most 1
};

Deviation Compare(const GoldenJson& c, const Resolved& r) {
  const auto positions = c["positions"].get<std::vector<int64_t>>();
  Tensor q = GoldenTensor(c["q"], 1), k = GoldenTensor(c["k"], 1);
  const int64_t heads = q.size(1), n = q.size(2), d = q.size(3);
  const int64_t group = heads / k.size(1);
  const double gain = c["gain"].get<double>();
  Tensor turned_q = q, turned_k = k;
  if (r.terms.rotate) {
    turned_q = Rotate(q, *r.terms.rotate, positions);
    turned_k = Rotate(k, *r.terms.rotate, positions);
  }
  Deviation deviation;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const int64_t m = positions[static_cast<size_t>(i)];
        const double scale = r.terms.scale.At(h, m);
        // q and k of the file already include the gain in their rotated
        // channels.
        double dot = 0.0, bound = 0.0, qq = 0.0, kk = 0.0;
        for (int64_t x = 0; x < d; ++x) {
          qq += q.At(0, h, i, x) * q.At(0, h, i, x);
          kk += k.At(0, h / group, j, x) * k.At(0, h / group, j, x);
          dot += turned_q.At(0, h, i, x) * turned_k.At(0, h / group, j, x);
        }
        if (r.terms.rotate) {
          const Rotation& rot = *r.terms.rotate;
          const double extra = gain * gain;
          for (int64_t p = 0; p < rot.NumPairs(); ++p) {
            double part = 0.0, q2 = 0.0, k2 = 0.0;
            for (int64_t x : {rot.FirstOfPair(p), rot.SecondOfPair(p)}) {
              part += turned_q.At(0, h, i, x) * turned_k.At(0, h / group, j, x);
              q2 += std::pow(q.At(0, h, i, x), 2);
              k2 += std::pow(k.At(0, h / group, j, x), 2);
            }
            dot -= part * (1.0 - 1.0 / extra);
            const double theta = rot.theta[static_cast<size_t>(p)];
            // The coordinate that rotates this pair.
            const auto error = [&](int64_t position) {
              return AngleError(
                  static_cast<double>(rot.Coordinate(rot.AxisOf(p), position)),
                  theta);
            };
            bound += std::sqrt(q2 * k2) *
                     (error(m) + error(positions[static_cast<size_t>(j)]));
          }
        }
        const double size = scale * std::sqrt(qq * kk);
        bound = scale * bound + 8.0 * kRound * size;
        const double off = std::abs(
            scale * dot - c["logits"][static_cast<size_t>(h)]
                           [static_cast<size_t>(i)][static_cast<size_t>(j)]
                               .get<double>());
        deviation.relative = std::max(deviation.relative, off / size);
        deviation.explained = std::max(deviation.explained, off / bound);
      }
    }
  }
  return deviation;
}

TEST(GoldenRotaryTest, FrequenciesAndFactors) {
  int with_frequencies = 0;
  for (const GoldenJson& c : GoldenCases("rotary.json")) {
    SCOPED_TRACE(c["name"].get<std::string>());
    for (AngleMode angles : {AngleMode::kExact, AngleMode::kFloat32}) {
      const Resolved r = Resolve(c, angles);
      EXPECT_NEAR(r.layer.scale * r.layer.softmax_factor,
                  c["scaling"].get<double>(), 1e-12);
      EXPECT_DOUBLE_EQ(r.terms.scale.scale,
                       r.layer.scale * r.layer.softmax_factor);
      if (!r.terms.rotate) continue;
      const double gain = c["gain"].get<double>();
      EXPECT_NEAR(r.terms.rotate->gain, gain, 1e-12 * gain);
      if (!c.contains("inv_freq")) continue;
      const auto inv_freq = c["inv_freq"].get<std::vector<double>>();
      ASSERT_EQ(inv_freq.size(), r.terms.rotate->theta.size());
      for (size_t p = 0; p < inv_freq.size(); ++p) {
        EXPECT_NEAR(r.terms.rotate->theta[p], inv_freq[p], 2e-6 * inv_freq[p]);
      }
      ++with_frequencies;
    }
  }
  EXPECT_GT(with_frequencies, 70);
}

TEST(GoldenRotaryTest, LogitsWithinWhatFloat32AnglesExplain) {
  for (const GoldenJson& c : GoldenCases("rotary.json")) {
    SCOPED_TRACE(c["name"].get<std::string>());
    EXPECT_LE(Compare(c, Resolve(c, AngleMode::kExact)).explained, 1.0);
  }
}

TEST(GoldenRotaryTest, LogitsInFloat32Parity) {
  for (const GoldenJson& c : GoldenCases("rotary.json")) {
    SCOPED_TRACE(c["name"].get<std::string>());
    // Measured: below 7e-8, one rounding of the logit.
    EXPECT_LE(Compare(c, Resolve(c, AngleMode::kFloat32)).relative, 2e-6);
  }
}

}  // namespace
}  // namespace locus::models
