#include "lab/compare_study.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <ctime>

#include "locus/error.h"
#include "locus/simd.h"
#include "locus/version.h"

namespace locus::lab {
namespace {

namespace fs = std::filesystem;

constexpr int kSchema = 1;

Json CorpusJson(const std::optional<Corpus>& corpus) {
  if (!corpus) return nullptr;
  return {{"name", corpus->name()},
          {"bytes", corpus->bytes()},
          {"sha256", corpus->sha256()},
          {"licence", corpus->licence()}};
}

Json GivenJson(const Given& given) {
  Json json = Json::object();
  for (const auto& [name, value] : given) json[name] = value.text;
  return json;
}

Given GivenFrom(const Json& json) {
  Given given;
  for (const auto& [name, text] : json.items()) {
    given[name] = {.text = text.get<std::string>(), .where = "--" + name};
  }
  return given;
}

fs::path StudyPath(const fs::path& folder) { return folder / "study.json"; }

void Remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) {
    throw StorageError(
        fmt::format("cannot remove {}: {}", path.string(), error.message()));
  }
}

void CheckRanks(const Settings& settings) {
  for (const TaskSettings& task : settings.tasks) {
    if (settings.ranks <= task.batch) continue;
    throw Error(fmt::format(
        "{} ranks cannot share the {} sequences of a step of task {}; start at "
        "most {}, or give a larger --batch",
        settings.ranks, task.batch, task.name, task.batch));
  }
}

// Moves results of a finished study aside, into a folder named by its start.
void KeepEarlier(const fs::path& folder) {
  const fs::path results = folder / "results.json";
  if (!fs::exists(results)) return;
  const Json json =
      Json::parse(ReadFile(results), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("interrupted", true)) return;
  const fs::path aside = folder / "earlier" / json.value("created", "unknown");
  MakeFolder(aside);
  for (const char* name : {"results.json", "report.html"}) {
    std::error_code error;  // the page may be absent
    fs::rename(folder / name, aside / name, error);
  }
}

}  // namespace

fs::path Study::JobFolder(const Job& job) const {
  return folder / "runs" / job.id;
}
fs::path Study::CheckpointPath(const Job& job) const {
  return JobFolder(job) / "checkpoint";
}
fs::path Study::ResultPath(const Job& job) const {
  return JobFolder(job) / "result.json";
}

bool Study::IsDone(const Job& job) const {
  if (!fs::exists(ResultPath(job))) return false;
  if (!job.keep_model || fs::exists(CheckpointPath(job))) return true;
  return std::ranges::all_of(plan, [&](const Job& other) {
    return other.base != job.id || fs::exists(ResultPath(other));
  });
}

const Job& Study::Find(const std::string& id) const {
  const auto at = std::ranges::find(plan, id, &Job::id);
  if (at == plan.end()) {
    throw Error(
        fmt::format("the study in {} has no job '{}'", folder.string(), id));
  }
  return *at;
}

std::optional<Corpus> OpenCorpus(const Settings& settings) {
  const bool used = std::ranges::any_of(settings.tasks, [](const auto& task) {
    return FindTask(task.name).uses_corpus;
  });
  if (!used) return {};
  return settings.corpus.empty() ? Corpus::Default()
                                 : Corpus::Open(settings.corpus);
}

Study MakeStudy(const StudyRequest& request) {
  Study study{.folder = request.folder, .given = StudyOptions(request.given)};
  if (const auto at = study.given.find("corpus"); at != study.given.end()) {
    // Workers and later sessions may start elsewhere.
    at->second.text = fs::absolute(at->second.text).string();
  }
  study.settings = Resolve(study.given);
  study.settings.ranks = request.ranks;
  CheckRanks(study.settings);
  study.record = {{"schema", kSchema},
                  {"locus", Version()},
                  {"libtorch", TORCH_VERSION},
                  {"simd", SimdTarget()}};
  study.record["created"] =
      fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  study.record["command"] = request.command;
  study.record["given"] = GivenJson(study.given);
  study.record["settings"] =
      SettingsJson(study.settings, CorpusJson(OpenCorpus(study.settings)));
  study.plan = MakePlan(study.settings);
  return study;
}

std::optional<Study> OpenStudy(const fs::path& folder) {
  const fs::path path = StudyPath(folder);
  if (!fs::exists(path)) return {};
  return StudyOf(folder, ReadSealedJson(path));
}

Study StudyOf(const fs::path& folder, Json record) {
  Study study{.folder = folder, .record = std::move(record)};
  study.given = GivenFrom(study.record["given"]);
  study.settings = Resolve(study.given);
  study.settings.ranks = study.record["settings"].value("ranks", 1);
  study.plan = MakePlan(study.settings);
  return study;
}

std::string Difference(const Study& stored, const Given& given, int ranks) {
  const Study now =
      MakeStudy({.folder = stored.folder, .given = given, .ranks = ranks});
  // What the bits of results depend on.
  const auto lasting = [](const Json& record) {
    Json json = Json::object();
    for (const char* key : {"schema", "locus", "libtorch", "simd"}) {
      json[key] = record[key];
    }
    json.update(record["settings"]);
    return json;
  };
  return FirstDifference(lasting(stored.record), lasting(now.record));
}

void SaveStudy(const Study& study) {
  WriteSealedJson(StudyPath(study.folder), study.record);
}

void ClearFolder(const fs::path& folder) {
  KeepEarlier(folder);
  // First what makes it a study: if this is cut short, nothing of it counts.
  for (const char* name :
       {"study.json", "runs", "results.json", "report.html"}) {
    Remove(folder / name);
  }
}

void CheckCheckpoints(const Study& study) {
  for (const Job& job : study.plan) {
    if (fs::exists(study.ResultPath(job))) {
      ReadSealedJson(study.ResultPath(job));
    }
    const fs::path path = study.CheckpointPath(job);
    if (!fs::exists(path)) continue;
    const Sealed checkpoint = ReadSealed(path);
    if (checkpoint.header.value("id", "") != job.id) {
      throw Error(fmt::format(
          "{} is of another run ('{}'); delete it and continue with --resume",
          path.string(), checkpoint.header.value("id", "")));
    }
  }
}

}  // namespace locus::lab
