// The page: content that is readable without scripts, and data for those that
// draw.
#include "lab/report/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lab/report/table.h"
#include "lab/study/progress.h"
#include "locus/error.h"
#include "web/report_template.h"

namespace locus::lab {
namespace {

// "64, 128" for a list.
std::string ValueText(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& one : value) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ValueText(one));
  }
  return text;
}

// Name and value, in one row each; nested objects get "outer, inner" names.
void AddRows(const std::string& name, const Json& value, Table& table) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      AddRows(fmt::format("{}, {}", name, key), inner, table);
    }
    return;
  }
  std::string shown = name;
  std::ranges::replace(shown, '_', ' ');
  table.rows.push_back(
      {.cells = {TextCell(shown), TextCell(ValueText(value))}});
}

std::string SettingsTable(const Json& results) {
  Table table{.name = "settings",
              .caption = "How it was measured",
              .columns = {{.title = "Setting"}, {.title = "Value"}},
              .sortable = false};
  for (const char* key : {"command", "created", "locus", "libtorch"}) {
    AddRows(key, results[key], table);
  }
  AddRows("time in all", DurationText(results["seconds"]), table);
  AddRows("machine", results["machine"], table);
  const Json& settings = results["settings"];
  for (const auto& [key, value] : settings.items()) {
    // Tasks have their own values of these.
    if (key == "tasks" || settings["tasks"].front().contains(key)) continue;
    AddRows(key, value, table);
  }
  // The learning rates that were tried, with the loss of each.
  for (const Json& run : results["tuning"]) {
    AddRows(fmt::format("tuned, {}, {}, learning rate {:g}",
                        run["task"].get<std::string>(),
                        run["encoding"].get<std::string>(),
                        run["learning_rate"].get<double>()),
            run["loss"].is_number()
                ? Json(fmt::format("loss {:.4f}", run["loss"].get<double>()))
                : Json("no answer"),
            table);
  }
  for (Json task : settings["tasks"]) {
    const std::string name = task["name"];
    task.erase("name");
    AddRows("task " + name, task, table);
  }
  return table.Html();
}

// Shown while the study runs. The page reloads itself; see web/src/live.ts.
std::string LiveLine(const Json& progress) {
  const Json& left = progress["seconds_left"];
  std::vector<std::string> running;
  for (const Json& job : progress["running"]) {
    running.push_back(EscapeHtml(job.get<std::string>()));
  }
  return fmt::format(
      "<p class=\"live\" id=\"live\" data-written=\"{}\"><strong>{}</strong> "
      "{} of "
      "{} jobs are done{}. Now: {}. <span class=\"renews\"></span></p>",
      progress["written"].get<int64_t>(),
      progress["first_answer"].get<bool>()
          ? "A first answer; more seeds will narrow the intervals."
          : "The study is running; what is missing will follow.",
      progress["done"].get<int64_t>(), progress["jobs"].get<int64_t>(),
      left.is_number()
          ? fmt::format(", about {} left", DurationText(left.get<double>()))
          : "",
      running.empty() ? "starting"
                      : fmt::format("{}", fmt::join(running, "; ")));
}

std::string StudyLine(const Json& results) {
  const Json task = TaskOf(results, MainTask(results));
  const size_t tasks = results["settings"]["tasks"].size();
  std::string line = fmt::format(
      "{} encodings, {} seed{}, {} task{}; task {} trained at {} tokens for {} "
      "steps and tested at up to {}.",
      results["settings"]["encodings"].size(), task["seeds"].size(),
      task["seeds"].size() == 1 ? "" : "s", tasks, tasks == 1 ? "" : "s",
      EscapeHtml(task["name"].get<std::string>()),
      task["train_length"].get<int64_t>(), task["steps"].get<int64_t>(),
      task["lengths"].back().get<int64_t>());
  if (const auto progress = results.find("progress");
      progress != results.end()) {
    line += LiveLine(*progress);
  } else if (results["interrupted"].get<bool>()) {
    line +=
        "<p class=\"warning\">This study is not finished: what is not there "
        "yet is left out.</p>";
  }
  for (const Json& failure : results["failed"]) {
    line += fmt::format("<p class=\"warning\">{} failed: {}</p>",
                        EscapeHtml(failure["id"].get<std::string>()),
                        EscapeHtml(failure["reason"].get<std::string>()));
  }
  return line;
}

std::string FindingsList(const Json& results) {
  const auto findings = Findings(results);
  if (findings.empty()) return NothingHtml("No run is finished yet.");
  std::string html = "<ul class=\"findings\">\n";
  for (const std::string& sentence : findings) {
    html += fmt::format("<li>{}</li>\n", EscapeHtml(sentence));
  }
  return html + "</ul>\n";
}

// A sentence about tasks that no model has learned.
std::string UnlearnedHtml(const Json& results) {
  std::vector<std::string> names;
  for (const Json& task : results["settings"]["tasks"]) {
    bool scored = false;
    bool learned = false;
    for (const Json& row : results["summary"]) {
      if (row["task"] != task["name"]) continue;
      scored = true;
      learned = learned || row["learned"].get<bool>();
    }
    if (scored && !learned) names.push_back(task["name"]);
  }
  if (names.empty()) return "";
  return fmt::format(
      "<p class=\"unlearned\">Not learned by any model here: {}. What they "
      "score at longer lengths says nothing about positions.</p>\n",
      EscapeHtml(fmt::format("{}", fmt::join(names, ", "))));
}

std::string OrNothing(const Table& table, std::string_view why) {
  return table.rows.empty() ? NothingHtml(why) : table.Html();
}

void Fill(std::string& page, const std::string& mark, const std::string& html) {
  const size_t at = page.find(mark);
  if (at == std::string::npos) {
    throw Error(fmt::format("the template of the report lacks {}", mark));
  }
  page.replace(at, mark.size(), html);
}

}  // namespace

std::string ReportHtml(const Json& results) {
  std::string page(web::ReportTemplate());
  const auto fill = [&](const char* name, const std::string& html) {
    Fill(page, fmt::format("<!--locus:{}-->", name), html);
  };
  // For browsers without scripts; otherwise scripts do it.
  fill("refresh", results.contains("progress")
                      ? "<noscript><meta http-equiv=\"refresh\" "
                        "content=\"15\"></noscript>"
                      : "");
  fill("study", StudyLine(results));
  fill("findings", FindingsList(results));
  constexpr std::string_view kNoRun = "No run is finished yet.";
  fill("comparison", OrNothing(ComparisonTable(results), kNoRun));
  fill("loss", OrNothing(LossTable(results), kNoRun));
  fill("accuracy", UnlearnedHtml(results) +
                       OrNothing(AccuracyTable(results),
                                 "This study has no task with exact answers."));
  fill("claims",
       OrNothing(ClaimsTable(results),
                 "This study has none of the models that claims are about."));
  fill("extension", OrNothing(ExtensionTable(results),
                              "No RoPE model was extended in this study."));
  fill("speed", OrNothing(SpeedTable(results), kNoRun));
  fill("cost", OrNothing(CostTable(results),
                         "The cost of a step was not measured in this study."));
  fill("settings", SettingsTable(results));

  const std::string open = "<script type=\"application/json\" id=\"results\">";
  std::string json;
  for (const char c : results.dump()) {
    if (c == '<') {
      json += "\\u003c";
    } else {
      json += c;
    }
  }
  Fill(page, open + "</script>", open + json + "</script>");
  return page;
}

}  // namespace locus::lab
