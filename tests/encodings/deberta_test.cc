#include "locus/encodings/deberta.h"

#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(deberta);

namespace locus::testing {
namespace {

constexpr int64_t kHeads = 4, kDim = 8;

// The published bucket in float32, then clamp(bucket + span, 0, 2 span - 1).
// buckets = 0 is v1: the offset itself, span = max.
int64_t PublishedBucket(int64_t offset, int64_t buckets, int64_t max) {
  int64_t bucket = offset;
  const int64_t mid = buckets / 2;
  if (buckets > 0 && std::abs(offset) > mid) {
    const float ratio =
        std::log(float(std::abs(offset)) / float(mid)) /
        std::log(static_cast<float>(double(max - 1) / double(mid)));
    bucket = int64_t(std::ceil(ratio * float(mid - 1))) + mid;
    if (offset < 0) bucket = -bucket;
  }
  const int64_t span = buckets > 0 ? buckets : max;
  return std::clamp<int64_t>(bucket + span, 0, 2 * span - 1);
}

// (q.k + q.Tq[delta(m, n)] + k.Tk[delta(n, m)]) / sqrt(parts * d). As
// published, the index of the position-to-content part is negated once more:
// clamp(-bucket(n - m) + span), which is the bucket of m - n.
double DebertaError(const Tensor& c2p, const Tensor& p2c, int64_t buckets,
                    int64_t max, const PaperCase& c) {
  const double parts =
      1.0 + (c2p.defined() ? 1.0 : 0.0) + (p2c.defined() ? 1.0 : 0.0);
  return PaperError(
      Deberta(c2p, p2c, buckets, max), c,
      [&](int64_t h, const auto& q, const auto& k, int64_t m, int64_t n) {
        const int64_t b = PublishedBucket(m - n, buckets, max);
        double dots = Dot(q, k);
        if (c2p.defined()) dots += Dot(q, RowOf(c2p, h, b));
        if (p2c.defined()) dots += Dot(k, RowOf(p2c, h, b));
        return dots / std::sqrt(parts * double(kDim));
      });
}

constexpr struct {
  bool c2p, p2c;
} kSides[] = {{true, false}, {false, true}, {true, true}};

TEST(DebertaTest, MatchesPaperFormula) {
  for (const auto& side : kSides) {
    // 16 of 64: logarithmic past 8; 15: past 7; v1: clipped at 6.
    for (auto [buckets, max] :
         {std::pair<int64_t, int64_t>{16, 64}, {15, 64}, {0, 6}}) {
      const int64_t rows = 2 * (buckets > 0 ? buckets : max);
      const Tensor c2p =
          side.c2p ? RandomTensor({kHeads, rows, kDim}, 1) : Tensor();
      const Tensor p2c =
          side.p2c ? RandomTensor({kHeads, rows, kDim}, 2) : Tensor();
      for (bool causal : {false, true}) {
        for (int64_t first : {int64_t{0}, kFar}) {
          EXPECT_LE(
              DebertaError(
                  c2p, p2c, buckets, max,
                  {.length = 41, .causal = causal, .first_position = first}),
              kPaperTolerance);
        }
      }
    }
  }
}

TEST(DebertaTest, TakesFloat32AndSharedTables) {
  for (int64_t heads : {int64_t{1}, kHeads}) {
    const Tensor c2p = RandomTensor({heads, 32, kDim}, 1).To(DType::kF32);
    const Tensor p2c = RandomTensor({heads, 32, kDim}, 2).To(DType::kF32);
    const double error = PaperError(
        Deberta(c2p, p2c, 16, 64), {},
        [&](int64_t h, const auto& q, const auto& k, int64_t m, int64_t n) {
          const int64_t row = PublishedBucket(m - n, 16, 64);
          const int64_t head = heads == 1 ? 0 : h;
          return (Dot(q, k) + Dot(q, RowOf(c2p, head, row)) +
                  Dot(k, RowOf(p2c, head, row))) /
                 std::sqrt(3.0 * double(kDim));
        });
    EXPECT_LE(error, kPaperTolerance);
  }
}

TEST(DebertaTest, BucketsEqualTheFloat32Formula) {
  for (auto [buckets, max] : {std::pair<int64_t, int64_t>{256, 512},
                              {32, 128},
                              {64, 300},
                              {4, 40},
                              {255, 512},
                              {33, 128},
                              {5, 40},
                              {3, 40},
                              {0, 512},
                              {0, 7}}) {
    const BucketMap map = BucketMap::Deberta(buckets, max);
    EXPECT_EQ(map.count, 2 * (buckets > 0 ? buckets : max));
    for (int64_t offset = -3000; offset <= 3000; ++offset) {
      ASSERT_EQ(map(/*q_pos=*/offset, /*k_pos=*/0),
                PublishedBucket(offset, buckets, max))
          << buckets << "/" << max << ", m - n = " << offset;
    }
  }
}

// 256 / 512 by hand: exact up to 128; the last distance with a separate row is
// 511, and one past it the negative side reaches row 0.
TEST(DebertaTest, BucketsHoldKnownValues) {
  const BucketMap map = BucketMap::Deberta(256, 512);
  EXPECT_EQ(map(0, 0), 256);
  EXPECT_EQ(map(128, 0), 256 + 128);
  EXPECT_EQ(map(129, 0), 256 + 129);
  EXPECT_EQ(map(511, 0), 511);
  EXPECT_EQ(map(100000, 0), 511);
  EXPECT_EQ(map(0, 128), 128);
  EXPECT_EQ(map(0, 511), 1);
  EXPECT_EQ(map(0, 512), 0);
  EXPECT_EQ(map(0, 100000), 0);
}

TEST(DebertaTest, PullBackMatchesFiniteDifferences) {
  for (const auto& side : kSides) {
    const Deberta deberta(side.c2p ? RandomTensor({2, 8, 4}, 1) : Tensor(),
                          side.p2c ? RandomTensor({2, 8, 4}, 2) : Tensor(), 4,
                          12);
    for (bool causal : {false, true}) {
      EXPECT_LE(PullBackError(deberta, {.batch = 1,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .length = 9,
                                        .head_dim = 4,
                                        .causal = causal}),
                kDifferenceTolerance);
    }
  }
}

TEST(DebertaTest, RefusesBadInput) {
  const Tensor rows = RandomTensor({2, 32, 4}, 1);
  EXPECT_EQ(ErrorOf([] { Deberta(Tensor(), Tensor(), 16, 64); }),
            "DeBERTa needs c2p, p2c or both, got neither");
  EXPECT_EQ(ErrorOf([&] {
              Deberta(rows, RandomTensor({2, 30, 4}, 1), 16, 64);
            }),
            "DeBERTa's tables must be [heads, 32, D] alike, got f64 [2, 32, 4] "
            "and f64 [2, 30, 4]");
  EXPECT_EQ(ErrorOf([&] { Deberta(Tensor(), rows, 8, 64); }),
            "DeBERTa's tables must be [heads, 16, D] alike, got none and "
            "f64 [2, 32, 4]");
  EXPECT_EQ(
      ErrorOf([&] { Deberta(rows, rows, 0, 0); }),
      "DeBERTa needs a positive span (at most 2^24), got position_buckets 0 "
      "and max_relative_positions 0");
  EXPECT_EQ(ErrorOf([&] { Deberta(rows, rows, 16, 9); }),
            "DeBERTa log buckets need a position_buckets of at least 2 and "
            "max_relative_positions above 9 (and at most 2^40), got 16 and 9");
  EXPECT_EQ(ErrorOf([&] { Deberta(rows, rows, 1, 64); }),
            "DeBERTa log buckets need a position_buckets of at least 2 and "
            "max_relative_positions above 1 (and at most 2^40), got 1 and 64");
  const Tensor x = RandomTensor({1, 3, 5, 4}, 1);
  EXPECT_EQ(ErrorOf([&] {
              reference::Attention(x, x, x, Deberta(rows, rows, 16, 64));
            }),
            "the query table f64 [2, 32, 4] has 2 heads, but the call has 3");
}

}  // namespace
}  // namespace locus::testing
