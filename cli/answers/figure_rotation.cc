#include "cli/answers/figure_rotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "cli/answers/answers.h"
#include "locus/reference.h"
#include "locus/rotary.h"

namespace locus::cli {
namespace {

// Random queries per mean: its error is then below 3 %.
constexpr int64_t kQueries = 64;
// M-RoPE is shown on a video with frames of 8 x 8 patches.
constexpr int64_t kPatches = 8;

bool IsPacked(const Rotation& r) { return r.axes.size() == 3; }
bool IsGrid(const Rotation& r) { return r.axes.size() == 2; }

// The position of token i: itself, or time, row and column of a video.
int64_t TokenPosition(const Rotation& r, int64_t i) {
  if (!IsPacked(r)) return i;
  return PackPosition(i / (kPatches * kPatches), i / kPatches % kPatches,
                      i % kPatches);
}

// The share of a pair's score for equal content that remains between q_pos and
// each of k_pos: rot(x).rot(x) / x.x = cos_q cos_k + sin_q sin_k, times the
// decay. [key][pair], independent of the content.
std::vector<std::vector<double>> PairMatches(
    const Rotation& r, int64_t q_pos, const std::vector<int64_t>& k_pos) {
  const auto pairs = static_cast<size_t>(r.NumPairs());
  std::vector<double> q_cos(pairs), q_sin(pairs), cos(pairs), sin(pairs);
  r.CosSin(q_pos, q_cos.data(), q_sin.data());
  std::vector<std::vector<double>> matches;
  for (int64_t n : k_pos) {
    r.CosSin(n, cos.data(), sin.data());
    std::vector<double>& row = matches.emplace_back(pairs);
    for (size_t p = 0; p < pairs; ++p) {
      row[p] = q_cos[p] * cos[p] + q_sin[p] * sin[p];
      if (!r.log_decay.empty()) {
        row[p] *= std::exp(r.log_decay[p] * static_cast<double>(q_pos - n));
      }
    }
  }
  return matches;
}

// Scores of a query at q_pos with keys of the same content at k_pos, divided by
// the square of that content, for kQueries random queries: [query][key].
std::vector<std::vector<double>> MatchScores(
    const Rotation& rotation, const ExampleConfig& config, int64_t q_pos,
    const std::vector<int64_t>& k_pos) {
  const auto matches = PairMatches(rotation, q_pos, k_pos);
  ExampleConfig one = config;
  one.heads = 1;
  std::mt19937_64 engine(config.seed + 1);
  std::vector<std::vector<double>> scores;
  for (int64_t n = 0; n < kQueries; ++n) {
    const std::vector<double> q = RandomRows(engine, one, 1, 1).ToVector();
    double square = 0.0;
    for (double x : q) square += x * x;
    // Each pair's share of the square, and that of channels that never rotate.
    std::vector<double> share(static_cast<size_t>(rotation.NumPairs()));
    double still = 1.0;
    for (size_t p = 0; p < share.size(); ++p) {
      const double a =
          q[static_cast<size_t>(rotation.FirstOfPair(static_cast<int64_t>(p)))];
      const double b = q[static_cast<size_t>(
          rotation.SecondOfPair(static_cast<int64_t>(p)))];
      share[p] = (a * a + b * b) / square;
      still -= share[p];
    }
    std::vector<double>& row = scores.emplace_back();
    for (const std::vector<double>& match : matches) {
      row.push_back(
          std::inner_product(share.begin(), share.end(), match.begin(), still));
    }
  }
  return scores;
}

std::vector<double> MeanOver(const std::vector<std::vector<double>>& rows) {
  std::vector<double> mean(rows[0].size());
  for (const auto& row : rows) {
    for (size_t n = 0; n < row.size(); ++n) {
      mean[n] += row[n] / static_cast<double>(rows.size());
    }
  }
  return mean;
}

Panel GridPanel(const Rotation& rotation, const ExampleConfig& config) {
  // A query in the middle of a square, surrounded by keys.
  const int64_t width = rotation.axes[1].modulus;
  const int64_t side = std::min<int64_t>(width, 65);
  const int64_t middle = side / 2;
  std::vector<int64_t> keys;
  for (int64_t y = 0; y < side; ++y) {
    for (int64_t x = 0; x < side; ++x) keys.push_back(y * width + x);
  }
  const std::vector<double> mean =
      MeanOver(MatchScores(rotation, config, middle * width + middle, keys));
  HeatMap map{.title = "score on a matching key, relative to its own place",
              .x_label = "key column - query column",
              .y_label = "key row - query row",
              .value_label = "share",
              .first_x = static_cast<double>(-middle),
              .first_y = static_cast<double>(-middle)};
  for (int64_t y = 0; y < side; ++y) {
    const auto first = mean.begin() + y * side;
    map.values.emplace_back(first, first + side);
  }
  return map;
}

Panel OffsetPanel(const Rotation& rotation, const ExampleConfig& config) {
  Curves panel{.title = "score on a matching key",
               .x_label = "offset: query position - key position",
               .y_label = "share of the score at offset 0"};
  const int64_t reach = config.length - 1;
  for (int64_t o = 0; o <= reach; ++o) {
    panel.x.push_back(static_cast<double>(o));
  }
  if (IsPacked(rotation)) {
    const auto along = [&](const char* label, int64_t t, int64_t h, int64_t w) {
      std::vector<int64_t> keys;
      for (int64_t o = 0; o <= reach; ++o) {
        const int64_t back = reach - o;
        keys.push_back(PackPosition(t != 0 ? back : reach,
                                    h != 0 ? back : reach,
                                    w != 0 ? back : reach));
      }
      panel.curves.push_back(
          {.label = label,
           .y = MeanOver(MatchScores(
               rotation, config, PackPosition(reach, reach, reach), keys))});
    };
    along("in time", 1, 0, 0);
    along("in height", 0, 1, 0);
    along("in width", 0, 0, 1);
    along("text: all three", 1, 1, 1);
    return panel;
  }
  std::vector<int64_t> keys;
  for (int64_t o = 0; o <= reach; ++o) keys.push_back(reach - o);
  const auto scores = MatchScores(rotation, config, reach, keys);
  panel.curves.push_back({.label = fmt::format("mean of {} queries", kQueries),
                          .y = MeanOver(scores)});
  panel.band_label = "8 of 10 queries";
  for (size_t n = 0; n < keys.size(); ++n) {
    std::vector<double> column;
    for (const auto& row : scores) column.push_back(row[n]);
    std::ranges::sort(column);
    panel.band_low.push_back(column[column.size() / 10]);
    panel.band_high.push_back(column[column.size() * 9 / 10]);
  }
  return panel;
}

Panel QueryPanel(const Rotation& rotation, const ExampleConfig& config) {
  std::mt19937_64 engine(config.seed);
  Tensor q = RandomRows(engine, config, 1, 1);
  // Random angles, but pairs of norm 1, so that all frequencies are equally
  // visible.
  double* values = q.MutableData<double>();
  for (int64_t p = 0; p < rotation.NumPairs(); ++p) {
    double& a = values[rotation.FirstOfPair(p)];
    double& b = values[rotation.SecondOfPair(p)];
    const double length = std::hypot(a, b);
    a /= length;
    b /= length;
  }
  HeatMap map{.title = "a random query with pairs of length 1, rotated",
              .x_label = IsPacked(rotation)
                             ? "patch, row by row of 8 x 8 frames"
                         : IsGrid(rotation) ? "position, row by row"
                                            : "position",
              .y_label = "channel",
              .value_label = "value"};
  map.values.resize(static_cast<size_t>(config.head_dim));
  for (int64_t i = 0; i < config.length; ++i) {
    // A decay depends on pairs of tokens, so only the rotation is shown.
    std::vector<double> row = q.ToVector();
    reference::RotateRow(rotation, TokenPosition(rotation, i), row.data());
    for (size_t d = 0; d < row.size(); ++d) map.values[d].push_back(row[d]);
  }
  return map;
}

}  // namespace

Tensor RandomRows(std::mt19937_64& engine, const ExampleConfig& config,
                  int64_t length, int64_t heads) {
  // Box-Muller, so that pictures are the same on every platform.
  const auto uniform = [&engine] {
    return (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53;
  };
  Tensor rows = Tensor::Zeros(DType::kF64, {1, heads, length, config.head_dim});
  double* out = rows.MutableData<double>();
  for (int64_t n = 0; n < rows.NumElements(); ++n) {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    out[n] = radius * std::cos(2.0 * std::numbers::pi * uniform());
  }
  return rows;
}

std::vector<Panel> RotationPanels(const Encoding& encoding,
                                  const ExampleConfig& config) {
  const Rotation rotation = *encoding.Lower(ShapeOf(config)).terms.rotate;
  return {QueryPanel(rotation, config), IsGrid(rotation)
                                            ? GridPanel(rotation, config)
                                            : OffsetPanel(rotation, config)};
}

}  // namespace locus::cli
