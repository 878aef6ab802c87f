#include "locus/encodings/swin.h"

#include <limits>

#include "locus/descriptor.h"
#include "support/encoding_checks.h"
#include "support/formulas.h"

LOCUS_COVERS(swin);

namespace locus::testing {
namespace {

constexpr int64_t kHeads = 4;

// The published index of every pair of tokens of a window, by loops over
// (y, x) of both; with `cls`, token 0 is [CLS] and takes the last three rows.
std::vector<std::vector<int64_t>> IndexOf(int64_t height, int64_t width,
                                          bool cls) {
  const int64_t first = cls ? 1 : 0;
  const size_t tokens = size_t(height * width + first);
  const int64_t cells = (2 * height - 1) * (2 * width - 1);
  std::vector index(tokens, std::vector<int64_t>(tokens));
  if (cls) {
    for (size_t t = 1; t < tokens; ++t) {
      index[0][t] = cells;      // cls to token
      index[t][0] = cells + 1;  // token to cls
    }
    index[0][0] = cells + 2;  // cls to cls
  }
  for (int64_t qy = 0; qy < height; ++qy) {
    for (int64_t qx = 0; qx < width; ++qx) {
      for (int64_t ky = 0; ky < height; ++ky) {
        for (int64_t kx = 0; kx < width; ++kx) {
          const int64_t dy = qy - ky, dx = qx - kx;
          index[size_t(first + qy * width + qx)]
               [size_t(first + ky * width + kx)] =
                   (dy + height - 1) * (2 * width - 1) + dx + width - 1;
        }
      }
    }
  }
  return index;
}

TEST(SwinBiasTest, MatchesPaperFormula) {
  for (auto [height, width] :
       {std::pair<int64_t, int64_t>{4, 4}, {3, 5}, {5, 2}, {1, 7}, {6, 1}}) {
    for (bool cls : {false, true}) {
      for (DType dtype : {DType::kF64, DType::kF32}) {
        const int64_t rows = (2 * height - 1) * (2 * width - 1) + (cls ? 3 : 0);
        const Tensor table = RandomTensor({rows, kHeads}, 3).To(dtype);
        const auto index = IndexOf(height, width, cls);
        for (bool causal : {false, true}) {
          const PaperCase c{.length = int64_t(index.size()), .causal = causal};
          const auto score = [&](int64_t h, const auto& q, const auto& k,
                                 int64_t m, int64_t n) {
            return ScaledDot(q, k) + table.At(index[size_t(m)][size_t(n)], h);
          };
          EXPECT_LE(PaperError(SwinBias(table, height, width, cls), c, score),
                    kPaperTolerance);
        }
      }
    }
  }
}

// A 2 x 2 window: offsets (dy, dx) in a 3 x 3 table, row by row.
TEST(SwinBiasTest, HoldsKnownRows) {
  std::vector<double> values;
  for (int row = 0; row < 12; ++row) values.push_back(row);
  const auto bias = [&](bool cls, int64_t m, int64_t n) {
    const int64_t rows = cls ? 12 : 9;
    const SwinBias swin(
        Tensor::From({rows, 1}, std::vector<double>(values.begin(),
                                                    values.begin() + rows)),
        2, 2, cls);
    const Terms terms =
        swin.Lower(Shape::SelfAttention(1, 8, cls ? 5 : 4)).terms;
    return BiasAt(*terms.bias, 0, m, n);
  };
  EXPECT_EQ(bias(false, 0, 0), 4);  // (0, 0)
  EXPECT_EQ(bias(false, 0, 3), 0);  // (-1, -1)
  EXPECT_EQ(bias(false, 1, 2), 2);  // (-1, +1)
  EXPECT_EQ(bias(false, 2, 0), 7);  // (+1, 0)
  EXPECT_EQ(bias(true, 1, 4), 0);   // the raster starts at 1
  EXPECT_EQ(bias(true, 0, 3), 9);
  EXPECT_EQ(bias(true, 3, 0), 10);
  EXPECT_EQ(bias(true, 0, 0), 11);
}

TEST(SwinBiasTest, PullBackMatchesFiniteDifferences) {
  for (bool cls : {false, true}) {
    const SwinBias swin(RandomTensor({5 * 3 + (cls ? 3 : 0), kHeads}, 5), 3, 2,
                        cls);
    EXPECT_LE(PullBackError(swin, {.batch = 1, .length = cls ? 7 : 6}),
              kDifferenceTolerance);
  }
}

TEST(SwinBiasTest, RefusesBadInput) {
  EXPECT_EQ(ErrorOf([] {
              SwinBias(RandomTensor({9, 2}, 1), 2, 3);
            }),
            "a 2 x 3 window needs a table [15, heads], got f64 [9, 2]");
  EXPECT_EQ(
      ErrorOf([] {
        SwinBias(RandomTensor({15, 2}, 1), 2, 3, /*cls=*/true);
      }),
      "a 2 x 3 window with [CLS] needs a table [18, heads], got f64 [15, 2]");
  EXPECT_EQ(ErrorOf([] {
              SwinBias(RandomTensor({9, 2}, 1), 0, 3);
            }),
            "a 2-D window needs sides from 1 to 4096, got 0 x 3");
  EXPECT_EQ(ErrorOf([] {
              FindEncoding("swin").example(
                  {.length = std::numeric_limits<int64_t>::max()});
            }),
            "the example's length must be a positive number, at most 2^24, got "
            "9223372036854775807");
  const SwinBias swin(RandomTensor({15, 2}, 1), 2, 3);
  const auto lower = [&](const Shape& shape) {
    return ErrorOf([&] { swin.Lower(shape); });
  };
  EXPECT_EQ(lower(Shape::SelfAttention(2, 8, 6)), "");
  EXPECT_EQ(lower(Shape::SelfAttention(2, 8, 7)),
            "a 2 x 3 window has positions 0 .. 5, but the call has position 6");
  Shape negative = Shape::SelfAttention(2, 8, 4);
  negative.min_k_pos = -1;
  EXPECT_EQ(
      lower(negative),
      "a 2 x 3 window has positions 0 .. 5, but the call has position -1");
  EXPECT_EQ(lower(Shape::SelfAttention(3, 8, 6)),
            "Swin was made for 2 heads, but the call has 3");
}

}  // namespace
}  // namespace locus::testing
