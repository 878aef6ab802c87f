#include "lab/study/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "lab/report/export.h"
#include "lab/report/report.h"
#include "lab/report/results.h"
#include "lab/report/results_check.h"
#include "lab/study/job.h"
#include "lab/study/open.h"
#include "lab/study/parts.h"
#include "lab/study/pool.h"
#include "lab/study/progress.h"
#include "lab/study/study.h"
#include "locus/error.h"
#include "locus/text.h"

namespace locus::lab {
namespace {

namespace fs = std::filesystem;

void PrintOut(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0) {
    throw Error("cannot write to standard output");
  }
}

void Log(const std::string& sentence) {
  fmt::print(stderr, "locus: {}\n", EscapeControls(sentence));
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

// Seconds of earlier sessions; those of killed sessions are missing.
double EarlierSeconds(const Study& study) {
  const fs::path path = study.SecondsPath();
  return fs::exists(path) ? ReadSealedJson(path)["seconds"].get<double>() : 0.0;
}

void KeepSeconds(const Study& study, double seconds) {
  WriteSealedJson(study.SecondsPath(), {{"seconds", seconds}});
}

// Writes the report and the exports.
void WriteReport(const CompareOptions& options, const Json& results) {
  const fs::path& folder = options.request.folder;
  WriteFile(ReportPath(folder), ReportHtml(results));
  if (options.formats.empty()) return;
  for (const fs::path& path : Export(results, folder, options.formats)) {
    Log("wrote " + path.string());
  }
}

void Show(const CompareOptions& options, const Json& results) {
  if (options.json) {
    PrintOut(ResultsText(results));
  } else {
    PrintOut(EscapeControls(ReportText(results), /*keep_lines=*/true));
    PrintOut(fmt::format("\nreport: {}\ndata:   {}\n",
                         ReportPath(options.request.folder).string(),
                         ResultsPath(options.request.folder).string()));
  }
}

// Removes models from which no job will start any more.
void DropCheckpoints(const Study& study) {
  for (const Job& job : study.plan) {
    std::error_code error;  // it may be gone already
    fs::remove(study.CheckpointPath(job), error);
  }
}

// The name under which this program is called: by the `locus` beside it, if
// any.
std::string ProgramName() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error || fs::exists(self.parent_path() / "locus", error)) {
    return "locus compare";
  }
  const fs::path here = fs::proximate(self, error);
  return (error ? self : here).string();
}

std::string ResumeCommand(const CompareOptions& options) {
  const int ranks = options.request.ranks;
  return fmt::format("{}{} --resume --out {}",
                     ranks > 1 ? fmt::format("mpirun -n {} ", ranks) : "",
                     ProgramName(), options.request.folder.string());
}

}  // namespace

void FirstAnswer::Announce(const Json& results, const fs::path& page) {
  const Json& progress = results["progress"];
  const bool opened = std::exchange(named_page_, true);
  if (!opened) {
    Log(fmt::format("{} shows the results so far and refreshes itself",
                    page.string()));
    announced_ = progress["first_answer"];  // an earlier session announced it
  }
  if (announced_ || !progress["first_answer"].get<bool>()) return;
  announced_ = true;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_)
          .count();
  Log(fmt::format(
      "first answer after {:.0f} s: every encoding on the first task with one "
      "seed; more tasks and seeds follow",
      seconds));
}

void LogPlan(const CompareOptions& options, const Study& study) {
  const int ranks = options.request.ranks;
  Log(NumDone(study) == 0
          ? fmt::format("{} jobs, {} at a time{}", study.plan.size(),
                        options.workers,
                        ranks > 1 ? fmt::format(" on {} ranks", ranks) : "")
          : fmt::format("continuing: {}", Progressed(study)));
}

void Publish(const CompareOptions& options, const Study& study,
             const Live& live, FirstAnswer& first) {
  const Json results = ResultsJson({.study = study,
                                    .failures = live.failures,
                                    .workers = options.workers,
                                    .seconds = EarlierSeconds(study),
                                    .live = &live});
  WriteFile(ResultsPath(study.folder), ResultsText(results));
  WriteFile(ReportPath(study.folder), ReportHtml(results));
  first.Announce(results, ReportPath(study.folder));
}

int Conclude(const CompareOptions& options, const Study& study,
             const Outcome& outcome) {
  if (!outcome.storage_error.empty()) throw StorageError(outcome.storage_error);
  const double seconds = EarlierSeconds(study) + outcome.seconds;
  KeepSeconds(study, seconds);
  const Json results = ResultsJson({.study = study,
                                    .failures = outcome.failures,
                                    .workers = options.workers,
                                    .seconds = seconds});
  WriteFile(ResultsPath(study.folder), ResultsText(results));
  WriteReport(options, results);
  if (outcome.stopped) {
    Log(fmt::format("stopped; {}; continue with: {}", Progressed(study),
                    ResumeCommand(options)));
    return kInterrupted;
  }
  if (outcome.failures.empty()) DropCheckpoints(study);
  Show(options, results);
  if (outcome.failures.empty()) return kSuccess;
  Log(fmt::format("{} of {} jobs failed; try them again with: {}",
                  outcome.failures.size(), study.plan.size(),
                  ResumeCommand(options)));
  return kSomeFailed;
}

int Compare(const CompareOptions& options) {
  const OpenedStudy opened(options);
  const Study& study = opened.study();
  LogPlan(options, study);
  FirstAnswer first;
  const auto publish = [&](const Live& live) {
    Publish(options, study, live, first);
  };
  return Conclude(options, study,
                  RunJobs(study, {.workers = options.workers,
                                  .save_every = options.save_every,
                                  .publish = publish}));
}

int Redraw(const CompareOptions& options) {
  const fs::path path = ResultsPath(options.request.folder);
  if (!fs::exists(path)) {
    throw Error(
        fmt::format("there is no results.json in {}; make one with "
                    "locus compare",
                    options.request.folder.string()));
  }
  const Json results = ReadResults(path);
  WriteReport(options, results);
  Show(options, results);
  return kSuccess;
}

int ShowPlan(const CompareOptions& options, const Ranks& ranks) {
  Study study;
  OnAllRanks(ranks, [&] { study = MakeStudy(options.request); });
  const double rate = MeasureRate(study, ranks);
  if (!ranks.first()) return kSuccess;
  const double seconds = EstimateSeconds(study.plan, options.workers, rate);
  if (options.json) {
    Json jobs = Json::array();
    for (const Job& job : study.plan) {
      jobs.push_back(
          {{"id", job.id}, {"seconds", EstimateSeconds({job}, 1, rate)}});
    }
    PrintOut(Json({{"settings", study.record["settings"]},
                   {"seconds", seconds},
                   {"jobs", jobs}})
                 .dump(2) +
             "\n");
    return kSuccess;
  }
  std::string text;
  for (const Job& job : study.plan) {
    text += fmt::format("  {:<32} {:>8}\n", job.id,
                        DurationText(EstimateSeconds({job}, 1, rate)));
  }
  PrintOut(fmt::format(
      "{}{} jobs, {} at a time: about {} in all, by the speed of "
      "a few steps just now\n",
      text, study.plan.size(), options.workers, DurationText(seconds)));
  return kSuccess;
}

}  // namespace locus::lab
