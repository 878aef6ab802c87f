// Pictures of the report: a cell has the value at the position, channel, head
// or offset that its axes name, for models and inputs of any size.
#include "lab/train/pictures.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lab/train/attention.h"
#include "lab/train/model.h"
#include "locus/descriptor.h"
#include "locus/terms.h"

namespace locus::lab {
namespace {

constexpr int64_t kHeads = 2;

Model MakeModel(const std::string& encoding, int64_t head_dim, int64_t length) {
  return Model({.position = {.encoding = encoding,
                             .layers = 1,
                             .heads = kHeads,
                             .head_dim = head_dim,
                             .train_length = length},
                .vocabulary = 10});
}

std::vector<PictureData> Pictures(const Model& model, int64_t length) {
  return DrawPictures(model,
                      torch::arange(length).remainder(10).reshape({1, length}));
}

std::vector<PictureData> OfKind(const std::vector<PictureData>& pictures,
                                const std::string& kind) {
  std::vector<PictureData> found;
  std::ranges::copy_if(pictures, std::back_inserter(found),
                       [&](const auto& p) { return p.kind == kind; });
  return found;
}

// The largest difference of a cell from `value(y, x)` at its axis values.
double WorstCell(const PictureData& picture, auto value) {
  EXPECT_EQ(picture.values.size(), picture.y_values.size());
  double worst = 0;
  for (size_t r = 0; r < picture.values.size(); ++r) {
    EXPECT_EQ(picture.values[r].size(), picture.x_values.size());
    for (size_t c = 0; c < picture.values[r].size(); ++c) {
      const auto y = static_cast<int64_t>(picture.y_values[r]);
      const auto x = static_cast<int64_t>(picture.x_values[c]);
      worst = std::max(worst, std::abs(picture.values[r][c] - value(y, x)));
    }
  }
  return worst;
}

TEST(PicturesTest, SinusoidsAreSinesAndCosines) {
  // As wide as a picture, and wider.
  for (const int64_t head_dim : {64, 160, 202}) {
    for (const int64_t length : {64, 300}) {
      const int64_t dim = kHeads * head_dim;
      const auto pictures =
          OfKind(Pictures(MakeModel("sinusoidal", head_dim, length), length),
                 "embedding");
      ASSERT_EQ(pictures.size(), 1U);
      const auto sinusoid = [&](int64_t position, int64_t channel) {
        const double angle =
            static_cast<double>(position) *
            std::pow(10000.0, -static_cast<double>(channel / 2 * 2) /
                                  static_cast<double>(dim));
        return channel % 2 == 0 ? std::sin(angle) : std::cos(angle);
      };
      EXPECT_LT(WorstCell(pictures[0], sinusoid), 1e-6) << dim;
      EXPECT_LE(pictures[0].x_values.size(), 128U);
      EXPECT_LE(pictures[0].y_values.size(), 128U);
      // Each sine is followed by its cosine, and positions have no gaps.
      const auto& channels = pictures[0].x_values;
      for (size_t c = 0; c < channels.size(); c += 2) {
        EXPECT_EQ(std::fmod(channels[c], 2.0), 0.0);
        EXPECT_EQ(channels[c] + 1, channels[c + 1]);
      }
      for (size_t r = 0; r < pictures[0].y_values.size(); ++r) {
        EXPECT_EQ(pictures[0].y_values[r], static_cast<double>(r));
      }
    }
  }
}

TEST(PicturesTest, CellsAreValuesOfTheEncoding) {
  constexpr int64_t kHeadDim = 72;
  constexpr int64_t kLength = 200;
  torch::NoGradGuard no_grad;
  int compared = 0;
  for (const EncodingInfo& info : Encodings()) {
    const std::string name(info.name);
    const Model model = MakeModel(name, kHeadDim, kLength);
    const auto pictures = Pictures(model, kLength);
    const EncodingValues values =
        model.position().Values(model.parameters(), 0, kLength);
    if (model.position().in_input()) {
      const torch::Tensor rows =
          EmbedPositions(values, kLength).to(torch::kDouble);
      for (const PictureData& p : OfKind(pictures, "embedding")) {
        EXPECT_EQ(
            WorstCell(p, [&](int64_t y,
                             int64_t x) { return rows[y][x].item<double>(); }),
            0.0)
            << name;
        ++compared;
      }
      continue;
    }
    const Terms terms = values.Build()
                            ->Lower(Shape::SelfAttention(
                                kHeads, kHeadDim, kLength, /*causal=*/true))
                            .terms;
    for (const PictureData& p : OfKind(pictures, "bias")) {
      EXPECT_EQ(WorstCell(p,
                          [&](int64_t head, int64_t offset) {
                            return BiasAt(*terms.bias, head, kLength - 1,
                                          kLength - 1 - offset);
                          }),
                0.0)
          << name;
      // Both near and far offsets are present.
      EXPECT_EQ(p.x_values.front(), 0.0);
      EXPECT_GT(p.x_values.back(), 0.95 * kLength);
      ++compared;
    }
    for (const PictureData& p : OfKind(pictures, "rotation")) {
      const int64_t pairs = terms.rotate->NumPairs();
      std::vector<double> cos(static_cast<size_t>(pairs)), sin(cos);
      EXPECT_EQ(WorstCell(p,
                          [&](int64_t pair, int64_t position) {
                            terms.rotate->CosSin(position, cos.data(),
                                                 sin.data());
                            return cos[static_cast<size_t>(pair)];
                          }),
                0.0)
          << name;
      ++compared;
    }
  }
  EXPECT_GE(compared, 15);
}

TEST(PicturesTest, LongAttentionIsAveragedAndSaysSo) {
  for (const auto& [length, side] :
       {std::pair<int64_t, int64_t>{64, 1}, {65, 2}, {150, 3}}) {
    const auto pictures =
        OfKind(Pictures(MakeModel("alibi", 8, length), length), "attention");
    ASSERT_EQ(pictures.size(), 2U);
    const PictureData& p = pictures[0];
    const std::string words =
        "means of " + std::to_string(side) + " x " + std::to_string(side);
    EXPECT_EQ(p.title.find(words) != std::string::npos, side > 1) << p.title;
    // The weights of a query sum to 1, so the sum of all weights is the length.
    double sum = 0;
    const auto extent = [&, length = length](double first, int64_t step) {
      return std::min(static_cast<double>(step),
                      static_cast<double>(length) - first);
    };
    for (size_t r = 0; r < p.values.size(); ++r) {
      for (size_t c = 0; c < p.values.size(); ++c) {
        sum += p.values[r][c] * extent(p.y_values[r], side) *
               extent(p.x_values[c], side);
      }
    }
    EXPECT_NEAR(sum, static_cast<double>(length), 1e-3);
  }
}

}  // namespace
}  // namespace locus::lab
