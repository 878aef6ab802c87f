#include "lab/report/results.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/names.h"
#include "lab/report/evidence.h"
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

// A short label: the acronym in the title ("RoPE"), or its first word if that
// is one ("ALiBi"), or the title if it is short, or the name.
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

// The textbook facts of a built-in encoding.
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

// The same for an encoding written in Python.
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

// The results of the jobs, sorted into the parts of results.json. Times and
// memory are added later by `Costs`.
struct Parts {
  Json runs = Json::array();
  Json extensions = Json::array();
  Json tuning = Json::array();
  Json pictures = Json::array();
  Json cost_rows = Json::array();
  Json refused_costs = Json::array();
  std::vector<Json> run_costs = {};  // of runs, in their order
  Evidence evidence = {};
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
      parts.evidence.Add(SubjectOf(job.spec.task, job.spec.encoding),
                         job.spec.seed, answer["evaluations"]);
      if (answer.contains("pictures")) {
        for (const Json& p : answer["pictures"]) parts.pictures.push_back(p);
        answer.erase("pictures");
      }
      parts.runs.push_back(std::move(answer));
      parts.run_costs.push_back(result["cost"]);
    } else if (job.kind == JobKind::kTune) {
      answer.erase("id");
      parts.tuning.push_back(std::move(answer));
    } else if (job.kind == JobKind::kExtend) {
      parts.evidence.Add(ExtensionSubject(job.method, job.fine_tune_steps),
                         job.spec.seed, answer["evaluations"]);
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

// Number of trainable parameters of the first task's smallest model, without
// those of an encoding.
Json ParametersJson(const Json& runs, const std::string& task) {
  Json least = nullptr;
  for (const Json& run : runs) {
    if (run["task"] != task || !run.contains("parameters")) continue;
    if (least.is_null() || run["parameters"] < least) least = run["parameters"];
  }
  return least;
}

// A readable title for a job such as "text/rope/1".
std::string JobTitle(const Job& job) {
  switch (job.kind) {
    case JobKind::kTune:
      return fmt::format("{} on {}, learning rate {:g}", job.spec.encoding,
                         job.spec.task, job.spec.learning_rate);
    case JobKind::kTrain:
      return fmt::format("{} on {}, seed {}", job.spec.encoding, job.spec.task,
                         job.spec.seed);
    case JobKind::kExtend:
      return fmt::format("rope extended ({})", job.method);
    case JobKind::kCost:
      break;
  }
  return "timing of a step";
}

Json ProgressJson(const Study& study, const Live& live) {
  Json running = Json::array();
  for (const std::string& id : live.running) {
    running.push_back(JobTitle(study.Find(id)));
  }
  const auto done = std::ranges::count_if(
      study.plan, [&](const Job& job) { return study.IsDone(job); });
  const bool first = std::ranges::all_of(study.plan, [&](const Job& job) {
    return !job.first_answer || study.IsDone(job);
  });
  return {{"done", done},
          {"jobs", study.plan.size()},
          {"first_answer", first},
          {"running", running},
          {"seconds_left",
           live.seconds_left >= 0 ? Json(live.seconds_left) : Json(nullptr)},
          {"written", std::time(nullptr)}};
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
  const Json summary = SummaryJson(study.settings, parts.evidence);
  const Json ranking = RankingJson(study.settings, parts.evidence);
  const Json claims = ClaimsJson(study.settings, parts.evidence);

  const Json lasting = Json::array({settings, parts.runs, parts.extensions,
                                    parts.pictures, parts.refused_costs,
                                    parts.tuning, summary, ranking, claims});
  for (size_t n = 0; n < parts.run_costs.size(); ++n) {
    parts.runs[n].update(parts.run_costs[n]);
  }
  Json failed = Json::array();
  for (const Failure& failure : request.failures) {
    failed.push_back({{"id", failure.id}, {"reason", failure.sentence}});
  }
  Json results = {{"schema", record["schema"]},
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
                  {"tuning", parts.tuning},
                  {"extensions", parts.extensions},
                  {"attention_cost", parts.cost_rows},
                  {"attention_cost_refused", parts.refused_costs},
                  {"pictures", parts.pictures},
                  {"summary", summary},
                  {"ranking", ranking},
                  {"claims", claims}};
  if (request.live) results["progress"] = ProgressJson(study, *request.live);
  return results;
}

std::string ResultsText(const Json& results) {
  // A terminal may show it: non-ASCII characters are escaped.
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
                    .seeds = row["seeds"],
                    .learned = row["learned"],
                    .best = row["best"]};
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
