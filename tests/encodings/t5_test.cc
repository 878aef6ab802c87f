#include "locus/encodings/t5.h"

#include "support/encoding_checks.h"

LOCUS_COVERS(t5);

namespace locus::testing {
namespace {

// The published formula in float32, as the T5 code evaluates it.
int64_t PublishedBucket(int64_t m, int64_t n, int64_t buckets,
                        int64_t max_distance, bool bidirectional) {
  int64_t rel = n - m;
  int64_t result = 0;
  if (bidirectional) {
    buckets /= 2;
    if (rel > 0) result += buckets;
    rel = std::abs(rel);
  } else {
    rel = -std::min<int64_t>(rel, 0);
  }
  const int64_t exact = buckets / 2;
  if (rel < exact) return result + rel;
  const float log =
      std::log(static_cast<float>(rel) / static_cast<float>(exact)) /
      static_cast<float>(std::log(double(max_distance) / double(exact))) *
      static_cast<float>(buckets - exact);
  return result + std::min(exact + static_cast<int64_t>(log), buckets - 1);
}

TEST(T5BiasTest, MatchesPaperFormula) {
  for (bool bidirectional : {false, true}) {
    for (bool causal : {false, true}) {
      const Tensor table = RandomTensor({32, 4}, 3);
      const T5Bias t5(table, 128, bidirectional);
      const PaperCase c{.length = 40, .causal = causal, .scale = 1.0};
      const double error = PaperError(
          t5, c,
          [&](int64_t h, const auto& q, const auto& k, int64_t m, int64_t n) {
            double dot = 0.0;
            for (size_t d = 0; d < q.size(); ++d) dot += q[d] * k[d];
            return dot +
                   table.At(PublishedBucket(m, n, 32, 128, bidirectional), h);
          });
      EXPECT_LE(error, 1e-12);
    }
  }
}

TEST(T5BiasTest, BucketsEqualTheFloat32Formula) {
  for (bool bidirectional : {false, true}) {
    const BucketMap map = BucketMap::T5(32, 128, bidirectional);
    for (int64_t rel = -1000; rel <= 1000; ++rel) {
      EXPECT_EQ(map(/*q_pos=*/0, /*k_pos=*/rel),
                PublishedBucket(0, rel, 32, 128, bidirectional))
          << "n - m = " << rel;
    }
  }
}

TEST(T5BiasTest, PullBackMatchesFiniteDifferences) {
  const T5Bias t5(RandomTensor({8, 4}, 5), 20, /*bidirectional=*/true);
  EXPECT_LE(PullBackError(t5, {.batch = 1, .length = 12}), 1e-8);
}

TEST(T5BiasTest, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] { T5Bias(RandomTensor({32}, 1)); }),
            "T5 needs a table [buckets, heads], got f64 [32]");
  EXPECT_EQ(ErrorOf([] {
              T5Bias(RandomTensor({7, 2}, 1), 128, true);
            }),
            "T5 needs an even number of at least 4 buckets (and at most 2^24), "
            "got 7");
  EXPECT_EQ(ErrorOf([] {
              T5Bias(RandomTensor({32, 2}, 1), 16, false);
            }),
            "T5 max_distance must be above 16 (and at most 2^40), got 16");
  EXPECT_EQ(
      ErrorOf([] {
        T5Bias(RandomTensor({32, 2}, 1)).Lower(Shape::SelfAttention(3, 8, 4));
      }),
      "T5 was made for 2 heads, but the call has 3");
}

}  // namespace
}  // namespace locus::testing
