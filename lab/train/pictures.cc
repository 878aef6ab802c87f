#include "lab/train/pictures.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "lab/train/interop.h"
#include "locus/attention.h"
#include "locus/encodings/none.h"
#include "locus/terms.h"

namespace locus::lab {
namespace {

// Rows and columns of a picture of an encoding, none of which is an average.
constexpr int64_t kMostShown = 128;
// Rows and columns of a picture of attention; larger ones are averaged.
constexpr int64_t kMostBlocks = 64;

std::vector<double> ToVector(const torch::Tensor& row) {
  const torch::Tensor numbers = row.to(torch::kDouble).contiguous();
  const double* data = numbers.data_ptr<double>();
  return {data, data + numbers.numel()};
}

// One axis: its label, and which of its rows or columns are shown. Others are
// omitted rather than averaged: a mean of channels, frequencies or oscillating
// positions represents none of them.
struct PictureAxis {
  std::string label = {};
  torch::Tensor shown = {};  // indices, int64
  int64_t first = 0;         // the value at index 0

  // Evenly spread over all indices: heads, pairs, offsets.
  static PictureAxis Spread(std::string label, int64_t size,
                            int64_t first = 0) {
    const int64_t count = std::min(size, kMostShown);
    return {std::move(label),
            torch::arange(count).mul(size).floor_divide(
                std::max<int64_t>(count, 1)),
            first};
  }
  // The same, for neighbours 2p and 2p + 1 together: a sine keeps its cosine.
  static PictureAxis Channels(int64_t size) {
    if (size <= kMostShown) return Spread("channel", size);
    constexpr int64_t kPairs = kMostShown / 2;
    const torch::Tensor pairs =
        torch::arange(kPairs).mul(size / 2).floor_divide(kPairs);
    return {"channel", torch::stack({2 * pairs, 2 * pairs + 1}, 1).flatten()};
  }
  // The first indices without gaps, which would hide high frequencies.
  static PictureAxis Positions(std::string label, int64_t size) {
    return {std::move(label), torch::arange(std::min(size, kMostShown))};
  }

  std::vector<double> Values() const { return ToVector(shown + first); }
};

// matrix [y, x]
PictureData Filled(PictureData picture, const torch::Tensor& matrix) {
  for (int64_t row = 0; row < matrix.size(0); ++row) {
    picture.values.push_back(ToVector(matrix[row]));
  }
  return picture;
}

// values [y, x], of which the axes show a part
PictureData Draw(std::string kind, std::string title, const PictureAxis& y,
                 const PictureAxis& x, const torch::Tensor& values) {
  return Filled({.kind = std::move(kind),
                 .title = std::move(title),
                 .x_label = x.label,
                 .y_label = y.label,
                 .x_values = x.Values(),
                 .y_values = y.Values()},
                values.index_select(0, y.shown).index_select(1, x.shown));
}

// weights [L, L]. For long inputs they are averaged over squares, since a
// pattern may be a single key wide; the title then says so, and the axes have
// the first query and key of each square.
PictureData DrawAttention(std::string title, const torch::Tensor& weights) {
  const int64_t length = weights.size(0);
  const int64_t side = (length + kMostBlocks - 1) / kMostBlocks;
  if (side > 1) title += fmt::format(", means of {} x {}", side, side);
  const std::vector<double> firsts = ToVector(torch::arange(0, length, side));
  return Filled({.kind = "attention",
                 .title = std::move(title),
                 .x_label = "key",
                 .y_label = "query",
                 .x_values = firsts,
                 .y_values = firsts},
                torch::avg_pool2d(weights.to(torch::kDouble).unsqueeze(0), side,
                                  side, /*padding=*/0,
                                  /*ceil_mode=*/true)[0]);
}

// Offsets m - n of one query among `length` keys: the last query or, for an
// encoder, the middle one, so that both signs occur.
struct Offsets {
  int64_t query = 0;
  int64_t length = 0;

  // From the last key to the first, so that the offset ascends.
  int64_t Key(int64_t i) const { return length - 1 - i; }
  PictureAxis Axis() const {
    return PictureAxis::Spread("offset", length, query - (length - 1));
  }
};

torch::Tensor Fill(int64_t rows, int64_t columns, auto value) {
  torch::Tensor matrix = torch::empty({rows, columns}, torch::kDouble);
  auto at = matrix.accessor<double, 2>();
  for (int64_t y = 0; y < rows; ++y) {
    for (int64_t x = 0; x < columns; ++x) at[y][x] = value(y, x);
  }
  return matrix;
}

// A table of vectors: each channel of a single head, or the norm of each head's
// vector.
PictureData DrawTable(const BucketTable& table, const std::string& title,
                      const Offsets& offsets) {
  const Tensor& rows = table.rows;
  const auto bucket = [&](int64_t x) {
    return table.buckets(offsets.query, offsets.Key(x));
  };
  if (rows.size(0) == 1) {
    return Draw(
        "table", title, PictureAxis::Channels(rows.size(2)), offsets.Axis(),
        Fill(rows.size(2), offsets.length,
             [&](int64_t y, int64_t x) { return rows.At(0, bucket(x), y); }));
  }
  return Draw("table", title + ", length of the vectors",
              PictureAxis::Spread("head", rows.size(0)), offsets.Axis(),
              Fill(rows.size(0), offsets.length, [&](int64_t y, int64_t x) {
                double sum = 0;
                for (int64_t d = 0; d < rows.size(2); ++d) {
                  const double r = rows.At(y, bucket(x), d);
                  sum += r * r;
                }
                return std::sqrt(sum);
              }));
}

std::vector<PictureData> DrawTerms(const Terms& terms, const std::string& where,
                                   int64_t heads, const Offsets& offsets) {
  std::vector<PictureData> pictures;
  const auto titled = [&where](const char* title) { return where + title; };
  if (terms.rotate) {
    const Rotation& rotation = *terms.rotate;
    const int64_t pairs = rotation.NumPairs();
    torch::Tensor cos = torch::empty({offsets.length, pairs}, torch::kDouble);
    torch::Tensor sin = torch::empty_like(cos);
    for (int64_t m = 0; m < offsets.length; ++m) {
      rotation.CosSin(m, cos[m].data_ptr<double>(), sin[m].data_ptr<double>());
    }
    pictures.push_back(Draw("rotation", titled("cosine of each pair's angle"),
                            PictureAxis::Spread("pair", pairs),
                            PictureAxis::Positions("position", offsets.length),
                            cos.t()));
  }
  if (terms.extra_dot) {
    const torch::Tensor a = ToTorch(terms.extra_dot->q_rows.To(DType::kF64));
    const torch::Tensor c = ToTorch(terms.extra_dot->k_rows.To(DType::kF64));
    const torch::Tensor scores =
        terms.scale.scale * torch::matmul(a, c.transpose(1, 2)).mean(0);
    pictures.push_back(
        Draw("table", titled("position against position, mean of the heads"),
             PictureAxis::Positions("query position", scores.size(0)),
             PictureAxis::Positions("key position", scores.size(1)), scores));
  }
  if (terms.q_table) {
    pictures.push_back(DrawTable(*terms.q_table,
                                 titled("vectors that queries meet"), offsets));
  }
  if (terms.k_table && terms.k_table->buckets.count > 1) {
    pictures.push_back(
        DrawTable(*terms.k_table, titled("vectors that keys meet"), offsets));
  }
  if (terms.bias) {
    pictures.push_back(Draw(
        "bias", titled("bias"), PictureAxis::Spread("head", heads),
        offsets.Axis(), Fill(heads, offsets.length, [&](int64_t h, int64_t x) {
          return BiasAt(*terms.bias, h, offsets.query, offsets.Key(x));
        })));
  }
  if (terms.v_table) {
    pictures.push_back(DrawTable(
        *terms.v_table, titled("vectors that join the values"), offsets));
  }
  return pictures;
}

}  // namespace

std::vector<PictureData> DrawPictures(const Model& model,
                                      const torch::Tensor& tokens) {
  torch::NoGradGuard no_grad;
  const PositionConfig& config = model.config().position;
  const Position& position = model.position();
  const int64_t length = tokens.size(1);
  const bool causal = config.kind == ModelKind::kDecoder;
  const Offsets offsets = {.query = causal ? length - 1 : length / 2,
                           .length = length};
  std::vector<PictureData> pictures;
  if (position.in_input()) {
    const torch::Tensor rows =
        EmbedPositions(position.Values(model.parameters(), 0, length), length);
    pictures.push_back(Draw("embedding", "what is added to the input",
                            PictureAxis::Positions("position", length),
                            PictureAxis::Channels(rows.size(1)), rows));
  }
  const std::vector<Model::LayerInput> inputs = model.AttentionInputs(tokens);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::shared_ptr<const Encoding> encoding =
        position.in_input()
            ? std::make_shared<NoPosition>()
            : position.Values(model.parameters(), layer, length).Build();
    Terms terms = encoding
                      ->Lower(Shape::SelfAttention(
                          config.heads, config.head_dim, length, causal))
                      .terms;
    if (layer == 0 || position.differs_by_layer()) {
      const std::string where = position.differs_by_layer()
                                    ? fmt::format("layer {}: ", layer + 1)
                                    : "";
      for (PictureData& picture :
           DrawTerms(terms, where, config.heads, offsets)) {
        pictures.push_back(std::move(picture));
      }
    }
    // With the identity as values, the outputs are the attention weights.
    terms.v_table.reset();
    terms.rotate_values.reset();
    const Model::LayerInput& input = inputs[static_cast<size_t>(layer)];
    const torch::Tensor identity =
        torch::eye(length).expand({1, config.heads, length, length});
    const torch::Tensor weights = ToTorch(
        Attention(ToLocus(input.q), ToLocus(input.k), ToLocus(identity), terms,
                  {.causal = causal, .threads = model.config().threads})
            .out);
    for (int64_t h = 0; h < config.heads; ++h) {
      pictures.push_back(DrawAttention(
          fmt::format("layer {}, head {}", layer + 1, h + 1), weights[0][h]));
    }
  }
  return pictures;
}

}  // namespace locus::lab
