#include "lab/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "lab/compare_job.h"
#include "lab/compare_pool.h"
#include "lab/compare_stop.h"
#include "lab/compare_study.h"
#include "lab/progress.h"
#include "lab/report.h"
#include "lab/results.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

namespace fs = std::filesystem;

void Emit(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0) {
    throw Error("cannot write to standard output");
  }
}

void Say(const std::string& sentence) {
  fmt::print(stderr, "locus: {}\n", sentence);
}

fs::path ResultsPath(const fs::path& folder) { return folder / "results.json"; }
fs::path ReportPath(const fs::path& folder) { return folder / "report.html"; }

size_t NumDone(const Study& study) {
  return static_cast<size_t>(std::ranges::count_if(
      study.plan, [&](const Job& job) { return study.IsDone(job); }));
}

std::string Progressed(const Study& study) {
  return fmt::format("{} of {} jobs are done", NumDone(study),
                     study.plan.size());
}

Study Begin(const CompareOptions& options) {
  Study study = MakeStudy(options.folder, options.given, options.command);
  ClearFolder(options.folder);
  SaveStudy(study);
  return study;
}

Study Resume(const CompareOptions& options) {
  auto stored = OpenStudy(options.folder);
  if (!stored) {
    throw Error(
        fmt::format("there is no study in {} to resume; start one "
                    "without --resume",
                    options.folder.string()));
  }
  Given given = stored->given;
  for (const auto& [name, value] : StudyOptions(options.given)) {
    given[name] = value;
  }
  const std::string difference = Difference(*stored, given);
  if (!difference.empty()) {
    throw Error(fmt::format(
        "the study in {} has other settings: {}; make that the same, or start "
        "anew with --fresh",
        options.folder.string(), difference));
  }
  return std::move(*stored);
}

// A finished one of this very version, or nothing to lose.
bool MayReplace(const fs::path& folder) {
  const fs::path path = ResultsPath(folder);
  if (!fs::exists(folder / "study.json")) return true;
  if (!fs::exists(path)) return false;
  const Json results =
      Json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
  return results.is_object() && !results.value("interrupted", true);
}

[[noreturn]] void RefuseUnfinished(const CompareOptions& options,
                                   const std::string& why) {
  throw Error(fmt::format(
      "{} holds an unfinished study{}; continue it with --resume, discard it "
      "with --fresh, or choose another folder by --out",
      options.folder.string(), why));
}

Study Open(const CompareOptions& options) {
  switch (options.existing) {
    case Existing::kResume:
      return Resume(options);
    case Existing::kReplace:
      return Begin(options);
    case Existing::kContinue: {
      if (!fs::exists(options.folder / "study.json")) return Begin(options);
      const bool replaceable = MayReplace(options.folder);
      const auto stored = OpenStudy(options.folder);
      const std::string difference = Difference(*stored, options.given);
      if (difference.empty()) return *stored;
      if (replaceable) return Begin(options);
      RefuseUnfinished(options,
                       fmt::format(" of other settings ({})", difference));
    }
    case Existing::kRefuse:
      break;
  }
  if (!MayReplace(options.folder)) RefuseUnfinished(options, "");
  return Begin(options);
}

// Seconds of earlier sessions; a session that was killed is not counted.
double EarlierSeconds(const Study& study) {
  const fs::path path = study.folder / "runs" / "seconds.json";
  return fs::exists(path) ? ReadSealedJson(path)["seconds"].get<double>() : 0.0;
}

void KeepSeconds(const Study& study, double seconds) {
  WriteSealedJson(study.folder / "runs" / "seconds.json",
                  {{"seconds", seconds}});
}

void WriteResults(const fs::path& folder, const Json& results) {
  WriteFile(ResultsPath(folder), ResultsText(results));
  WriteFile(ReportPath(folder), ReportHtml(results));
}

void Show(const CompareOptions& options, const Json& results) {
  if (options.json) {
    Emit(ResultsText(results));
  } else {
    Emit(ReportText(results));
    Emit(fmt::format("\nreport: {}\ndata:   {}\n",
                     ReportPath(options.folder).string(),
                     ResultsPath(options.folder).string()));
  }
}

// Models that nothing starts from any more.
void DropCheckpoints(const Study& study) {
  for (const Job& job : study.plan) {
    std::error_code error;  // it may be gone already
    fs::remove(study.CheckpointPath(job), error);
  }
}

std::string ResumeCommand(const CompareOptions& options) {
  return fmt::format("locus compare --resume --out {}",
                     options.folder.string());
}

}  // namespace

int Compare(const CompareOptions& options) {
  Resolve(options.given);  // nothing is touched for the sake of a slip
  MakeFolder(options.folder);
  const FolderLock lock(options.folder);
  HearSignals(/*interrupt=*/true);
  const Study study = Open(options);
  CheckCheckpoints(study);
  MakeFolder(study.folder / "runs");
  const size_t before = NumDone(study);
  Say(before == 0 ? fmt::format("{} jobs, {} at a time", study.plan.size(),
                                options.workers)
                  : fmt::format("continuing: {}", Progressed(study)));

  const Outcome outcome = RunJobs(
      study, {.workers = options.workers, .save_every = options.save_every});
  if (!outcome.storage_error.empty()) throw StorageError(outcome.storage_error);
  const double seconds = EarlierSeconds(study) + outcome.seconds;
  KeepSeconds(study, seconds);
  const Json results = ResultsJson({.study = study,
                                    .failures = outcome.failures,
                                    .workers = options.workers,
                                    .seconds = seconds});
  WriteResults(study.folder, results);
  if (outcome.stopped) {
    Say(fmt::format("stopped; {}; continue with: {}", Progressed(study),
                    ResumeCommand(options)));
    return kInterrupted;
  }
  if (outcome.failures.empty()) DropCheckpoints(study);
  Show(options, results);
  if (outcome.failures.empty()) return kFine;
  Say(fmt::format("{} of {} jobs failed; try them again with: {}",
                  outcome.failures.size(), study.plan.size(),
                  ResumeCommand(options)));
  return kSomeFailed;
}

int Redraw(const CompareOptions& options) {
  const fs::path path = ResultsPath(options.folder);
  if (!fs::exists(path)) {
    throw Error(
        fmt::format("there is no results.json in {}; make one with "
                    "locus compare",
                    options.folder.string()));
  }
  const Json results =
      Json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
  if (!results.is_object() || results.value("schema", 0) != 1) {
    throw Error(
        fmt::format("{} is not a results file of schema 1", path.string()));
  }
  try {
    WriteFile(ReportPath(options.folder), ReportHtml(results));
    Show(options, results);
  } catch (const Json::exception& e) {
    throw Error(fmt::format("{} lacks something that the report shows: {}",
                            path.string(), e.what()));
  }
  return kFine;
}

int ShowPlan(const CompareOptions& options) {
  const Study study = MakeStudy(options.folder, options.given, options.command);
  const double rate = MeasureRate(study);
  const double seconds = EstimateSeconds(study.plan, options.workers, rate);
  if (options.json) {
    Json jobs = Json::array();
    for (const Job& job : study.plan) {
      jobs.push_back(
          {{"id", job.id}, {"seconds", EstimateSeconds({job}, 1, rate)}});
    }
    Emit(Json({{"settings", study.record["settings"]},
               {"seconds", seconds},
               {"jobs", jobs}})
             .dump(2) +
         "\n");
    return kFine;
  }
  std::string text;
  for (const Job& job : study.plan) {
    text += fmt::format("  {:<32} {:>8}\n", job.id,
                        DurationText(EstimateSeconds({job}, 1, rate)));
  }
  Emit(fmt::format(
      "{}{} jobs, {} at a time: about {} in all, by the speed of "
      "a few steps just now\n",
      text, study.plan.size(), options.workers, DurationText(seconds)));
  return kFine;
}

}  // namespace locus::lab
