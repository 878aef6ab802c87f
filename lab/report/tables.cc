// The tables of the page and the terminal; web/README.md describes their
// columns.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lab/report/report.h"
#include "lab/report/results.h"
#include "lab/report/table.h"

namespace locus::lab {
namespace {

Cell EncodingCell(const Json& results, const std::string& encoding) {
  return TextCell(ShortName(results, encoding));
}

Cell SpreadCell(const Json& results, const Json& task,
                const std::string& encoding, int64_t length,
                const std::string& metric) {
  const std::string name = task["name"];
  const auto found = FindSummary(results, name, encoding, length, metric);
  if (!found) {
    const auto refusal = FindRefusal(results, name, encoding, length);
    return refusal ? RefusedCell(*refusal) : NumberCell(NAN, "");
  }
  const double half = (found->high - found->low) / 2;
  const size_t planned = task["seeds"].size();
  const std::string shown = metric == "loss"
                                ? fmt::format("{:.3f}", found->mean)
                                : fmt::format("{:.1f} %", 100 * found->mean);
  Cell cell = NumberCell(found->mean, shown);
  if (half > 0) {
    cell.small = metric == "loss" ? fmt::format("± {:.3f}", half)
                                  : fmt::format("± {:.1f}", 100 * half);
  }
  if (static_cast<size_t>(found->seeds) < planned) {
    cell.small += fmt::format("{}{} of {} seeds", half > 0 ? ", " : "",
                              found->seeds, planned);
  }
  cell.best = found->best;
  cell.unlearned = !found->learned;
  if (cell.unlearned) {
    cell.title =
        "not learned at the training length: takes no part in rankings";
  }
  return cell;
}

std::vector<Column> LengthColumns(const Json& task) {
  std::vector<Column> columns;
  for (const Json& length : task["lengths"]) {
    columns.push_back(
        {.title = LengthTitle(length, task["train_length"]), .number = true});
  }
  return columns;
}

Cell ChangeCell(double change) {
  return NumberCell(change, fmt::format("{:+.1f} %", 100 * change));
}

}  // namespace

Table ComparisonTable(const Json& results) {
  const Json task = TaskOf(results, MainTask(results));
  const std::string name = task["name"];
  const int64_t fourfold = FourfoldLength(task);
  const int64_t longest = task["lengths"].back();
  const int64_t cost_length = CostLength(results);
  const auto times = [&](int64_t length) {
    return fmt::format("{:.3g}x", static_cast<double>(length) /
                                      task["train_length"].get<double>());
  };
  Table table{
      .name = "comparison",
      .caption = fmt::format("The textbook's comparison, and what was measured "
                             "on the task {}",
                             name),
      .columns = {{.title = "Encoding"},
                  {.title = "Enters at"},
                  {.title = "Reference"},
                  {.title = "Trained"},
                  {.title = "Length generalisation, as the literature says"},
                  {.title = "Loss at 1x", .number = true},
                  {.title = "Change at " + times(fourfold), .number = true},
                  {.title = "Change at " + times(longest), .number = true},
                  {.title = "Position costs", .number = true}}};
  if (fourfold == longest) table.columns.erase(table.columns.begin() + 7);
  for (const Json& info : results["encodings"]) {
    const std::string encoding = info["name"];
    Cell first = EncodingCell(results, encoding);
    first.small = info["paper"];
    const auto enters = info["enters_at"].get<std::vector<std::string>>();
    const double position =
        CostOf(results, cost_length, encoding, "fused", "seconds_per_step") /
        CostOf(results, cost_length, "none", "fused", "seconds_per_step");
    Cell four = ChangeCell(ChangeOfLoss(results, encoding, fourfold));
    if (const auto why = FindRefusal(results, name, encoding, fourfold)) {
      four = RefusedCell(*why);
    }
    Cell last = ChangeCell(ChangeOfLoss(results, encoding, longest));
    if (const auto why = FindRefusal(results, name, encoding, longest)) {
      last = RefusedCell(*why);
    }
    Row row{
        .encoding = encoding,
        .cells = {
            first,
            TextCell(enters.empty()
                         ? "nowhere"
                         : fmt::format("{}", fmt::join(enters, ", "))),
            TextCell(info["reference"].get<std::string>()),
            TextCell(info["trainable"].get<bool>() ? "yes" : "no"),
            TextCell(fmt::format("{}: {}",
                                 info["extrapolates"].get<std::string>(),
                                 info["note"].get<std::string>())),
            SpreadCell(results, task, encoding, task["train_length"], "loss"),
            four}};
    if (fourfold != longest) row.cells.push_back(last);
    row.cells.push_back(NumberCell(position, fmt::format("{:.2f}", position)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table LossTable(const Json& results) {
  const Json task = TaskOf(results, MainTask(results));
  Table table{.name = "loss",
              .caption = fmt::format(
                  "Task {}: mean loss in nats per token over {} seed{} with "
                  "its 95 % interval, by length. Marked are the best and "
                  "those that do not differ significantly from it",
                  task["name"].get<std::string>(), task["seeds"].size(),
                  task["seeds"].size() == 1 ? "" : "s"),
              .columns = {{.title = "Encoding"}}};
  for (Column& column : LengthColumns(task)) {
    table.columns.push_back(std::move(column));
  }
  for (const Json& encoding : task["encodings"]) {
    Row row{.encoding = encoding, .cells = {EncodingCell(results, encoding)}};
    for (const Json& length : task["lengths"]) {
      row.cells.push_back(SpreadCell(results, task, encoding, length, "loss"));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Tasks with exact answers: all except text.
Table AccuracyTable(const Json& results) {
  // Tasks differ in their lengths: a column has the same multiple of each
  // task's training length.
  std::vector<double> multiples;
  std::vector<Json> tasks;
  for (const Json& task : results["settings"]["tasks"]) {
    if (task["name"] == "text") continue;
    tasks.push_back(task);
    for (const Json& length : task["lengths"]) {
      const double m =
          length.get<double>() / task["train_length"].get<double>();
      if (std::ranges::find(multiples, m) == multiples.end()) {
        multiples.push_back(m);
      }
    }
  }
  std::ranges::sort(multiples);
  Table table{
      .name = "accuracy",
      .caption =
          "Answers that are exactly right with their 95 % interval, by length "
          "in "
          "training lengths. In grey: models that have less than nine tenths "
          "right at the training length; they take no part in rankings. Marked "
          "are the best of a task and those that do not differ significantly "
          "from it",
      .columns = {{.title = "Task"}, {.title = "Encoding"}}};
  for (const double m : multiples) {
    table.columns.push_back(
        {.title = fmt::format("{:.3g}x", m), .number = true});
  }
  for (const Json& task : tasks) {
    for (const Json& encoding : task["encodings"]) {
      Row row{.encoding = encoding,
              .cells = {TextCell(task["name"].get<std::string>()),
                        EncodingCell(results, encoding)}};
      for (const double m : multiples) {
        const auto length = static_cast<int64_t>(
            std::llround(m * task["train_length"].get<double>()));
        row.cells.push_back(
            SpreadCell(results, task, encoding, length, "accuracy"));
      }
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

Table ClaimsTable(const Json& results) {
  Table table{
      .name = "claims",
      .caption =
          "What papers say, and what came out here. Differences of loss "
          "are in nats per token with their 95 % interval",
      .columns = {{.title = "Paper"},
                  {.title = "Claim"},
                  {.title = "Here"},
                  {.title = "Agrees?"}}};
  for (const Json& claim : results["claims"]) {
    Row row;
    for (const char* key : {"paper", "claim", "here", "agrees"}) {
      row.cells.push_back(TextCell(claim[key].get<std::string>()));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table ExtensionTable(const Json& results) {
  const Json task = TaskOf(results, "text");
  if (task.is_null() || results["extensions"].empty()) return {};
  Table table{.name = "extension",
              .caption =
                  "RoPE models of text, extended: mean loss in nats "
                  "per token by length, the lowest marked",
              .columns = {{.title = "Method"},
                          {.title = "Fine-tuned, steps", .number = true}}};
  for (Column& column : LengthColumns(task)) {
    table.columns.push_back(std::move(column));
  }
  std::vector<std::pair<std::string, int64_t>> ways;
  for (const Json& extension : results["extensions"]) {
    const std::pair<std::string, int64_t> way = {extension["method"],
                                                 extension["fine_tune_steps"]};
    if (std::ranges::find(ways, way) == ways.end()) ways.push_back(way);
  }
  for (const auto& [method, steps] : ways) {
    Row row{.cells = {TextCell(MethodTitle(method)),
                      NumberCell(static_cast<double>(steps),
                                 fmt::format("{}", steps))}};
    for (const Json& length : task["lengths"]) {
      const double loss = ExtensionLoss(results, method, steps, length);
      row.cells.push_back(NumberCell(loss, fmt::format("{:.3f}", loss)));
    }
    table.rows.push_back(std::move(row));
  }
  for (size_t n = 2; n < table.columns.size(); ++n) {
    MarkBest(table, n, Best::kLowest);
  }
  return table;
}

Table SpeedTable(const Json& results) {
  const Json task = TaskOf(results, MainTask(results));
  const std::string name = task["name"];
  Table table{.name = "speed",
              .caption = fmt::format(
                  "Training of task {}: {} sequences of {} tokens per step, "
                  "fused attention, other runs beside it",
                  name, task["batch"].get<int64_t>(),
                  task["train_length"].get<int64_t>()),
              .columns = {{.title = "Encoding"},
                          {.title = "Tokens per second", .number = true},
                          {.title = "Milliseconds per step", .number = true},
                          {.title = "Peak memory, MB", .number = true},
                          {.title = "Parameters", .number = true}}};
  for (const Json& encoding : task["encodings"]) {
    const auto mean = [&](const char* what) {
      return MeanOfRuns(results, name, encoding, what);
    };
    const double tokens = mean("tokens_per_second");
    if (std::isnan(tokens)) continue;
    const double seconds = mean("seconds_per_step");
    const double memory = mean("peak_memory_bytes");
    const double parameters = mean("parameters");
    table.rows.push_back(
        {.encoding = encoding,
         .cells = {EncodingCell(results, encoding),
                   NumberCell(tokens, fmt::format("{:.0f}", tokens)),
                   NumberCell(seconds, fmt::format("{:.1f}", 1e3 * seconds)),
                   NumberCell(memory, fmt::format("{:.0f}", memory / 1e6)),
                   NumberCell(parameters, fmt::format("{:.0f}", parameters))}});
  }
  return table;
}

Table CostTable(const Json& results) {
  Table table{.name = "cost",
              .caption =
                  "A training step measured alone: fused attention against "
                  "the same model with materialised scores, and what position "
                  "costs against no position",
              .columns = {{.title = "Encoding"},
                          {.title = "Length", .number = true},
                          {.title = "Fused, ms", .number = true},
                          {.title = "Materialised, ms", .number = true},
                          {.title = "Materialised / fused", .number = true},
                          {.title = "Fused, MB", .number = true},
                          {.title = "Materialised, MB", .number = true},
                          {.title = "Cost of position", .number = true}}};
  for (const Json& row : results["attention_cost"]) {
    if (row["path"] != "fused") continue;
    const int64_t length = row["length"];
    const std::string encoding = row["encoding"];
    const auto cost = [&](const char* path, const char* what) {
      return CostOf(results, length, encoding, path, what);
    };
    const double fused = cost("fused", "seconds_per_step");
    const double other = cost("materialised", "seconds_per_step");
    const double fused_memory = cost("fused", "peak_memory_bytes");
    const double other_memory = cost("materialised", "peak_memory_bytes");
    const double position =
        fused / CostOf(results, length, "none", "fused", "seconds_per_step");
    table.rows.push_back(
        {.encoding = encoding,
         .cells = {
             EncodingCell(results, encoding),
             NumberCell(static_cast<double>(length), fmt::format("{}", length)),
             NumberCell(fused, fmt::format("{:.1f}", 1e3 * fused)),
             NumberCell(other, fmt::format("{:.1f}", 1e3 * other)),
             NumberCell(other / fused, fmt::format("{:.2f}", other / fused)),
             NumberCell(fused_memory,
                        fmt::format("{:.0f}", fused_memory / 1e6)),
             NumberCell(other_memory,
                        fmt::format("{:.0f}", other_memory / 1e6)),
             NumberCell(position, fmt::format("{:.2f}", position))}});
  }
  return table;
}

}  // namespace locus::lab
