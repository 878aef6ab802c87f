// Numbers and sentences shared by the page and the terminal.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "lab/report/report.h"
#include "lab/report/results.h"

namespace locus::lab {
namespace {

constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();

double Mean(const std::vector<double>& values) {
  if (values.empty()) return kAbsent;
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

// "+23 %", "0 %", with a no-break space.
std::string Percent(double change) {
  const double percent = std::round(100 * change);
  return percent == 0 ? "0\u00a0%" : fmt::format("{:+.0f}\u00a0%", percent);
}

std::string Times(const Json& task, int64_t length) {
  return fmt::format("{:g}x", static_cast<double>(length) /
                                  task["train_length"].get<double>());
}

// Encodings in order, with "<" between significantly different ones, else "~".
std::string OrderOf(const Json& results, const Json& ranking) {
  // The most that fit in a sentence; the tables have all of them.
  constexpr size_t kNamed = 10;
  const Json& places = ranking["places"];
  const std::string better = ranking["metric"] == "loss" ? " < " : " > ";
  std::string order;
  for (size_t n = 0; n < std::min(places.size(), kNamed); ++n) {
    const std::string encoding = places[n]["encoding"];
    order += ShortName(results, encoding);
    if (ranking["metric"] == "loss") {
      const double change = ChangeOfLoss(results, encoding, ranking["length"]);
      if (std::isfinite(change)) order += fmt::format(" {}", Percent(change));
    }
    if (n + 1 == places.size()) break;
    const bool told = places[n].contains("to_next") &&
                      places[n]["to_next"]["significant"].get<bool>();
    order += told ? better : " ~ ";
  }
  if (places.size() > kNamed) {
    order += fmt::format("and {} more", places.size() - kNamed);
  }
  return order;
}

// The order at a length of the first task, with the change of each encoding
// relative to its own loss at the training length.
void AddOrder(const Json& results, const Json& task, int64_t length,
              std::vector<std::string>& found) {
  for (const Json& ranking : results["ranking"]) {
    if (ranking["task"] != task["name"] || ranking["length"] != length ||
        ranking["places"].size() < 2) {
      continue;
    }
    found.push_back(fmt::format(
        "Order at {} the training length{} (~: no significant difference): {}.",
        Times(task, length),
        ranking["metric"] == "loss"
            ? ", with the change of each model's loss against its own at 1x"
            : " by answers that are right",
        OrderOf(results, ranking)));
  }
}

void AddHeadline(const Json& results, const Json& task,
                 std::vector<std::string>& found) {
  const int64_t fourfold = FourfoldLength(task);
  const int64_t longest = task["lengths"].back();
  if (fourfold != task["train_length"]) {
    AddOrder(results, task, fourfold, found);
  }
  if (longest != fourfold) AddOrder(results, task, longest, found);
}

void AddRefusals(const Json& results, const Json& task,
                 std::vector<std::string>& found) {
  std::vector<std::string> names;
  int64_t first = 0;
  for (const Json& encoding : task["encodings"]) {
    for (const Json& length : task["lengths"]) {
      if (!FindRefusal(results, task["name"], encoding, length)) continue;
      names.push_back(ShortName(results, encoding));
      first = first == 0 ? length.get<int64_t>()
                         : std::min(first, length.get<int64_t>());
      break;
    }
  }
  if (names.empty()) return;
  found.push_back(fmt::format(
      "Lengths from {} on are refused by {}: nothing was learned for those "
      "positions.",
      first, fmt::join(names, ", ")));
}

void AddBest(const Json& results, const Json& task,
             std::vector<std::string>& found) {
  std::string best;
  double least = std::numeric_limits<double>::infinity();
  for (const Json& encoding : task["encodings"]) {
    const auto loss = FindSummary(results, task["name"], encoding,
                                  task["train_length"], "loss");
    if (loss && loss->mean < least) {
      least = loss->mean;
      best = encoding;
    }
  }
  if (best.empty()) return;
  found.push_back(fmt::format(
      "At the training length itself {} has the lowest loss, {:.3f} "
      "nats per token.",
      ShortName(results, best), least));
}

void AddExtension(const Json& results, const Json& task,
                  std::vector<std::string>& found) {
  const int64_t length = FourfoldLength(task);
  const double own = ExtensionLoss(results, "none", 0, task["train_length"]);
  const double plain = ExtensionLoss(results, "none", 0, length) / own - 1;
  if (!std::isfinite(plain)) return;
  const int64_t steps = results["settings"]["extension"]["fine_tune_steps"];
  std::vector<std::string> parts;
  for (const char* method : {"linear", "ntk", "dynamic", "yarn"}) {
    const double change = ExtensionLoss(results, method, 0, length) / own - 1;
    if (!std::isfinite(change)) continue;
    std::string part =
        fmt::format("{} {}", MethodTitle(method), Percent(change));
    const double tuned =
        ExtensionLoss(results, method, steps, length) / own - 1;
    if (steps > 0 && std::isfinite(tuned)) {
      part += fmt::format(" ({} after {} steps of fine-tuning)", Percent(tuned),
                          steps);
    }
    parts.push_back(std::move(part));
  }
  if (parts.empty()) return;
  // Other sentences refer to all seeds; extensions may have fewer.
  std::set<int64_t> seeds;
  for (const Json& run : results["extensions"])
    seeds.insert(run["seed"].get<int64_t>());
  const std::string whose =
      seeds.size() < task["seeds"].size()
          ? fmt::format("RoPE's loss (seed {} alone)", fmt::join(seeds, ", "))
          : "RoPE's loss";
  found.push_back(
      fmt::format("As it is, {} changes by {} at {}; extended by {}.", whose,
                  Percent(plain), Times(task, length), fmt::join(parts, ", ")));
}

void AddCost(const Json& results, std::vector<std::string>& found) {
  const int64_t length = CostLength(results);
  for (const char* encoding : {"rope", "none"}) {
    const auto ratio = [&](const char* what) {
      return CostOf(results, length, encoding, "materialised", what) /
             CostOf(results, length, encoding, "fused", what);
    };
    const double faster = ratio("seconds_per_step");
    const double less = ratio("peak_memory_bytes");
    if (!std::isfinite(faster) || !std::isfinite(less)) continue;
    found.push_back(fmt::format(
        "At length {} a training step with {} takes {:.1f} times as long with "
        "materialised attention as with fused, and {:.1f} times the memory.",
        length, ShortName(results, encoding), faster, less));
    return;
  }
}

}  // namespace

std::string ShortName(const Json& results, const std::string& encoding) {
  for (const Json& info : results["encodings"]) {
    if (info["name"] == encoding) return info.value("short", encoding);
  }
  return encoding;
}

Json TaskOf(const Json& results, const std::string& task) {
  for (const Json& settings : results["settings"]["tasks"]) {
    if (settings["name"] == task) return settings;
  }
  return nullptr;
}

std::string MainTask(const Json& results) {
  return results["settings"]["tasks"].front()["name"];
}

std::string LengthTitle(int64_t length, int64_t train_length) {
  return fmt::format(
      "{} ({:.3g}x)", length,
      static_cast<double>(length) / static_cast<double>(train_length));
}

double ChangeOfLoss(const Json& results, const std::string& encoding,
                    int64_t length) {
  const std::string name = MainTask(results);
  const Json task = TaskOf(results, name);
  const auto own =
      FindSummary(results, name, encoding, task["train_length"], "loss");
  const auto there = FindSummary(results, name, encoding, length, "loss");
  return own && there ? there->mean / own->mean - 1 : kAbsent;
}

int64_t FourfoldLength(const Json& task) {
  const int64_t fourfold = 4 * task["train_length"].get<int64_t>();
  const auto lengths = task["lengths"].get<std::vector<int64_t>>();
  const bool measured = std::ranges::find(lengths, fourfold) != lengths.end();
  return measured ? fourfold : lengths.back();
}

double CostOf(const Json& results, int64_t length, const std::string& encoding,
              const std::string& path, const std::string& what) {
  for (const Json& row : results["attention_cost"]) {
    if (row["length"] == length && row["encoding"] == encoding &&
        row["path"] == path && row.contains(what) && row[what].is_number()) {
      return row[what];
    }
  }
  return kAbsent;
}

int64_t CostLength(const Json& results) {
  int64_t longest = 0;
  for (const Json& row : results["attention_cost"]) {
    longest = std::max(longest, row["length"].get<int64_t>());
  }
  return longest;
}

double MeanOfRuns(const Json& results, const std::string& task,
                  const std::string& encoding, const std::string& what) {
  std::vector<double> values;
  for (const Json& run : results["runs"]) {
    if (run["task"] == task && run["encoding"] == encoding &&
        run.contains(what) && run[what].is_number()) {
      values.push_back(run[what]);
    }
  }
  return Mean(values);
}

double ExtensionLoss(const Json& results, const std::string& method,
                     int64_t fine_tune_steps, int64_t length) {
  std::vector<double> values;
  for (const Json& extension : results["extensions"]) {
    if (extension["method"] != method ||
        extension["fine_tune_steps"] != fine_tune_steps) {
      continue;
    }
    for (const Json& e : extension["evaluations"]) {
      if (e["length"] == length && e.contains("loss") &&
          e["loss"].is_number()) {
        values.push_back(e["loss"]);
      }
    }
  }
  return Mean(values);
}

std::string MethodTitle(const std::string& method) {
  if (method == "none") return "no extension";
  if (method == "linear") return "position interpolation";
  if (method == "ntk") return "NTK";
  if (method == "dynamic") return "dynamic NTK";
  if (method == "yarn") return "YaRN";
  return method;
}

std::vector<std::string> Findings(const Json& results) {
  std::vector<std::string> found;
  const Json task = TaskOf(results, MainTask(results));
  AddHeadline(results, task, found);
  AddRefusals(results, task, found);
  AddBest(results, task, found);
  AddExtension(results, task, found);
  AddCost(results, found);
  if (task["seeds"].size() == 1) {
    found.emplace_back(
        "One seed only: intervals speak of these models, not of others trained "
        "in the same way.");
  }
  return found;
}

}  // namespace locus::lab
