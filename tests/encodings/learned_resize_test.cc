// Resizing of learned tables, against PyTorch's interpolate with
// align_corners = false: samples at half-integers, edges repeated.
#include <gtest/gtest.h>

#include "locus/encodings/learned.h"
#include "support/formulas.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

using Line = std::vector<double>;

double Linear(const Line& x, double source) {
  source = std::max(source, 0.0);
  const size_t i = size_t(source);
  const size_t next = std::min(i + 1, x.size() - 1);
  const double t = source - std::floor(source);
  return (1.0 - t) * x[i] + t * x[next];
}

// Keys' cubic as four polynomials of the fraction t, a = -0.75.
double Cubic(const Line& x, double source) {
  constexpr double a = -0.75;
  const double t = source - std::floor(source), u = 1.0 - t;
  const auto near = [](double d) {
    return (a + 2.0) * d * d * d - (a + 3.0) * d * d + 1.0;
  };
  const double weight[] = {a * t * u * u, near(t), near(u), a * t * t * u};
  double sum = 0.0;
  for (int tap = -1; tap <= 2; ++tap) {
    const double at =
        std::clamp(std::floor(source) + tap, 0.0, double(x.size() - 1));
    sum += weight[tap + 1] * x[size_t(at)];
  }
  return sum;
}

Line ResizeLine(const Line& x, size_t to, Resample kernel) {
  Line out;
  for (size_t i = 0; i < to; ++i) {
    const double source =
        (double(i) + 0.5) * double(x.size()) / double(to) - 0.5;
    out.push_back(kernel == Resample::kLinear ? Linear(x, source)
                                              : Cubic(x, source));
  }
  return out;
}

// A raster [height][width]: every row, then every column.
std::vector<Line> ResizeRaster(std::vector<Line> raster, size_t height,
                               size_t width, Resample kernel) {
  for (Line& row : raster) row = ResizeLine(row, width, kernel);
  std::vector<Line> out(height, Line(width));
  for (size_t x = 0; x < width; ++x) {
    Line column;
    for (const Line& row : raster) column.push_back(row[x]);
    column = ResizeLine(column, height, kernel);
    for (size_t y = 0; y < height; ++y) out[y][x] = column[y];
  }
  return out;
}

Tensor TableOf(const Learned& learned) { return learned.Params()[0].value; }

TEST(LearnedResizeTest, MatchesHandComputedValues) {
  const Learned pair(Tensor::From({2, 1}, Line{0.0, 1.0}));
  EXPECT_LE(RelativeError(TableOf(pair.Resized(4, Resample::kLinear)),
                          Tensor::From({4, 1}, Line{0.0, 0.25, 0.75, 1.0})),
            kPaperTolerance);
  // Weights at t = 3/4 and 1/4: -27/256, 58/256 and their mirror images.
  EXPECT_LE(RelativeError(TableOf(pair.Resized(4, Resample::kBicubic)),
                          Tensor::From({4, 1}, Line{-27 / 256., 58 / 256.,
                                                    198 / 256., 283 / 256.})),
            kPaperTolerance);
}

TEST(LearnedResizeTest, MatchesOneDimensionalInterpolation) {
  const Tensor table = RandomTensor({2 + 9, 3}, 8);
  const Learned learned(table, /*offset=*/2);
  for (Resample kernel : {Resample::kLinear, Resample::kBicubic}) {
    for (int64_t to : {1, 4, 9, 10, 31}) {
      const Tensor resized = TableOf(learned.Resized(to, kernel));
      ASSERT_EQ(resized.shape(), (std::vector<int64_t>{2 + to, 3}));
      for (int64_t d = 0; d < 3; ++d) {
        Line line;
        for (int64_t r = 0; r < 9; ++r) line.push_back(table.At(2 + r, d));
        const Line expected = ResizeLine(line, size_t(to), kernel);
        // Rows before the offset are unchanged.
        for (int64_t r : {0, 1}) EXPECT_EQ(resized.At(r, d), table.At(r, d));
        for (size_t r = 0; r < expected.size(); ++r) {
          EXPECT_NEAR(resized.At(2 + r, d), expected[r], kPaperTolerance);
        }
      }
    }
  }
}

TEST(LearnedResizeTest, MatchesTwoDimensionalInterpolation) {
  constexpr int64_t kHeight = 3, kWidth = 5, kDim = 2, kPrefix = 1;
  const Tensor table = RandomTensor({kPrefix + kHeight * kWidth, kDim}, 9);
  const Learned learned(table);
  for (Resample kernel : {Resample::kLinear, Resample::kBicubic}) {
    for (auto [height, width] :
         {std::pair<int64_t, int64_t>{7, 4}, {2, 11}, {6, 6}, {1, 1}}) {
      const Tensor resized = TableOf(learned.Resized2D(
          {.height = kHeight, .width = kWidth},
          {.height = height, .width = width}, kernel, kPrefix));
      ASSERT_EQ(resized.size(0), kPrefix + height * width);
      for (int64_t d = 0; d < kDim; ++d) {
        EXPECT_EQ(resized.At(0, d), table.At(0, d));
        std::vector<Line> raster(kHeight, Line(kWidth));
        for (int64_t y = 0; y < kHeight; ++y) {
          for (int64_t x = 0; x < kWidth; ++x) {
            raster[size_t(y)][size_t(x)] =
                table.At(kPrefix + y * kWidth + x, d);
          }
        }
        const auto expected =
            ResizeRaster(raster, size_t(height), size_t(width), kernel);
        for (int64_t y = 0; y < height; ++y) {
          for (int64_t x = 0; x < width; ++x) {
            EXPECT_NEAR(resized.At(kPrefix + y * width + x, d),
                        expected[size_t(y)][size_t(x)], kPaperTolerance);
          }
        }
      }
    }
  }
}

TEST(LearnedResizeTest, SameSizeChangesNothing) {
  for (DType dtype : {DType::kF64, DType::kF32}) {
    const Tensor table = RandomTensor({12, 4}, 10).To(dtype);
    const Learned learned(table);
    for (Resample kernel : {Resample::kLinear, Resample::kBicubic}) {
      const Tensor line = TableOf(learned.Resized(12, kernel));
      EXPECT_EQ(line.dtype(), dtype);
      EXPECT_EQ(line.ToVector(), table.ToVector());
      const Learned::Grid2D grid{.height = 3, .width = 4};
      EXPECT_EQ(TableOf(learned.Resized2D(grid, grid, kernel)).ToVector(),
                table.ToVector());
    }
  }
}

TEST(LearnedResizeTest, RefusesBadInput) {
  const Learned learned(RandomTensor({10, 2}, 1));
  EXPECT_EQ(ErrorOf([&] { learned.Resized(0, Resample::kLinear); }),
            "the new height must be a positive number, at most 2^24, got 0");
  EXPECT_EQ(ErrorOf([&] {
              learned.Resized2D({.height = 3, .width = 4},
                                {.height = 6, .width = 8}, Resample::kLinear);
            }),
            "a table of 10 rows is not 0 rows and a raster of 3 x 4");
  EXPECT_EQ(ErrorOf([&] {
              learned.Resized2D({.height = 3, .width = 3},
                                {.height = 6, .width = -8}, Resample::kBicubic,
                                /*prefix=*/1);
            }),
            "the new width must be a positive number, at most 2^24, got -8");
}

}  // namespace
}  // namespace locus::testing
