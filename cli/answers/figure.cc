#include "cli/answers/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cli/answers/answers.h"
#include "cli/answers/figure_rotation.h"
#include "locus/error.h"
#include "locus/reference.h"

namespace locus::cli {
namespace {

// The most curves that can be told apart, if they are smooth.
constexpr int64_t kMostCurves = 8;
constexpr int64_t kMostRoughCurves = 4;

bool HasParams(const Encoding& encoding) { return !encoding.Params().empty(); }

// What is known of the values of an encoding's parameters.
std::string ParamNote(const Encoding& encoding, std::string_view trained) {
  if (!HasParams(encoding)) return "";
  return trained.empty() ? "example parameters, not trained"
                         : std::string(trained);
}

// Notes are the titles of panels that have none.
void AddNote(Panel& panel, const std::string& note) {
  if (note.empty()) return;
  std::visit(
      [&](auto& p) {
        p.title =
            p.title.empty() ? note : fmt::format("{} ({})", p.title, note);
      },
      panel);
}

// Up to `most` heads, spread evenly.
std::vector<int64_t> SomeHeads(int64_t heads, int64_t most) {
  const int64_t count = std::min(heads, most);
  std::vector<int64_t> some;
  for (int64_t n = 0; n < count; ++n) {
    some.push_back(count == 1 ? 0 : n * (heads - 1) / (count - 1));
  }
  return some;
}

Panel EmbeddingPanel(const Encoding& encoding, const ExampleConfig& config) {
  std::vector<int64_t> positions;
  for (int64_t p = 0; p < config.length; ++p) positions.push_back(p);
  const Tensor rows = encoding.Embed(positions);
  // Channels above the last nonzero one would be blank.
  int64_t used = std::min<int64_t>(8, rows.size(1));
  for (int64_t d = used; d < rows.size(1); ++d) {
    for (int64_t p = 0; p < config.length; ++p) {
      if (rows.At(p, d) != 0.0) used = d + 1;
    }
  }
  HeatMap map{.x_label = "position",
              .y_label = used < rows.size(1)
                             ? fmt::format("dimension (0 from {} on)", used)
                             : "dimension",
              .value_label = "added to x"};
  for (int64_t d = 0; d < used; ++d) {
    auto& row = map.values.emplace_back();
    for (int64_t p = 0; p < config.length; ++p) row.push_back(rows.At(p, d));
  }
  return map;
}

Panel WindowPanel(const BiasTable& bias) {
  // The middle of the table is offset (0, 0); the largest offset is between
  // opposite corners of the window.
  const Grid& grid = *bias.buckets.grid;
  const int64_t width = grid.width;
  const int64_t height =
      (bias.buckets.max_offset - (width - 1)) / grid.stride + 1;
  HeatMap map{.title = "head 1",
              .x_label = "dx: query column - key column",
              .y_label = "dy: query row - key row",
              .value_label = "bias",
              .first_x = static_cast<double>(1 - width),
              .first_y = static_cast<double>(1 - height)};
  for (int64_t dy = 1 - height; dy < height; ++dy) {
    auto& row = map.values.emplace_back();
    for (int64_t dx = 1 - width; dx < width; ++dx) {
      row.push_back(
          bias.values.At(0, bias.buckets.OfOffset(dy * grid.stride + dx)));
    }
  }
  return map;
}

// `causal`: offsets of later keys are left out.
Panel BiasPanel(const Encoding& encoding, const ExampleConfig& config,
                bool causal) {
  const Terms own = encoding.Lower(ShapeOf(config)).terms;
  if (const auto* table = std::get_if<BiasTable>(&*own.bias);
      table != nullptr && table->buckets.grid) {
    return WindowPanel(*table);
  }
  // A query at the end of the trained length, with keys on both sides.
  Shape shape = ShapeOf(config);
  const int64_t reach = config.length - 1;
  shape.min_q_pos = shape.max_q_pos = reach;
  shape.max_k_pos = 2 * reach;
  const Terms terms = encoding.Lower(shape).terms;
  const int64_t first = causal ? 0 : -reach;
  Curves panel{.x_label = "offset: query position - key position",
               .y_label = "bias added to the logit"};
  for (int64_t o = first; o <= reach; ++o) {
    panel.x.push_back(static_cast<double>(o));
  }
  for (int64_t h :
       SomeHeads(config.heads,
                 HasParams(encoding) ? kMostRoughCurves : kMostCurves)) {
    Curve curve{.label = fmt::format("head {}", h + 1)};
    for (int64_t o = first; o <= reach; ++o) {
      curve.y.push_back(BiasAt(*terms.bias, h, reach, reach - o));
    }
    panel.curves.push_back(std::move(curve));
  }
  return panel;
}

// `causal`: there are no later keys.
Panel ScorePanel(const Encoding& encoding, const ExampleConfig& config,
                 bool causal) {
  // A query in the middle has keys on both sides within the length, one at the
  // end has none behind it.
  const int64_t at = causal ? config.length - 1 : config.length / 2;
  // Random pairs for the band: enough for smooth 10th and 90th percentiles.
  constexpr int64_t kPairs = 24;
  std::vector<int64_t> k_pos;
  for (int64_t n = 0; n < config.length; ++n) k_pos.push_back(n);
  std::reverse(k_pos.begin(), k_pos.end());
  const std::vector<int64_t> q_pos = {at};
  AttentionOptions call;
  call.q_positions = q_pos;
  call.k_positions = k_pos;
  const Terms terms = encoding.Lower(ShapeOf(config)).terms;

  Curves panel{.x_label = "offset: query position - key position",
               .y_label = "logit of one query on one key, moved about",
               .band_label = "8 of 10 random pairs"};
  for (int64_t n : k_pos) panel.x.push_back(static_cast<double>(at - n));
  const std::vector<int64_t> heads = SomeHeads(config.heads, kMostRoughCurves);
  std::vector<std::vector<double>> by_key(k_pos.size());
  std::mt19937_64 engine(config.seed);
  for (int64_t pair = 0; pair < kPairs; ++pair) {
    const Tensor q = RandomRows(engine, config, 1, config.heads);
    const Tensor key = RandomRows(engine, config, 1, /*heads=*/1);
    // The same key at every position and for every head.
    const Tensor k = Tensor::Borrow(
        DType::kF64, {1, 1, config.length, config.head_dim}, {0, 0, 0, 1},
        key.Data<double>(), std::make_shared<Tensor>(key));
    const reference::Scorer scores(q, k, terms, call);
    for (int64_t h : heads) {
      const std::vector<double> s = scores.Of(0, h).ToVector();
      for (size_t n = 0; n < s.size(); ++n) by_key[n].push_back(s[n]);
      if (pair == 0) {
        panel.curves.push_back(
            {.label = fmt::format("head {}", h + 1), .y = s});
      }
    }
  }
  for (auto& of_key : by_key) {
    std::ranges::sort(of_key);
    panel.band_low.push_back(of_key[of_key.size() / 10]);
    panel.band_high.push_back(of_key[of_key.size() * 9 / 10]);
  }
  return panel;
}

}  // namespace

Figure MakeFigure(const EncodingInfo& info, const Encoding& encoding,
                  const ExampleConfig& config, std::string_view trained) {
  Figure figure{.title = std::string(info.title),
                .formula = std::string(info.formula)};
  const bool causal = !trained.empty();
  switch (info.picture) {
    case Picture::kEmbedding:
      figure.panels = {EmbeddingPanel(encoding, config)};
      break;
    case Picture::kBias:
      figure.panels = {BiasPanel(encoding, config, causal)};
      break;
    case Picture::kRotation:
      figure.panels = RotationPanels(encoding, config);
      break;
    case Picture::kScore:
      figure.panels = {ScorePanel(encoding, config, causal)};
      break;
  }
  for (Panel& panel : figure.panels) {
    AddNote(panel, ParamNote(encoding, trained));
  }
  return figure;
}

}  // namespace locus::cli
