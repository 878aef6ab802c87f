// Linear attention against its quadratic formula.
#include "locus/linear_attention.h"

#include <chrono>
#include <numeric>

#include "locus/locus.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

// Six features: squares of the channels, then fourth powers plus 1/2.
FeatureMap Squares() {
  return {.features = 6,
          .map = [](std::span<const double> x, std::span<double> phi) {
            for (size_t f = 0; f < phi.size(); ++f) {
              const double y = x[f % x.size()];
              phi[f] = f < x.size() ? y * y : 0.5 + y * y * y * y;
            }
          }};
}

struct Sample {
  Tensor q, k, v;
  std::vector<int64_t> q_pos, k_pos;  // [B * L]
};

Sample MakeSample(int64_t q_len, int64_t k_len) {
  Sample s{RandomTensor({2, 4, q_len, 4}, 1),
           RandomTensor({2, 2, k_len, 4}, 2),
           RandomTensor({2, 2, k_len, 3}, 3),
           {},
           {}};
  s.q_pos.resize(static_cast<size_t>(2 * q_len));
  s.k_pos.resize(static_cast<size_t>(2 * k_len));
  std::iota(s.q_pos.begin(), s.q_pos.end(), 3);
  std::iota(s.k_pos.begin(), s.k_pos.end(), 0);
  std::mt19937_64 engine(4);
  std::ranges::shuffle(s.q_pos, engine);
  std::ranges::shuffle(s.k_pos, engine);
  return s;
}

// sum_j (R_m phi(q)).(R_n phi(k)) v_j / sum_j phi(q).phi(k), pair by pair.
Tensor Quadratic(const Sample& s, const FeatureMap& phi, int64_t features,
                 const std::optional<Rotation>& rotation, bool causal) {
  const int64_t q_len = s.q.size(2), k_len = s.k.size(2);
  const auto feature = [&](const Tensor& x, int64_t b, int64_t h, int64_t i) {
    std::vector<double> row, out(static_cast<size_t>(features));
    for (int64_t d = 0; d < x.size(3); ++d) row.push_back(x.At(b, h, i, d));
    phi.map(row, out);
    return out;
  };
  const auto rotated = [&](const std::vector<double>& f, int64_t pos) {
    if (!rotation) return f;
    const Tensor x = Tensor::From({1, 1, 1, features}, f);
    const std::vector<int64_t> at = {pos};
    return Rotate(x, *rotation, at).ToVector();
  };
  Tensor result = Tensor::Zeros(DType::kF64, {2, 4, q_len, s.v.size(3)});
  double* out = result.MutableData<double>();
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t i = 0; i < q_len; ++i, out += s.v.size(3)) {
        const int64_t m = s.q_pos[static_cast<size_t>(b * q_len + i)];
        const std::vector<double> fq = feature(s.q, b, h, i);
        double below = 0.0;
        std::vector<double> above(static_cast<size_t>(s.v.size(3)), 0.0);
        for (int64_t j = 0; j < k_len; ++j) {
          const int64_t n = s.k_pos[static_cast<size_t>(b * k_len + j)];
          if (causal && n > m) continue;
          const std::vector<double> fk = feature(s.k, b, h / 2, j);
          const std::vector<double> rq = rotated(fq, m), rk = rotated(fk, n);
          below += std::inner_product(fq.begin(), fq.end(), fk.begin(), 0.0);
          const double w =
              std::inner_product(rq.begin(), rq.end(), rk.begin(), 0.0);
          for (size_t d = 0; d < above.size(); ++d) {
            above[d] += w * s.v.At(b, h / 2, j, d);
          }
        }
        for (size_t d = 0; d < above.size(); ++d) {
          out[d] = below == 0.0 ? 0.0 : above[d] / below;
        }
      }
    }
  }
  return result;
}

TEST(LinearAttentionTest, EqualsTheQuadraticFormula) {
  for (bool squares : {false, true}) {
    const int64_t features = squares ? 6 : 4;
    const FeatureMap phi = squares ? Squares() : FeatureMap::EluPlusOne();
    const NoPosition none;
    const Rope rope(features, PairLayout::kInterleaved);
    const Rope partial(features, PairLayout::kHalves, {.rotary_dim = 2});
    for (const Encoding* encoding : {static_cast<const Encoding*>(&none),
                                     static_cast<const Encoding*>(&rope),
                                     static_cast<const Encoding*>(&partial)}) {
      for (bool causal : {false, true}) {
        for (const auto& [q_len, k_len] :
             {std::pair<int64_t, int64_t>{9, 9}, {1, 17}, {17, 1}}) {
          const Sample s = MakeSample(q_len, k_len);
          const Terms terms =
              encoding->Lower(Shape::SelfAttention(4, features, 100)).terms;
          const Tensor linear = LinearAttention(s.q, s.k, s.v, *encoding,
                                                {.causal = causal,
                                                 .feature_map = phi,
                                                 .q_positions = s.q_pos,
                                                 .k_positions = s.k_pos});
          EXPECT_LE(RelativeError(linear, Quadratic(s, phi, features,
                                                    terms.rotate, causal)),
                    1e-12)
              << encoding->Name() << ", causal " << causal << ", " << q_len
              << " x " << k_len;
        }
      }
    }
  }
}

TEST(LinearAttentionTest, EluPlusOneIsContinuousAndPositive) {
  const std::vector<double> x = {-30.0, -1.0, 0.0, 1e-9, 2.0};
  std::vector<double> phi(5);
  FeatureMap::EluPlusOne().map(x, phi);
  EXPECT_EQ(phi[0], std::exp(-30.0));
  EXPECT_EQ(phi[1], std::exp(-1.0));
  EXPECT_EQ(phi[2], 1.0);
  EXPECT_EQ(phi[3], 1.0 + 1e-9);
  EXPECT_EQ(phi[4], 3.0);
}

TEST(LinearAttentionTest, QueriesBeforeEveryKeyGetZeros) {
  const Sample s = MakeSample(2, 3);
  const std::vector<int64_t> early = {-5, 50}, late = {1, 2, 3};
  const Tensor out = LinearAttention(
      s.q, s.k, s.v, NoPosition(),
      {.causal = true, .q_positions = early, .k_positions = late});
  EXPECT_EQ(out.At(0, 0, 0, 0), 0.0);
  EXPECT_NE(out.At(0, 0, 1, 0), 0.0);
}

TEST(LinearAttentionTest, RefusesWhatCannotBeFactored) {
  const std::pair<const char*, const char*> refusals[] = {
      {"shaw", "its tables couple a token with the offset of each pair"},
      {"key-offset", "its tables couple a token with the offset of each pair"},
      {"transformer-xl",
       "its tables couple a token with the offset of each pair"},
      {"deberta", "its tables couple a token with the offset of each pair"},
      {"t5", "its bias is added to single logits inside the softmax"},
      {"alibi", "its bias is added to single logits inside the softmax"},
      {"kerple", "its bias is added to single logits inside the softmax"},
      {"fire", "its bias is added to single logits inside the softmax"},
      {"sandwich", "its bias is added to single logits inside the softmax"},
      {"swin", "its bias is added to single logits inside the softmax"},
      {"xpos", "its decay depends on the offset of each pair"},
  };
  const Tensor x = RandomTensor({1, 2, 4, 4}, 1);
  for (const auto& [name, reason] : refusals) {
    const auto encoding =
        FindEncoding(name).example({.heads = 2, .head_dim = 4, .length = 4});
    EXPECT_EQ(ErrorOf([&] { LinearAttention(x, x, x, *encoding); }),
              "linear attention cannot express '" + std::string(name) +
                  "': " + reason);
  }
  const auto error = [&](const Encoding& e) {
    return ErrorOf([&] { LinearAttention(x, x, x, e); });
  };
  const Tensor rows = RandomTensor({2, 4, 3}, 1);
  EXPECT_EQ(error(Tupe(rows, rows)),
            "linear attention cannot express 'tupe': its position dot product "
            "is added to the logits");
  EXPECT_EQ(error(Shaw(Tensor(), RandomTensor({3, 4}, 2), -1, 1)),
            "linear attention cannot express 'shaw': its values depend on the "
            "offset of each pair");
  EXPECT_EQ(
      error(Rope(4, PairLayout::kHalves, {.values = RotaryValues::kRelative})),
      "linear attention cannot express 'rope': its values are rotated");
  EXPECT_EQ(error(Rope(4, PairLayout::kHalves, {.temperature_beta = 0.1})),
            "linear attention cannot express 'rope': its temperature acts on "
            "logits");
}

TEST(LinearAttentionTest, AcceptsEveryOtherEncoding) {
  const Tensor x = RandomTensor({1, 2, 4, 4}, 1);
  for (const char* name :
       {"none", "index", "normalised-index", "binary", "sine", "sinusoidal",
        "learned", "rope", "rope-learned", "rope-2d", "rope-mixed", "mrope"}) {
    const auto encoding =
        FindEncoding(name).example({.heads = 2, .head_dim = 4, .length = 4});
    EXPECT_EQ(ErrorOf([&] { LinearAttention(x, x, x, *encoding); }), "");
  }
}

TEST(LinearAttentionTest, RefusesBadFeatureMaps) {
  const Tensor x = RandomTensor({1, 1, 2, 2}, 1);
  const auto error = [&](FeatureMap map) {
    return ErrorOf([&] {
      LinearAttention(x, x, x, NoPosition(), {.feature_map = std::move(map)});
    });
  };
  EXPECT_EQ(error({.features = 3, .map = nullptr}),
            "a feature map needs a function and a positive size, got size 3");
  EXPECT_EQ(error({.features = -1, .map = Squares().map}),
            "a feature map needs a function and a positive size, got size -1");
  EXPECT_EQ(error({.features = 1,
                   .map = [](std::span<const double>,
                             std::span<double> phi) { phi[0] = -0.25; }}),
            "a feature map must not be negative, got -0.25");
}

TEST(LinearAttentionTest, ReturnsAtOnceWithoutQueries) {
  const Tensor q = Tensor::Zeros(DType::kF64, {2, int64_t{1} << 40, 0, 4});
  const Tensor k = Tensor::Zeros(DType::kF64, {2, 1, 3, 4});
  const Rope rope(4, PairLayout::kHalves);
  EXPECT_EQ(LinearAttention(q, k, k, rope).shape(), q.shape());
  EXPECT_EQ(LinearAttention(q, q, q, rope).shape(), q.shape());
}

// 200,000 tokens: a matrix of pairs would be 320 GB, and 4 * 10^10 steps.
TEST(LinearAttentionTest, GrowsWithTheLengthOnly) {
  constexpr int64_t kTokens = 200'000;
  const Tensor x = RandomTensor({1, 1, kTokens, 4}, 1);
  const auto start = std::chrono::steady_clock::now();
  const Tensor out =
      LinearAttention(x, x, x, Rope(4, PairLayout::kHalves), {.causal = true});
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  EXPECT_LE(taken.count(), 60.0);
  EXPECT_TRUE(std::isfinite(out.At(0, 0, kTokens - 1, 3)));
  // The first token sees only itself.
  for (int64_t d = 0; d < 4; ++d) {
    EXPECT_NEAR(out.At(0, 0, 0, d), x.At(0, 0, 0, d), 1e-15);
  }
}

}  // namespace
}  // namespace locus::testing
