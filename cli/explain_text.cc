// A model's positions in words, numbers and a picture.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <sstream>

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

std::string FactorWords(const LayerPosition& p) {
  const double gain = p.rotary ? p.rotary->gain : 1.0;
  if (gain == 1.0 && p.softmax_factor == 1.0 && p.temperature.beta == 0.0) {
    return "1 for cos and sin, softmax and query";
  }
  std::string words = fmt::format(
      "cos and sin x {:.7g}, softmax x {:.7g}, query ", gain, p.softmax_factor);
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
  if (slow == 0) {
    return words + fmt::format("; all turn within {}", p.trained_length);
  }
  return words + fmt::format("; {} never turn once in {} tokens", slow,
                             p.trained_length);
}

std::string ScaleWords(const LayerPosition& p) {
  const double width = 1.0 / (p.scale * p.scale);
  const auto head = static_cast<double>(p.head_dim);
  // Both conversions round.
  if (std::abs(width - head) <= 1e-12 * head) {
    return fmt::format("{:.7g} = 1/sqrt({})", p.scale, p.head_dim);
  }
  const double whole = std::round(width);
  if (whole > 1.0 && std::abs(width - whole) <= 1e-12 * whole) {
    return fmt::format("{:.7g} = 1/sqrt({}), for heads of {}", p.scale, whole,
                       p.head_dim);
  }
  return fmt::format("{:.7g}, not 1/sqrt({})", p.scale, p.head_dim);
}

std::string GroupText(const LayerGroup& group, size_t width) {
  const LayerPosition& p = group.position;
  std::string text;
  for (const std::string& line :
       Wrap(fmt::format(
                "{} {} {}{}", p.part,
                group.layers.size() == 1 ? "layer" : "layers",
                Ranges(group.layers),
                p.layer_type.empty() ? "" : fmt::format(" ({})", p.layer_type)),
            width)) {
    text += line + "\n";
  }
  text += Line("attention",
               p.attention.words.empty() ? p.attention.name : p.attention.words,
               width);
  if (p.input.name != "none") text += Line("input", p.input.words, width);
  if (!p.attends) return text;
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
  text += Line("scale", ScaleWords(p), width);
  text += Line("factors", FactorWords(p), width);
  if (!p.sinks.empty()) text += Line("sinks", p.sinks, width);
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

// The components of a tensor's name.
std::vector<std::string> Components(const std::string& name) {
  std::vector<std::string> parts;
  std::stringstream text(name);
  for (std::string part; std::getline(text, part, '.');) parts.push_back(part);
  return parts;
}

// Merges two names that differ only in numbers, writing N for those that do.
std::optional<std::string> CommonName(const std::string& a,
                                      const std::string& b) {
  auto parts = Components(a);
  const auto others = Components(b);
  if (parts.size() != others.size()) return std::nullopt;
  const std::string any = "N";
  const auto is_number = [&](const std::string& part) {
    return part == any ||
           part.find_first_not_of("0123456789") == std::string::npos;
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == others[i]) continue;
    if (!is_number(parts[i]) || !is_number(others[i])) return std::nullopt;
    parts[i] = any;
  }
  return fmt::format("{}", fmt::join(parts, "."));
}

// The JSON of a group without the names of its tensors, and these names.
struct Nameless {
  Json json;
  std::vector<std::string> names = {};

  explicit Nameless(const Json& group) : json(group) {
    for (const char* scheme : {"attention", "input"}) {
      for (Json& tensor : json[scheme]["tensors"]) {
        names.push_back(tensor["name"].get<std::string>());
        tensor.erase("name");
      }
    }
  }
  // Merges the names of a group with the same JSON, if they differ only in
  // numbers.
  bool Absorb(const std::vector<std::string>& others) {
    if (names.size() != others.size()) return false;
    std::vector<std::string> common;
    for (size_t i = 0; i < names.size(); ++i) {
      auto name = CommonName(names[i], others[i]);
      if (!name) return false;
      common.push_back(std::move(*name));
    }
    names = std::move(common);
    return true;
  }
};

// Merges groups that differ only in the numbers in their tensors' names.
std::vector<LayerGroup> Alike(const std::vector<LayerGroup>& groups) {
  std::vector<LayerGroup> merged;
  std::vector<Nameless> known;
  std::map<std::string, std::vector<size_t>> alike;  // of `known`, by JSON
  for (const LayerGroup& group : groups) {
    const Nameless next(group.json);
    std::vector<size_t>& candidates = alike[next.json.dump()];
    const auto found = std::ranges::find_if(
        candidates, [&](size_t i) { return known[i].Absorb(next.names); });
    if (found == candidates.end()) {
      candidates.push_back(known.size());
      known.push_back(next);
      merged.push_back(group);
      continue;
    }
    const size_t at = *found;
    auto& layers = merged[at].layers;
    layers.insert(layers.end(), group.layers.begin(), group.layers.end());
    size_t name = 0;
    auto& position = merged[at].position;
    for (auto* scheme : {&position.attention, &position.input}) {
      for (auto& tensor : scheme->tensors) {
        tensor.name = known[at].names[name++];
      }
    }
  }
  return merged;
}

}  // namespace

std::string WavelengthPicture(const LayerPosition& p, int width) {
  if (!p.rotary || p.trained_length < 2) return "";
  const auto& theta = p.rotary->theta;
  // At most sixteen pairs, including the first and the last.
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
  std::set<std::string> drawn;
  for (const LayerGroup& group : Alike(explained.groups)) {
    text += "\n" + GroupText(group, static_cast<size_t>(width));
    const std::string picture = WavelengthPicture(group.position, width);
    if (!picture.empty() && drawn.insert(picture).second) {
      text += "\n" + picture;
    }
  }
  return text;
}

}  // namespace locus::cli
