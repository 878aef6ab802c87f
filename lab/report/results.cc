#include "lab/report/results.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/names.h"
#include "lab/train/scripted.h"
#include "locus/descriptor.h"
#include "locus/simd.h"

namespace locus::lab {
namespace {

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

Json MachineJson(const ResultsRequest& request) {
  return {{"cpu", CpuName()},
          {"cores", std::thread::hardware_concurrency()},
          {"jobs", request.workers},
          {"threads_per_job", request.study.settings.threads},
          {"simd", SimdTarget()},
          {"memory_bytes", static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) *
                               sysconf(_SC_PAGE_SIZE)}};
}

// A name for labels: the acronym in the title ("RoPE"), or its first word if
// that is one ("ALiBi"), or the title if short, or the name.
std::string ShortName(const EncodingInfo& info) {
  const auto is_acronym = [](std::string_view word) {
    return word.size() > 1 && word.find(' ') == std::string_view::npos &&
           std::ranges::any_of(word.substr(1), [](unsigned char c) {
             return std::isupper(c) != 0 || std::isdigit(c) != 0;
           });
  };
  const std::string_view title = info.title;
  const size_t open = title.find('(');
  if (open != std::string_view::npos) {
    const std::string_view inside =
        title.substr(open + 1, title.find(')') - open - 1);
    if (is_acronym(inside)) return std::string(inside);
  }
  const std::string_view first = title.substr(0, title.find(' '));
  if (is_acronym(first)) return std::string(first);
  constexpr size_t kShort = 20;
  std::string name(title.size() <= kShort ? title : info.name);
  name[0] =
      static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
  return name;
}

// The textbook's side of an encoding of the list.
Json ListedJson(const Settings& settings, const std::string& name) {
  const Variant variant = FindVariant(name);
  const EncodingInfo& info = *variant.info;
  ExampleConfig config;
  if (!variant.options.empty()) {
    config.heads = settings.heads;
    config.head_dim = settings.model_dim / settings.heads;
    config.options = variant.options;
  }
  const auto terms = info.example(config)
                         ->Lower(Shape::SelfAttention(
                             config.heads, config.head_dim, config.length))
                         .terms;
  // "RoPE base=100" and "Rotary position embedding (RoPE), base=100".
  std::string options;
  for (const auto& [option, value] : variant.options) {
    options +=
        fmt::format("{}{}={}", options.empty() ? "" : ", ", option, value);
  }
  return {
      {"name", name},
      {"title", options.empty() ? std::string(info.title)
                                : fmt::format("{}, {}", info.title, options)},
      {"short", options.empty()
                    ? ShortName(info)
                    : fmt::format("{} {}", ShortName(info), options)},
      {"formula", info.formula},
      {"paper", info.paper},
      {"enters_at", TermNames(terms)},
      {"reference", cli::ReferenceName(info.reference)},
      {"trainable", info.trainable},
      {"extrapolates", cli::ExtrapolatesName(info.extrapolates)},
      {"note", info.extrapolation_note}};
}

// The same of one that Python wrote.
Json ScriptedJson(const std::string& path) {
  const auto scripted = ScriptedEncoding::Open(path);
  constexpr const char* kTerms[] = {"bias", "q_table", "v_table"};
  return {{"name", scripted->name()},
          {"title", scripted->title()},
          {"short", scripted->name()},
          {"formula", scripted->formula()},
          {"paper", "your own, in Python"},
          {"enters_at", {kTerms[static_cast<size_t>(scripted->term())]}},
          {"reference", cli::ReferenceName(Reference::kRelative)},
          {"trainable", !scripted->parameters().empty()},
          {"extrapolates", cli::ExtrapolatesName(Extrapolates::kYes)},
          {"note", "a function of the offset, whatever the length"}};
}

Json EncodingJson(const Settings& settings, const std::string& name) {
  const auto file = settings.files.find(name);
  return file == settings.files.end() ? ListedJson(settings, name)
                                      : ScriptedJson(file->second);
}

// Rows of one task and encoding at one length, loss and accuracy.
void AddSummary(const Json& runs, const TaskSettings& task,
                const std::string& encoding, int64_t length, Json& summary) {
  for (const char* metric : {"loss", "accuracy"}) {
    std::vector<double> values;
    for (const Json& run : runs) {
      if (run["task"] != task.name || run["encoding"] != encoding) continue;
      for (const Json& e : run["evaluations"]) {
        if (e["length"] == length && e.contains(metric) &&
            e[metric].is_number()) {
          values.push_back(e[metric].get<double>());
        }
      }
    }
    if (values.empty()) continue;
    double sum = 0;
    for (const double v : values) sum += v;
    const auto [low, high] = std::ranges::minmax(values);
    summary.push_back({{"task", task.name},
                       {"encoding", encoding},
                       {"length", length},
                       {"mean", sum / static_cast<double>(values.size())},
                       {"low", low},
                       {"high", high},
                       {"metric", metric},
                       {"seeds", values.size()}});
  }
}

Json SummaryJson(const Settings& settings, const Json& runs) {
  Json summary = Json::array();
  for (const TaskSettings& task : settings.tasks) {
    for (const std::string& encoding : task.encodings) {
      for (const int64_t length : task.lengths) {
        AddSummary(runs, task, encoding, length, summary);
      }
    }
  }
  return summary;
}

// What the jobs found, sorted into the parts of results.json. Times and memory
// are added by `Costs`, afterwards.
struct Parts {
  Json runs = Json::array();
  Json extensions = Json::array();
  Json pictures = Json::array();
  Json cost_rows = Json::array();
  Json refused_costs = Json::array();
  std::vector<Json> run_costs = {};  // of runs, in their order
  bool complete = true;
};

Parts Collect(const Study& study) {
  Parts parts;
  for (const Job& job : study.plan) {
    if (!std::filesystem::exists(study.ResultPath(job))) {
      parts.complete = false;
      continue;
    }
    const Json result = ReadSealedJson(study.ResultPath(job));
    Json answer = result["answer"];
    if (job.kind == JobKind::kTrain) {
      if (answer.contains("pictures")) {
        for (const Json& p : answer["pictures"]) parts.pictures.push_back(p);
        answer.erase("pictures");
      }
      parts.runs.push_back(std::move(answer));
      parts.run_costs.push_back(result["cost"]);
    } else if (job.kind == JobKind::kExtend) {
      parts.extensions.push_back(std::move(answer));
    } else {
      for (const Json& row : result["cost"]["rows"]) {
        parts.cost_rows.push_back(row);
      }
      for (const Json& row : answer["refused"]) {
        parts.refused_costs.push_back(row);
      }
    }
  }
  return parts;
}

// Trainable numbers of the first task's plainest model, without any of an
// encoding.
Json ParametersJson(const Json& runs, const std::string& task) {
  Json least = nullptr;
  for (const Json& run : runs) {
    if (run["task"] != task || !run.contains("parameters")) continue;
    if (least.is_null() || run["parameters"] < least) least = run["parameters"];
  }
  return least;
}

}  // namespace

Json ResultsJson(const ResultsRequest& request) {
  const Study& study = request.study;
  const Json& record = study.record;
  Parts parts = Collect(study);
  Json settings = record["settings"];
  settings["model"]["parameters"] =
      ParametersJson(parts.runs, study.settings.tasks.front().name);
  Json encodings = Json::array();
  for (const std::string& name : study.settings.Encodings()) {
    encodings.push_back(EncodingJson(study.settings, name));
  }
  const Json summary = SummaryJson(study.settings, parts.runs);

  const Json lasting =
      Json::array({settings, parts.runs, parts.extensions, parts.pictures,
                   parts.refused_costs, summary});
  for (size_t n = 0; n < parts.run_costs.size(); ++n) {
    parts.runs[n].update(parts.run_costs[n]);
  }
  Json failed = Json::array();
  for (const Failure& failure : request.failures) {
    failed.push_back({{"id", failure.id}, {"reason", failure.sentence}});
  }
  return {{"schema", record["schema"]},
          {"locus", record["locus"]},
          {"libtorch", record["libtorch"]},
          {"created", record["created"]},
          {"command", record["command"]},
          {"fingerprint", Fingerprint(lasting.dump())},
          {"machine", MachineJson(request)},
          {"settings", settings},
          {"seconds", request.seconds},
          {"interrupted", !parts.complete},
          {"failed", failed},
          {"encodings", encodings},
          {"runs", parts.runs},
          {"extensions", parts.extensions},
          {"attention_cost", parts.cost_rows},
          {"attention_cost_refused", parts.refused_costs},
          {"pictures", parts.pictures},
          {"summary", summary}};
}

std::string ResultsText(const Json& results) {
  // A terminal may show it: everything but ASCII is escaped.
  const auto ascii = [](const Json& json) {
    return json.dump(-1, ' ', /*ensure_ascii=*/true);
  };
  std::string text = "{";
  for (const auto& [key, value] : results.items()) {
    text += fmt::format("{}\n{}: ", text.size() == 1 ? "" : ",", ascii(key));
    if (!value.is_array() || value.empty()) {
      text += ascii(value);
      continue;
    }
    const char* before = "[\n ";
    for (const Json& element : value) {
      text += before + ascii(element);
      before = ",\n ";
    }
    text += "]";
  }
  return text + "\n}\n";
}

std::optional<Spread> FindSummary(const Json& results, const std::string& task,
                                  const std::string& encoding, int64_t length,
                                  const std::string& metric) {
  for (const Json& row : results["summary"]) {
    if (row["task"] == task && row["encoding"] == encoding &&
        row["length"] == length && row["metric"] == metric) {
      return Spread{.mean = row["mean"],
                    .low = row["low"],
                    .high = row["high"],
                    .seeds = row["seeds"]};
    }
  }
  return {};
}

std::optional<std::string> FindRefusal(const Json& results,
                                       const std::string& task,
                                       const std::string& encoding,
                                       int64_t length) {
  for (const Json& run : results["runs"]) {
    if (run["task"] != task || run["encoding"] != encoding) continue;
    for (const Json& e : run["evaluations"]) {
      if (e["length"] == length && e.contains("refused")) {
        return e["refused"].get<std::string>();
      }
    }
  }
  return {};
}

}  // namespace locus::lab
