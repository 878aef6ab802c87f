// Bucket maps against the formulas that they represent, in exact arithmetic.
#include <gmp.h>

#include "locus/terms.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

constexpr int64_t kFar = 1'000'000'000'000;

// sign( a^x b^y - c^y b^x ), exactly: compares (a / b)^x with (c / b)^y.
int ComparePowers(int64_t a, int64_t b, int64_t c, int64_t x, int64_t y) {
  mpz_t left, right, power;
  mpz_inits(left, right, power, nullptr);
  const auto u = [](int64_t n) { return static_cast<unsigned long>(n); };
  mpz_ui_pow_ui(left, u(a), u(x));
  mpz_ui_pow_ui(power, u(b), u(y));
  mpz_mul(left, left, power);
  mpz_ui_pow_ui(right, u(c), u(y));
  mpz_ui_pow_ui(power, u(b), u(x));
  mpz_mul(right, right, power);
  const int sign = mpz_cmp(left, right);
  mpz_clears(left, right, power, nullptr);
  return sign;
}

// Raffel et al.: exact + floor( ln(n / exact) / ln(max / exact) * wide ).
// The floor is at least k if and only if (n / exact)^wide >= (max / exact)^k.
int64_t T5Distance(int64_t n, int64_t buckets, int64_t max_distance) {
  const int64_t exact = buckets / 2, wide = buckets - exact;
  if (n < exact) return n;
  int64_t k = 0;
  while (k + 1 < wide &&
         ComparePowers(n, exact, max_distance, wide, k + 1) >= 0) {
    ++k;
  }
  return exact + k;
}

int64_t T5Naive(int64_t offset, int64_t buckets, int64_t max_distance,
                bool bidirectional) {
  if (!bidirectional) {
    return T5Distance(std::max<int64_t>(offset, 0), buckets, max_distance);
  }
  const int64_t half = buckets / 2;
  return (offset < 0 ? half : 0) +
         T5Distance(std::abs(offset), half, max_distance);
}

// He et al.: mid + ceil( ln(n / mid) / ln((M - 1) / mid) * (mid - 1) ) above
// mid. The ceiling exceeds k if and only if
// (n / mid)^(mid - 1) > ((M - 1) / mid)^k.
int64_t DebertaNaive(int64_t offset, int64_t buckets, int64_t max_positions) {
  const int64_t mid = buckets / 2, span = buckets, n = std::abs(offset);
  int64_t bucket = n;
  if (n > mid) {
    int64_t k = 0;
    while (k <= mid &&
           ComparePowers(n, mid, max_positions - 1, mid - 1, k) > 0) {
      ++k;
    }
    bucket = mid + k;
  }
  return std::clamp<int64_t>((offset < 0 ? -bucket : bucket) + span, 0,
                             2 * span - 1);
}

// A map depends only on the offset, wherever the pair is.
void ExpectBucket(const BucketMap& map, int64_t offset, int64_t expected) {
  ASSERT_EQ(map.OfOffset(offset), expected) << "offset " << offset;
  for (int64_t n : {int64_t{0}, int64_t{-7}, kFar, -kFar}) {
    ASSERT_EQ(map(n + offset, n), expected)
        << "offset " << offset << " at key position " << n;
  }
}

TEST(BucketsTest, ConstantHasOneBucket) {
  const BucketMap map = BucketMap::Constant();
  EXPECT_EQ(map.count, 1);
  for (int64_t offset : {int64_t{-3}, int64_t{0}, kFar, -kFar}) {
    ExpectBucket(map, offset, 0);
  }
  EXPECT_EQ(map.Describe(), "1 bucket");
}

TEST(BucketsTest, IdentityCountsFromItsLowest) {
  const std::pair<int64_t, int64_t> ranges[] = {
      {-4, 9}, {0, 0}, {3, 5}, {-kFar, -kFar + 50}, {kFar, kFar + 50}};
  for (const auto& [lo, hi] : ranges) {
    const BucketMap map = BucketMap::Identity(lo, hi);
    EXPECT_EQ(map.count, hi - lo + 1);
    EXPECT_EQ(map.min_offset, lo);
    EXPECT_EQ(map.max_offset, hi);
    for (int64_t o = lo; o <= hi; ++o) ExpectBucket(map, o, o - lo);
  }
  EXPECT_EQ(BucketMap::Identity(-4, 9).Describe(),
            "14 buckets, one per offset in [-4, 9]");
}

TEST(BucketsTest, ClipSaturates) {
  const std::pair<int64_t, int64_t> ranges[] = {
      {-4, 9}, {0, 0}, {2, 2}, {-30, -10}, {5, 60}};
  for (const auto& [lo, hi] : ranges) {
    const BucketMap map = BucketMap::Clip(lo, hi);
    EXPECT_EQ(map.count, hi - lo + 1);
    for (int64_t o = -2000; o <= 2000; ++o) {
      ExpectBucket(map, o, std::clamp(o, lo, hi) - lo);
    }
    for (int64_t o : {-kFar - 1, -kFar, kFar, kFar + 1}) {
      ExpectBucket(map, o, std::clamp(o, lo, hi) - lo);
    }
    // The largest distance of two positions.
    EXPECT_EQ(map(kLowestPosition, kHighestPosition), 0);
    EXPECT_EQ(map(kHighestPosition, kLowestPosition), hi - lo);
  }
  EXPECT_EQ(BucketMap::Clip(-4, 9).Describe(),
            "14 buckets, constant below offset -4 and from 9 on");
}

TEST(BucketsTest, T5EqualsItsFormula) {
  const std::pair<int64_t, int64_t> sizes[] = {
      {32, 128}, {32, 256}, {64, 1000}, {10, 17}, {8, 9}, {4, 3}, {20, 4096}};
  for (const auto& [buckets, max_distance] : sizes) {
    for (bool bidirectional : {false, true}) {
      const BucketMap map = BucketMap::T5(buckets, max_distance, bidirectional);
      EXPECT_EQ(map.count, buckets);
      for (int64_t o = -1500; o <= 1500; ++o) {
        ExpectBucket(map, o, T5Naive(o, buckets, max_distance, bidirectional));
      }
      for (int64_t o : {-kFar - 1, -kFar, -kFar + 1, kFar, kFar + 1}) {
        ExpectBucket(map, o, T5Naive(o, buckets, max_distance, bidirectional));
      }
    }
  }
}

// Thresholds of maps with a long range: each start is exact to one offset.
TEST(BucketsTest, T5ThresholdsAreExactFarOut) {
  for (int64_t max_distance : {int64_t{1} << 20, int64_t{999'999'937},
                               (int64_t{1} << 40) - 87, int64_t{1} << 40}) {
    const BucketMap map = BucketMap::T5(32, max_distance, false);
    for (const BucketMap::Piece& piece : map.pieces) {
      for (int64_t o = piece.start - 2; o <= piece.start + 2; ++o) {
        if (o < 0) continue;
        ASSERT_EQ(map.OfOffset(o), T5Naive(o, 32, max_distance, false))
            << "offset " << o << ", max_distance " << max_distance;
      }
    }
  }
}

TEST(BucketsTest, DebertaEqualsItsFormula) {
  const std::pair<int64_t, int64_t> sizes[] = {{32, 128},
                                               {256, 512},
                                               {4, 4},
                                               {6, 40},
                                               {64, 1000},
                                               // mid = 1: clipped to one step.
                                               {2, 40},
                                               {3, 40},
                                               {3, 3},
                                               {5, 4},
                                               {5, 40},
                                               {33, 128},
                                               {255, 512}};
  for (const auto& [buckets, max_positions] : sizes) {
    const BucketMap map = BucketMap::Deberta(buckets, max_positions);
    EXPECT_EQ(map.count, 2 * buckets);
    for (int64_t o = -1100; o <= 1100; ++o) {
      ExpectBucket(map, o, DebertaNaive(o, buckets, max_positions));
    }
    ExpectBucket(map, -kFar, buckets < 4 ? buckets - 1 : 0);
    ExpectBucket(map, kFar, buckets < 4 ? buckets + 1 : 2 * buckets - 1);
  }
  const int64_t far = (int64_t{1} << 40) - 87;
  const BucketMap map = BucketMap::Deberta(32, far);
  for (const BucketMap::Piece& piece : map.pieces) {
    if (std::abs(piece.start) > 2 * far) continue;  // the open end
    for (int64_t o = piece.start - 2; o <= piece.start + 2; ++o) {
      ASSERT_EQ(map.OfOffset(o), DebertaNaive(o, 32, far)) << o;
    }
  }
}

TEST(BucketsTest, DebertaWithoutLogarithmClips) {
  const BucketMap map = BucketMap::Deberta(0, 24);
  EXPECT_EQ(map.count, 48);
  for (int64_t o = -100; o <= 100; ++o) {
    ExpectBucket(map, o, std::clamp<int64_t>(o + 24, 0, 47));
  }
}

TEST(BucketsTest, Window2DFindsBothOffsets) {
  const std::pair<int64_t, int64_t> sides[] = {{1, 1}, {1, 9}, {9, 1},
                                               {7, 7}, {3, 5}, {5, 3}};
  for (const auto& [height, width] : sides) {
    const BucketMap map = BucketMap::Window2D(height, width);
    EXPECT_EQ(map.count, (2 * height - 1) * (2 * width - 1));
    for (int64_t m = 0; m < height * width; ++m) {
      for (int64_t n = 0; n < height * width; ++n) {
        const int64_t dy = m / width - n / width, dx = m % width - n % width;
        ASSERT_EQ(map(m, n),
                  (dy + height - 1) * (2 * width - 1) + dx + width - 1);
      }
    }
  }
  EXPECT_EQ(BucketMap::Window2D(7, 7).Describe(),
            "169 buckets, one per offset in [-84, 84], 2-D window 7 wide");
}

TEST(BucketsTest, SpecialPositionsStandApart) {
  const BucketMap plain = BucketMap::Clip(-3, 3);
  const BucketMap three = plain.WithSpecial(5, /*both=*/true);
  const BucketMap two = plain.WithSpecial(5, /*both=*/false);
  EXPECT_EQ(three.count, 10);
  EXPECT_EQ(two.count, 9);
  for (int64_t m = 0; m < 12; ++m) {
    for (int64_t n = 0; n < 12; ++n) {
      const int32_t usual = plain(m, n);
      EXPECT_EQ(three(m, n), m == 5 && n == 5 ? 9
                             : m == 5         ? 7
                             : n == 5         ? 8
                                              : usual);
      EXPECT_EQ(two(m, n), m == 5 ? 7 : n == 5 ? 8 : usual);
    }
  }
  EXPECT_EQ(three.Describe(),
            "10 buckets, constant below offset -3 and from 3 on, position 5 "
            "apart");
  // A [CLS] token before a raster that starts at position 1.
  BucketMap cls = BucketMap::Window2D(2, 3).WithSpecial(0, /*both=*/true);
  cls.grid->origin = 1;
  EXPECT_EQ(cls(0, 0), 17);
  EXPECT_EQ(cls(0, 4), 15);
  EXPECT_EQ(cls(4, 0), 16);
  EXPECT_EQ(cls(1, 6), (0 - 1 + 1) * 5 + (0 - 2 + 2));
  EXPECT_EQ(cls(6, 1), 14);
}

TEST(BucketsTest, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] { BucketMap::Identity(3, 2); }),
            "an offset range must not be empty, got [3, 2]");
  EXPECT_EQ(ErrorOf([] { BucketMap::Identity(0, int64_t{1} << 31); }),
            "offsets [0, 2147483648] are too many for one table");
  EXPECT_EQ(ErrorOf([] { BucketMap::Clip(1, 0); }),
            "clipping needs r_min <= r_max, got 1 > 0");
  EXPECT_EQ(ErrorOf([] { BucketMap::T5(1, 128, false); }),
            "T5 needs at least 2 buckets (and at most 2^24), got 1");
  EXPECT_EQ(
      ErrorOf([] { BucketMap::T5(int64_t{1} << 31, int64_t{1} << 32, false); }),
      "T5 needs at least 2 buckets (and at most 2^24), got 2147483648");
  EXPECT_EQ(ErrorOf([] { BucketMap::T5(33, 128, true); }),
            "T5 needs an even number of at least 4 buckets (and at most 2^24), "
            "got 33");
  EXPECT_EQ(ErrorOf([] { BucketMap::T5(32, 8, true); }),
            "T5 max_distance must be above 8 (and at most 2^40), got 8");
  EXPECT_EQ(
      ErrorOf([] { BucketMap::Deberta(0, 0); }),
      "DeBERTa needs a positive span (at most 2^24), got position_buckets "
      "0 and max_relative_positions 0");
  EXPECT_EQ(ErrorOf([] { BucketMap::Window2D(0, 4); }),
            "a 2-D window needs sides from 1 to 4096, got 0 x 4");
  const std::string need =
      "DeBERTa log buckets need a position_buckets of at least 2 and "
      "max_relative_positions above ";
  EXPECT_EQ(ErrorOf([] { BucketMap::Deberta(1, 100); }),
            need + "1 (and at most 2^40), got 1 and 100");
  EXPECT_EQ(ErrorOf([] { BucketMap::Deberta(33, 17); }),
            need + "17 (and at most 2^40), got 33 and 17");
}

}  // namespace
}  // namespace locus::testing
