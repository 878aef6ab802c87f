#include "locus/encodings/kerple.h"

#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(kerple);

namespace locus::testing {
namespace {

constexpr KerpleKind kKinds[] = {KerpleKind::kLogarithmic, KerpleKind::kPower};

Tensor Heads(std::vector<double> values) {
  const int64_t heads = int64_t(values.size());
  return Tensor::From({heads}, std::move(values));
}

TEST(KerpleTest, MatchesPaperFormula) {
  for (DType dtype : {DType::kF64, DType::kF32}) {
    const Tensor r1 = Heads({0.3, 1.0, 2.5, 0.01}).To(dtype);
    const Tensor r2 = Heads({0.5, 1.0, 1.7, 2.0}).To(dtype);
    for (KerpleKind kind : kKinds) {
      for (bool causal : {false, true}) {
        for (int64_t first : {int64_t{0}, kFar}) {
          const PaperCase c{.causal = causal, .first_position = first};
          const auto score = [&](int64_t h, const auto& q, const auto& k,
                                 int64_t m, int64_t n) {
            const double distance = double(std::abs(m - n));
            const double kernel = kind == KerpleKind::kLogarithmic
                                      ? std::log(1.0 + r2.At(h) * distance)
                                      : std::pow(distance, r2.At(h));
            return ScaledDot(q, k) - r1.At(h) * kernel;
          };
          EXPECT_LE(PaperError(Kerple(kind, r1, r2), c, score),
                    kPaperTolerance);
        }
      }
    }
  }
}

TEST(KerpleTest, PowerOfOneIsAlibi) {
  const Tensor slopes = Heads(Alibi::Slopes(4));
  const Kerple kerple(KerpleKind::kPower, slopes, Heads({1, 1, 1, 1}));
  const Tensor x = RandomTensor({2, 4, 13, 8}, 1);
  EXPECT_LE(RelativeError(reference::Attention(x, x, x, kerple).out,
                          reference::Attention(x, x, x, Alibi(4)).out),
            kPaperTolerance);
}

TEST(KerpleTest, PullBackMatchesFiniteDifferences) {
  for (KerpleKind kind : kKinds) {
    const Kerple kerple(kind, Heads({0.3, 1.0, 0.8, 0.1}),
                        Heads({0.5, 1.0, 1.3, 1.9}));
    for (bool causal : {false, true}) {
      EXPECT_LE(PullBackError(kerple, {.batch = 1, .causal = causal}),
                kDifferenceTolerance);
    }
  }
}

TEST(KerpleTest, RefusesBadInput) {
  const auto build = [](KerpleKind kind, std::vector<double> r1,
                        std::vector<double> r2) {
    return ErrorOf([&] { Kerple(kind, Heads(r1), Heads(r2)); });
  };
  EXPECT_EQ(build(KerpleKind::kPower, {1.0}, {2.5}),
            "KERPLE's power kernel needs r2 <= 2, got 2.5");
  EXPECT_EQ(build(KerpleKind::kLogarithmic, {1.0}, {2.5}), "");
  EXPECT_EQ(build(KerpleKind::kLogarithmic, {-1.0}, {1.0}),
            "KERPLE's r1 must be positive and finite, got -1");
  EXPECT_EQ(build(KerpleKind::kLogarithmic, {1.0}, {NAN}),
            "KERPLE's r2 must be positive and finite, got nan");
  EXPECT_EQ(build(KerpleKind::kLogarithmic, {1.0, 1.0}, {1.0}),
            "KERPLE needs r1 and r2 [heads], got f64 [2] and f64 [1]");
  EXPECT_EQ(build(KerpleKind::kLogarithmic, {}, {}),
            "KERPLE needs r1 and r2 [heads], got f64 [0] and f64 [0]");
  EXPECT_EQ(ErrorOf([] {
              Kerple(KerpleKind::kPower, Heads({1, 1}), Heads({1, 1}))
                  .Lower(Shape::SelfAttention(3, 8, 4));
            }),
            "KERPLE was made for 2 heads, but the call has 3");
}

}  // namespace
}  // namespace locus::testing
