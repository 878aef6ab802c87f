// Differences between the positions of two models.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "cli/answers/explain.h"

namespace locus::cli {
namespace {

// The text for a value in a line; null means none.
std::string Shown(const Json& value) {
  constexpr size_t kMost = 60;
  if (value.is_null()) return "none";
  const std::string text = value.dump();
  return text.size() > kMost ? text.substr(0, kMost - 3) + "..." : text;
}

// Two numbers with as many digits as tell them apart, and at least nine.
std::string ShownNumbers(double a, double b) {
  int digits = 9;
  while (digits < 17 && fmt::format("{:.{}g}", a, digits) ==
                            fmt::format("{:.{}g}", b, digits)) {
    ++digits;
  }
  return fmt::format("{:.{}g} -> {:.{}g}", a, digits, b, digits);
}

std::string Change(const std::string& path, const Json& a, const Json& b) {
  if (a.is_number_float() && b.is_number_float()) {
    return fmt::format("{}: {}", path,
                       ShownNumbers(a.get<double>(), b.get<double>()));
  }
  const auto numbers = [](const Json& list) {
    return list.is_array() && !list.empty() && list[0].is_number();
  };
  if (!numbers(a) || !numbers(b)) {
    return fmt::format("{}: {} -> {}", path, Shown(a), Shown(b));
  }
  if (a.size() != b.size()) {
    return fmt::format("{}: {} numbers -> {}", path, a.size(), b.size());
  }
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i] ? 1 : 0;
  return fmt::format("{}: {} of {} differ", path, count, a.size());
}

// Adds a line for every value that differs. Ignores "words", which repeat other
// keys.
void Compare(const std::string& path, const Json& a, const Json& b,
             std::vector<std::string>& lines) {
  if (a == b) return;
  if (!a.is_object() || !b.is_object()) {
    lines.push_back(Change(path, a, b));
    return;
  }
  for (const auto& [key, value] : a.items()) {
    if (key == "words") continue;
    Compare(path.empty() ? key : fmt::format("{}.{}", path, key), value,
            b.value(key, Json()), lines);
  }
}

using Layers = std::map<std::pair<std::string, int64_t>, const Json*>;

Layers ByLayer(const Explained& e) {
  Layers layers;
  for (const LayerGroup& group : e.groups) {
    for (int64_t layer : group.layers) {
      layers[{group.position.part, layer}] = &group.json;
    }
  }
  return layers;
}

// "only A has decoder 4", for each part.
void Only(const std::string& file, const Layers& here, const Layers& there,
          std::vector<std::string>& lines) {
  std::map<std::string, std::vector<int64_t>> parts;
  for (const auto& [key, json] : here) {
    if (!there.contains(key)) parts[key.first].push_back(key.second);
  }
  for (const auto& [part, layers] : parts) {
    lines.push_back(
        fmt::format("only {} has {} {}", file, part, Ranges(layers)));
  }
}

}  // namespace

std::vector<std::string> Differences(const Explained& a, const Explained& b) {
  std::vector<std::string> lines;
  if (a.family != b.family) {
    lines.push_back(fmt::format("family: {} -> {}", a.family, b.family));
  }
  const Layers first = ByLayer(a), second = ByLayer(b);
  // Equal changes in several layers share a line.
  std::vector<std::string> order;
  std::map<std::string, std::map<std::string, std::vector<int64_t>>> changes;
  for (const auto& [key, json] : first) {
    const auto other = second.find(key);
    if (other == second.end()) continue;
    std::vector<std::string> here;
    Compare("", *json, *other->second, here);
    for (const std::string& line : here) {
      if (!changes.contains(line)) order.push_back(line);
      changes[line][key.first].push_back(key.second);
    }
  }
  for (const std::string& line : order) {
    for (const auto& [part, layers] : changes[line]) {
      lines.push_back(fmt::format("{} ({} {})", line, part, Ranges(layers)));
    }
  }
  Only(a.file, first, second, lines);
  Only(b.file, second, first, lines);
  return lines;
}

}  // namespace locus::cli
