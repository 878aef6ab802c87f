// The tables that the terminal shows at the end.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/report/report.h"
#include "lab/report/results.h"

namespace locus::lab {
namespace {

using Row = std::vector<std::string>;

// Columns an eye can follow: the first is flush left, the others right.
std::string Align(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      line += c == 0 ? fmt::format("  {:<{}}", row[c], widths[c])
                     : fmt::format("  {:>{}}", row[c], widths[c]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string Number(double value, double scale, int digits) {
  return !std::isfinite(value) ? "-"
                               : fmt::format("{:.{}f}", value * scale, digits);
}

// Means and intervals of a column's encodings. The best have a star, those that
// have not learned the task a question mark.
std::vector<std::string> Column(const Json& results, const Json& task,
                                int64_t length, const std::string& metric) {
  const std::string name = task["name"];
  const int digits = metric == "loss" ? 3 : 1;
  const double scale = metric == "loss" ? 1.0 : 100.0;
  std::vector<std::string> cells;
  for (const Json& encoding : task["encodings"]) {
    const auto found = FindSummary(results, name, encoding, length, metric);
    if (!found) {
      const bool refused =
          FindRefusal(results, name, encoding, length).has_value();
      cells.emplace_back(refused ? "refused " : "- ");
      continue;
    }
    std::string cell = Number(found->mean, scale, digits);
    if (found->high > found->low) {
      cell += "+-" + Number((found->high - found->low) / 2, scale, digits);
    }
    cells.push_back(cell + (found->best ? "*" : found->learned ? " " : "?"));
  }
  return cells;
}

std::string LengthTable(const Json& results, const Json& task,
                        const std::string& metric) {
  std::vector<Row> rows = {{"encoding"}};
  for (const Json& encoding : task["encodings"]) {
    rows.push_back({encoding.get<std::string>()});
  }
  for (const Json& length : task["lengths"]) {
    rows[0].push_back(LengthTitle(length, task["train_length"]) + " ");
    const auto cells = Column(results, task, length, metric);
    for (size_t n = 0; n < cells.size(); ++n) rows[n + 1].push_back(cells[n]);
  }
  return Align(rows);
}

std::string SpeedTable(const Json& results, const Json& task) {
  const std::string name = task["name"];
  std::vector<Row> rows = {{"encoding", "tokens/s", "ms/step", "peak MB"}};
  for (const Json& encoding : task["encodings"]) {
    const auto mean = [&](const char* what) {
      return MeanOfRuns(results, name, encoding, what);
    };
    rows.push_back({encoding.get<std::string>(),
                    Number(mean("tokens_per_second"), 1, 0),
                    Number(mean("seconds_per_step"), 1e3, 1),
                    Number(mean("peak_memory_bytes"), 1e-6, 0)});
  }
  return Align(rows);
}

std::string CostTable(const Json& results, int64_t length) {
  std::vector<Row> rows = {{"encoding", "fused ms", "materialised ms",
                            "fused MB", "materialised MB", "cost of position"}};
  for (const Json& row : results["attention_cost"]) {
    if (row["length"] != length || row["path"] != "fused") continue;
    const std::string encoding = row["encoding"];
    const auto cost = [&](const char* path, const char* what) {
      return CostOf(results, length, encoding, path, what);
    };
    const double plain =
        CostOf(results, length, "none", "fused", "seconds_per_step");
    rows.push_back({encoding, Number(cost("fused", "seconds_per_step"), 1e3, 1),
                    Number(cost("materialised", "seconds_per_step"), 1e3, 1),
                    Number(cost("fused", "peak_memory_bytes"), 1e-6, 0),
                    Number(cost("materialised", "peak_memory_bytes"), 1e-6, 0),
                    Number(cost("fused", "seconds_per_step") / plain, 1, 2)});
  }
  return Align(rows);
}

std::string ExtensionTable(const Json& results, const Json& task) {
  std::vector<Row> rows = {{"method", "fine-tuned"}};
  for (const Json& length : task["lengths"]) {
    rows[0].push_back(LengthTitle(length, task["train_length"]));
  }
  const Json& settings = results["settings"]["extension"];
  std::vector<int64_t> tunings = {0};
  if (settings["fine_tune_steps"] > 0) {
    tunings.push_back(settings["fine_tune_steps"]);
  }
  for (const int64_t steps : tunings) {
    for (const Json& method : settings["methods"]) {
      Row row = {MethodTitle(method), fmt::format("{} steps", steps)};
      for (const Json& length : task["lengths"]) {
        row.push_back(
            Number(ExtensionLoss(results, method, steps, length), 1, 3));
      }
      rows.push_back(std::move(row));
    }
  }
  return Align(rows);
}

std::string ClaimsTable(const Json& results) {
  std::string text;
  for (const Json& claim : results["claims"]) {
    text += fmt::format(
        "  [{}] {}: {}; here {}\n", claim["agrees"].get<std::string>(),
        claim["paper"].get<std::string>(), claim["claim"].get<std::string>(),
        claim["here"].get<std::string>());
  }
  return text;
}

}  // namespace

std::string ReportText(const Json& results) {
  std::string text;
  const Json main = TaskOf(results, MainTask(results));
  for (const Json& task : results["settings"]["tasks"]) {
    const bool loss = task["name"] == "text";
    text += fmt::format(
        "\n{}: {} by length ({} seed{}, 95 % intervals; * best{})\n{}",
        task["name"].get<std::string>(),
        loss ? "loss in nats per token" : "percent of answers right",
        task["seeds"].size(), task["seeds"].size() == 1 ? "" : "s",
        loss ? "" : "; ? not learned",
        LengthTable(results, task, loss ? "loss" : "accuracy"));
  }
  if (!results["extensions"].empty()) {
    text += fmt::format("\nRoPE extended: loss in nats a token by length\n{}",
                        ExtensionTable(results, TaskOf(results, "text")));
  }
  text += fmt::format(
      "\ntraining of {}, {} x {} tokens a step\n{}",
      main["name"].get<std::string>(), main["batch"].get<int64_t>(),
      main["train_length"].get<int64_t>(), SpeedTable(results, main));
  if (const int64_t length = CostLength(results); length > 0) {
    text += fmt::format("\na step at length {}, alone\n{}", length,
                        CostTable(results, length));
  }
  if (!results["claims"].empty()) {
    text += fmt::format("\nwhat papers claim\n{}", ClaimsTable(results));
  }
  text += "\n";
  for (const std::string& sentence : Findings(results)) text += sentence + "\n";
  return text;
}

}  // namespace locus::lab
