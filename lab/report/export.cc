#include "lab/report/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>

#include "cli/csv.h"
#include "cli/plot.h"
#include "lab/report/report.h"
#include "lab/report/results.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

namespace fs = std::filesystem;
using cli::CsvCell;
using cli::CsvLine;

constexpr const char* kFormats[] = {"csv", "svg", "pdf", "png"};

std::string Cell(const Json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return "";
  if (at->is_string()) return CsvCell(at->get<std::string>());
  if (at->is_number_integer()) return at->dump();
  return CsvCell(at->get<double>());
}

std::string SummaryCsv(const Json& results) {
  std::string text = CsvLine(
      {"task", "encoding", "length", "metric", "mean", "low", "high", "seeds"});
  for (const Json& row : results["summary"]) {
    text +=
        CsvLine({Cell(row, "task"), Cell(row, "encoding"), Cell(row, "length"),
                 Cell(row, "metric"), Cell(row, "mean"), Cell(row, "low"),
                 Cell(row, "high"), Cell(row, "seeds")});
  }
  return text;
}

std::string RunsCsv(const Json& results) {
  std::string text = CsvLine(
      {"task", "encoding", "seed", "length", "loss", "accuracy", "refused"});
  for (const Json& run : results["runs"]) {
    for (const Json& e : run["evaluations"]) {
      text += CsvLine({Cell(run, "task"), Cell(run, "encoding"),
                       Cell(run, "seed"), Cell(e, "length"), Cell(e, "loss"),
                       Cell(e, "accuracy"), Cell(e, "refused")});
    }
  }
  return text;
}

std::string TrainingCsv(const Json& results) {
  std::string text = CsvLine({"task", "encoding", "seed", "step", "loss"});
  for (const Json& run : results["runs"]) {
    for (const Json& point : run.value("loss_curve", Json::array())) {
      text +=
          CsvLine({Cell(run, "task"), Cell(run, "encoding"), Cell(run, "seed"),
                   Cell(point, "step"), Cell(point, "loss")});
    }
  }
  return text;
}

std::string CostCsv(const Json& results) {
  std::string text = CsvLine(
      {"length", "encoding", "path", "seconds_per_step", "peak_memory_bytes"});
  for (const Json& row : results["attention_cost"]) {
    text += CsvLine({Cell(row, "length"), Cell(row, "encoding"),
                     Cell(row, "path"), Cell(row, "seconds_per_step"),
                     Cell(row, "peak_memory_bytes")});
  }
  return text;
}

// Mean over seeds by length, with a curve per encoding that has one.
cli::Figure ByLength(const Json& results, const Json& task,
                     const std::string& metric) {
  const bool loss = metric == "loss";
  cli::Curves panel{.x_label = "length in tokens",
                    .y_label = loss ? "loss, nats per token"
                                    : "share of tokens predicted exactly",
                    .log_x = true};
  for (const Json& length : task["lengths"]) {
    panel.x.push_back(length.get<double>());
  }
  for (const Json& encoding : task["encodings"]) {
    cli::Curve curve{.label = ShortName(results, encoding)};
    for (const Json& length : task["lengths"]) {
      const auto spread =
          FindSummary(results, task["name"], encoding, length, metric);
      curve.y.push_back(spread ? spread->mean
                               : std::numeric_limits<double>::quiet_NaN());
    }
    if (std::ranges::any_of(curve.y, [](double y) { return y == y; })) {
      panel.curves.push_back(std::move(curve));
    }
  }
  return {.title = fmt::format("{}: {} by length",
                               task["name"].get<std::string>(), metric),
          .formula = fmt::format("trained at {} tokens",
                                 task["train_length"].get<int64_t>()),
          .panels = {panel}};
}

// The name of a task as part of a file name.
std::string FileName(std::string name) {
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-'; },
      '_');
  return name;
}

}  // namespace

std::vector<std::string> ReadFormats(const GivenValue& given) {
  std::vector<std::string> formats = Words(given.text);
  if (formats.empty()) {
    throw Error(fmt::format("{} must name at least one of csv, svg, pdf, png",
                            given.where));
  }
  for (const std::string& format : formats) {
    if (std::ranges::find(kFormats, format) != std::end(kFormats)) continue;
    throw Error(fmt::format("{} must be of csv, svg, pdf, png, got '{}'",
                            given.where, format));
  }
  return formats;
}

std::vector<fs::path> Export(const Json& results, const fs::path& folder,
                             const std::vector<std::string>& formats) {
  const fs::path out = folder / "export";
  MakeFolder(out);
  std::vector<fs::path> written;
  const auto write = [&](const char* name, const std::string& text) {
    written.push_back(out / name);
    WriteFile(written.back(), text);
  };
  for (const std::string& format : formats) {
    if (format == "csv") {
      write("summary.csv", SummaryCsv(results));
      write("runs.csv", RunsCsv(results));
      write("training.csv", TrainingCsv(results));
      write("cost.csv", CostCsv(results));
      continue;
    }
    for (const Json& task : results["settings"]["tasks"]) {
      for (const char* metric : {"loss", "accuracy"}) {
        const cli::Figure figure = ByLength(results, task, metric);
        // No run has finished yet.
        if (std::get<cli::Curves>(figure.panels[0]).curves.empty()) continue;
        written.push_back(out / fmt::format("{}-{}.{}", FileName(task["name"]),
                                            metric, format));
        cli::DrawFile({&figure, 1}, written.back().string());
      }
    }
  }
  return written;
}

}  // namespace locus::lab
