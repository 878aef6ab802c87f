#include "lab/study/study.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <cctype>
#include <ctime>

#include "lab/train/scripted.h"
#include "locus/error.h"
#include "locus/simd.h"
#include "locus/version.h"

namespace locus::lab {
namespace {

namespace fs = std::filesystem;

constexpr int kSchema = 2;

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
        "{} ranks cannot share the {} sequences per step of task {}; start at "
        "most {}, or give a larger --batch",
        settings.ranks, task.batch, task.name, task.batch));
  }
}

// Fails unless encodings in files are unchanged since the study began.
void CheckFiles(const Study& study) {
  const Json stored = study.record["settings"].value("encoding_files", Json());
  for (const auto& [name, path] : study.settings.files) {
    if (stored.value(name, "") == ScriptedEncoding::Open(path)->sha256()) {
      continue;
    }
    throw Error(fmt::format(
        "{} has changed since the study in {} began; bring it back, or start "
        "over with --fresh",
        path, study.folder.string()));
  }
}

// Fails unless the copy of study.json in a run's file is that of this study.
void CheckOwner(const Study& study, const fs::path& path, const Json& json) {
  const auto at = json.find("study");
  if (at == json.end() || *at == study.record) return;
  throw Error(fmt::format("{} is of another study", path.string()));
}

void CheckId(const Job& job, const fs::path& path, const Json& json) {
  const std::string id = json.value("id", "");
  if (id == job.id) return;
  throw Error(fmt::format("{} is of another run ('{}')", path.string(), id));
}

// Adds advice to the error of a damaged file that the study can do without.
template <typename Read>
void WithAdvice(std::string_view consequence, const Read& read) {
  try {
    read();
  } catch (const Error& e) {
    throw Error(fmt::format("{}; delete it and continue with --resume: {}",
                            e.what(), consequence));
  }
}

// The name of a folder for results, from the time when they began.
std::string FolderName(const Json& results) {
  const auto at = results.find("created");
  const std::string name =
      at != results.end() && at->is_string() ? at->get<std::string>() : "";
  const bool plain = std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == ':';
  });
  return plain && !name.empty() ? name : "unknown";
}

// Moves results of a finished study to a folder named by its start.
void ArchiveResults(const fs::path& folder) {
  const fs::path results = folder / "results.json";
  if (!fs::exists(results)) return;
  const Json json =
      Json::parse(ReadFile(results), nullptr, /*allow_exceptions=*/false);
  if (!IsFinished(json)) return;
  const fs::path aside = folder / "earlier" / FolderName(json);
  MakeFolder(aside);
  for (const char* name : {"results.json", "report.html"}) {
    std::error_code error;  // the page may be absent
    fs::rename(folder / name, aside / name, error);
  }
}

}  // namespace

bool IsFinished(const Json& results) {
  return results.is_object() && results.contains("interrupted") &&
         results["interrupted"] == false;
}

fs::path Study::JobFolder(const Job& job) const {
  return folder / "runs" / job.id;
}
fs::path Study::CheckpointPath(const Job& job) const {
  return JobFolder(job) / kCheckpointName;
}
fs::path Study::ResultPath(const Job& job) const {
  return JobFolder(job) / kResultName;
}
fs::path Study::SecondsPath() const { return folder / "runs" / "seconds.json"; }

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
    // Workers and later sessions may have another working directory.
    at->second.text = fs::absolute(at->second.text).string();
  }
  if (const auto at = study.given.find("encodings"); at != study.given.end()) {
    at->second.text = AbsoluteEncodings(at->second.text);
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
  CheckFiles(study);
  study.plan = MakePlan(study.settings);
  return study;
}

std::string Difference(const Study& stored, const Given& given, int ranks) {
  const Study now =
      MakeStudy({.folder = stored.folder, .given = given, .ranks = ranks});
  // The parts on which the bits of the results depend.
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
  ArchiveResults(folder);
  // Runs are removed first, all at once: any left by an interrupted removal
  // would restore their study.
  const fs::path discarded = folder / "discarded";
  Remove(discarded);
  std::error_code error;  // there may be none
  fs::rename(folder / "runs", discarded, error);
  for (const char* name :
       {"runs", "study.json", "results.json", "report.html", "discarded"}) {
    Remove(folder / name);
  }
}

void CheckRuns(const Study& study) {
  for (const Job& job : study.plan) {
    const fs::path result = study.ResultPath(job);
    if (fs::exists(result)) {
      WithAdvice("that run then starts over", [&] {
        const Json json = ReadSealedJson(result);
        CheckOwner(study, result, json);
        CheckId(job, result, json.value("answer", Json::object()));
      });
    }
    const fs::path path = study.CheckpointPath(job);
    if (!fs::exists(path)) continue;
    WithAdvice("that run then starts over", [&] {
      const Json json = ReadCheckpoint(path);
      CheckOwner(study, path, json);
      CheckId(job, path, json);
    });
  }
  if (fs::exists(study.SecondsPath())) {
    WithAdvice("the time spent so far is then forgotten",
               [&] { ReadSealedJson(study.SecondsPath()); });
  }
}

}  // namespace locus::lab
