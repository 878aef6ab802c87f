// A model's positions in words, numbers and a picture; and what differs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "cli/explain.h"

namespace locus::cli {
namespace {

using models::LayerPosition;

constexpr double kTurn = 2.0 * std::numbers::pi;
// Two blanks, the longest label and a blank.
constexpr size_t kLabel = 14;

std::string Line(const char* label, const std::string& text, size_t width) {
  std::string lines;
  for (const std::string& part :
       Wrap(text, std::max<size_t>(width - kLabel - 2, 24))) {
    lines += fmt::format("  {:<{}}{}\n", lines.empty() ? label : "", kLabel - 2,
                         part);
  }
  return lines;
}

std::string MaskWords(const LayerPosition& p) {
  std::string words = p.causal ? "causal" : "both directions";
  if (p.window && p.causal) {
    words += fmt::format(", the last {} keys", p.window->left + 1);
  } else if (p.window) {
    words += fmt::format(", {} keys back and {} ahead", p.window->left,
                         p.window->right);
  }
  if (p.chunk != 0) words += fmt::format(", within chunks of {}", p.chunk);
  if (p.softcap != 0.0) words += fmt::format(", soft cap {}", p.softcap);
  return words;
}

std::string FactorWords(const LayerPosition& p) {
  std::string words =
      fmt::format("cos and sin x {:.7g}, softmax x {:.7g}, query ",
                  p.rotary ? p.rotary->gain : 1.0, p.softmax_factor);
  if (p.temperature.beta == 0.0) return words + "x 1";
  return words + fmt::format("x (1 + {} ln(1 + floor((m + {}) / {})))",
                             p.temperature.beta, p.temperature.shift,
                             p.temperature.span);
}

std::string WaveWords(const LayerPosition& p) {
  const auto& theta = p.rotary->theta;
  std::string words =
      fmt::format("{:.4g} to {:.4g} tokens in {} pairs", kTurn / theta.front(),
                  kTurn / theta.back(), theta.size());
  if (p.trained_length == 0) return words;
  const auto slow = std::ranges::count_if(theta, [&](double w) {
    return kTurn / w > static_cast<double>(p.trained_length);
  });
  return words + fmt::format("; {} never turn once in {} tokens", slow,
                             p.trained_length);
}

std::string GroupText(const LayerGroup& group, size_t width) {
  const LayerPosition& p = group.position;
  std::string text = fmt::format(
      "{} {} {}{}\n", p.part, group.layers.size() == 1 ? "layer" : "layers",
      Ranges(group.layers),
      p.layer_type.empty() ? "" : fmt::format(" ({})", p.layer_type));
  text += Line("attention",
               p.attention.words.empty() ? p.attention.name : p.attention.words,
               width);
  if (p.input.name != "none") text += Line("input", p.input.words, width);
  const auto terms = TermsOf(p);
  text +=
      Line("terms",
           terms.empty() ? "none" : fmt::format("{}", fmt::join(terms, ", ")),
           width);
  text += Line("heads",
               fmt::format("{} query, {} key, {} channels{}", p.q_heads,
                           p.kv_heads, p.head_dim,
                           p.value_dim == p.head_dim
                               ? ""
                               : fmt::format(" (values {})", p.value_dim)),
               width);
  text += Line("mask", MaskWords(p), width);
  text += Line("scale",
               fmt::format("{:.7g} = 1/sqrt({:.6g})", p.scale,
                           1.0 / (p.scale * p.scale)),
               width);
  text += Line("factors", FactorWords(p), width);
  if (p.rotary) text += Line("wavelengths", WaveWords(p), width);
  if (p.trained_length != 0) {
    text +=
        Line("trained", fmt::format("{} positions", p.trained_length), width);
  }
  for (const auto* scheme : {&p.attention, &p.input}) {
    for (const auto& tensor : scheme->tensors) {
      text += Line("tensor",
                   fmt::format("{} [{}]: {}", tensor.name,
                               fmt::join(tensor.shape, ", "), tensor.use),
                   width);
    }
  }
  for (const std::string& warning : p.warnings) {
    text += Line("WARNING", warning, width);
  }
  return text;
}

// Every leaf of a JSON value under its path. Lists are leaves.
void Flatten(const std::string& path, const Json& json,
             std::map<std::string, std::string>& leaves) {
  if (!json.is_object()) {
    leaves[path] = json.dump();
    return;
  }
  for (const auto& [key, value] : json.items()) {
    Flatten(path.empty() ? key : fmt::format("{}.{}", path, key), value,
            leaves);
  }
}

using Leaves = std::map<std::string, std::string>;

// The leaves of every layer of a model, by part and number.
std::map<std::pair<std::string, int64_t>, Leaves> ByLayer(const Explained& e) {
  std::map<std::pair<std::string, int64_t>, Leaves> layers;
  for (const LayerGroup& group : e.groups) {
    Leaves leaves;
    Flatten("", group.json, leaves);
    for (int64_t layer : group.layers) {
      layers[{group.position.part, layer}] = leaves;
    }
  }
  return layers;
}

std::string Short(const std::string& text) {
  constexpr size_t kMost = 60;
  return text.size() > kMost ? text.substr(0, kMost - 3) + "..." : text;
}

}  // namespace

std::vector<std::string> TermsOf(const LayerPosition& p) {
  std::vector<std::string> terms;
  const ExampleConfig config;
  for (const auto* scheme : {&p.input, &p.attention}) {
    const auto example = FindEncoding(scheme->name).example(config);
    for (std::string& term : TermNames(example->Lower(ShapeOf(config)).terms)) {
      terms.push_back(std::move(term));
    }
  }
  return terms;
}

std::string Ranges(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() &&
           numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    if (!text.empty()) text += ", ";
    text += last == i ? fmt::format("{}", numbers[i])
                      : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string WavelengthPicture(const LayerPosition& p, int width) {
  if (!p.rotary || p.trained_length < 2) return "";
  const auto& theta = p.rotary->theta;
  // At most sixteen pairs, the first and the last among them.
  constexpr size_t kRows = 16;
  const size_t rows = std::min(kRows, theta.size());
  const double trained = static_cast<double>(p.trained_length);
  double longest = trained;
  for (double w : theta) {
    if (w > 0.0) longest = std::max(longest, kTurn / w);
  }
  const int left = 17;  // pair, tokens and a blank
  const double columns = std::max(width - left - 2, 20);
  const auto column = [&](double tokens) {
    return static_cast<size_t>(std::lround(std::log(std::max(tokens, 1.0)) /
                                           std::log(longest) * columns));
  };
  const size_t mark = column(trained);
  std::string text = fmt::format("{:>5}{:>11}\n", "pair", "tokens");
  for (size_t r = 0; r < rows; ++r) {
    const size_t pair = rows == 1 ? 0 : r * (theta.size() - 1) / (rows - 1);
    const double wave = theta[pair] > 0.0 ? kTurn / theta[pair] : INFINITY;
    const size_t end = std::isinf(wave) ? column(longest) : column(wave);
    std::string bar(std::max(end, mark + 1), ' ');
    std::fill(bar.begin(), bar.begin() + static_cast<std::ptrdiff_t>(end), '=');
    bar[mark] = '|';
    text += fmt::format("{:>5}{:>11.4g} {}\n", pair, wave, bar);
  }
  text += fmt::format("{:>{}}\n", '^', left + static_cast<int>(mark) + 1);
  const std::string label =
      fmt::format("{} positions, trained", p.trained_length);
  const size_t at = static_cast<size_t>(left) + mark;
  const size_t start =
      std::min(at, static_cast<size_t>(std::max(width, 60)) - label.size());
  return text + fmt::format("{:>{}}{}\n", "", start, label);
}

std::string ExplainText(const Explained& explained, int width) {
  std::string text = fmt::format("{}: {} ({})\n", explained.file,
                                 explained.family, explained.model_type);
  for (const LayerGroup& group : explained.groups) {
    text += "\n" + GroupText(group, static_cast<size_t>(width));
    const std::string picture = WavelengthPicture(group.position, width);
    if (!picture.empty()) text += "\n" + picture;
  }
  return text;
}

std::vector<std::string> Differences(const Explained& a, const Explained& b) {
  std::vector<std::string> lines;
  if (a.family != b.family) {
    lines.push_back(fmt::format("family: {} -> {}", a.family, b.family));
  }
  const auto first = ByLayer(a), second = ByLayer(b);
  // Equal changes of many layers are one line.
  std::map<std::string, std::map<std::string, std::vector<int64_t>>> changes;
  std::map<std::string, std::vector<int64_t>> only[2];
  for (const auto& [key, leaves] : first) {
    const auto other = second.find(key);
    if (other == second.end()) {
      only[0][key.first].push_back(key.second);
      continue;
    }
    Leaves all = other->second;
    for (const auto& [path, value] : leaves) all.emplace(path, value);
    for (const auto& [path, unused] : all) {
      const auto x = leaves.find(path), y = other->second.find(path);
      const std::string before = x == leaves.end() ? "absent" : x->second;
      const std::string after = y == other->second.end() ? "absent" : y->second;
      if (before == after) continue;
      changes[fmt::format("{}: {} -> {}", path, Short(before), Short(after))]
             [key.first]
                 .push_back(key.second);
    }
  }
  for (const auto& [key, leaves] : second) {
    if (!first.contains(key)) only[1][key.first].push_back(key.second);
  }
  for (const auto& [line, parts] : changes) {
    for (const auto& [part, layers] : parts) {
      lines.push_back(fmt::format("{} ({} {})", line, part, Ranges(layers)));
    }
  }
  for (int side : {0, 1}) {
    for (const auto& [part, layers] : only[side]) {
      lines.push_back(fmt::format("only {} has {} {}",
                                  side == 0 ? a.file : b.file, part,
                                  Ranges(layers)));
    }
  }
  return lines;
}

}  // namespace locus::cli
