// The distribution of dropout: the share of kept weights, and the independence
// of neighbours.
#include "terms/dropout.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "locus/attention.h"

namespace locus {
namespace {

constexpr int64_t kTokens = 1024;

// The indices of a weight, and the seed that it is drawn with.
struct Weight {
  uint64_t seed = 1;
  int64_t b = 0, h = 0, i = 0, j = 0;
};

int32_t HashOf(const Weight& w) {
  return DropoutRow({.rate = 0.5, .seed = w.seed}, w.b, w.h, w.i).Hash(w.j);
}

// Five standard deviations of the number of kept weights among `count`.
double FiveSigma(double rate, double count) {
  return 5.0 * std::sqrt(rate * (1.0 - rate) * count);
}

TEST(DropoutTest, KeepsItsShareOfEveryRowAndColumn) {
  for (const double rate : {0.01, 0.1, 0.3, 0.5, 0.9}) {
    for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
      const Dropout dropout{.rate = rate, .seed = seed};
      const int64_t limit = DropoutLimit(dropout);
      std::vector<double> columns(kTokens);
      double all = 0.0;
      for (int64_t i = 0; i < kTokens; ++i) {
        const DropoutRow row(dropout, /*b=*/1, /*h=*/3, i);
        double kept = 0.0;
        for (int64_t j = 0; j < kTokens; ++j) {
          if (row.Hash(j) >= limit) continue;
          kept += 1.0;
          columns[static_cast<size_t>(j)] += 1.0;
        }
        all += kept;
        ASSERT_NEAR(kept, (1.0 - rate) * kTokens, FiveSigma(rate, kTokens))
            << "row " << i << ", rate " << rate << ", seed " << seed;
      }
      for (const double kept : columns) {
        ASSERT_NEAR(kept, (1.0 - rate) * kTokens, FiveSigma(rate, kTokens))
            << "rate " << rate << ", seed " << seed;
      }
      constexpr double kCount = static_cast<double>(kTokens * kTokens);
      EXPECT_NEAR(all, (1.0 - rate) * kCount, FiveSigma(rate, kCount))
          << "rate " << rate << ", seed " << seed;
    }
  }
}

// Chi-square of the high four bits of weights and of their neighbours: 256
// cells that should have equal counts.
double ChiSquare(const std::function<Weight(Weight)>& neighbour) {
  std::array<double, 256> cells = {};
  double count = 0.0;
  for (Weight w; w.i < kTokens; ++w.i) {
    for (w.j = 0; w.j < kTokens; w.j += 16) {
      const auto high = [](const Weight& x) {
        return static_cast<uint32_t>(HashOf(x)) >> 28;
      };
      cells[high(w) * 16 + high(neighbour(w))] += 1.0;
      count += 1.0;
    }
  }
  const double expected = count / static_cast<double>(cells.size());
  double sum = 0.0;
  for (const double cell : cells) {
    sum += (cell - expected) * (cell - expected) / expected;
  }
  return sum;
}

TEST(DropoutTest, NeighboursHaveNothingInCommon) {
  // 255 degrees of freedom: mean 255, variance 510.
  const double most = 255.0 + 5.0 * std::sqrt(510.0);
  const auto expect = [&](const std::string& what,
                          const std::function<void(Weight&)>& move) {
    EXPECT_LT(ChiSquare([&](Weight w) {
                move(w);
                return w;
              }),
              most)
        << what;
  };
  // Heads, tiles and parts of a ring are powers of two apart.
  for (int64_t step = 1; step <= int64_t{1} << 20; step *= 2) {
    const std::string by = " + " + std::to_string(step);
    expect("key" + by, [=](Weight& w) { w.j += step; });
    expect("query" + by, [=](Weight& w) { w.i += step; });
    expect("head" + by, [=](Weight& w) { w.h += step; });
    expect("sequence" + by, [=](Weight& w) { w.b += step; });
    expect("seed" + by,
           [=](Weight& w) { w.seed += static_cast<uint64_t>(step); });
    expect("query and key" + by, [=](Weight& w) {
      w.i += step;
      w.j += step;
    });
  }
  for (const int64_t step : {3, 5, 7, 12, 96, 1000, 4181}) {
    expect("key + " + std::to_string(step), [=](Weight& w) { w.j += step; });
  }
  expect("transposed", [](Weight& w) {
    std::swap(w.i, w.j);
    w.i += kTokens;  // never the weight itself
  });
  expect("head as sequence", [](Weight& w) {
    w.h += 1;
    w.b -= 1;
  });
}

// Rates that only the lower bits of the hash can resolve.
TEST(DropoutTest, RatesNearTheEndsKeepTheirShare) {
  const auto share = [](double rate) {
    const Dropout dropout{.rate = rate, .seed = 5};
    const int64_t limit = DropoutLimit(dropout);
    int64_t dropped = 0;
    for (int64_t i = 0; i < 1000; ++i) {
      const DropoutRow row(dropout, 0, 0, i);
      for (int64_t j = 0; j < 10000; ++j) dropped += row.Hash(j) >= limit;
    }
    return static_cast<double>(dropped);
  };
  EXPECT_NEAR(share(1e-5), 1e2, FiveSigma(1e-5, 1e7));
  EXPECT_NEAR(share(1e-4), 1e3, FiveSigma(1e-4, 1e7));
  EXPECT_NEAR(share(1.0 - 1e-4), 1e7 - 1e3, FiveSigma(1e-4, 1e7));
  EXPECT_EQ(share(0.0), 0.0);
}

TEST(DropoutTest, NumbersOfTokensDecide) {
  const Dropout whole{.rate = 0.5, .seed = 11};
  const Dropout part{.rate = 0.5,
                     .seed = 11,
                     .first_query = 5,
                     .first_key = 9,
                     .query_stride = 3,
                     .key_stride = 4};
  for (int64_t i = 0; i < 20; ++i) {
    const DropoutRow mine(part, 2, 1, i), row(whole, 2, 1, 5 + 3 * i);
    for (int64_t j = 0; j < 20; ++j) {
      EXPECT_EQ(mine.Hash(j), row.Hash(9 + 4 * j));
    }
  }
}

}  // namespace
}  // namespace locus
