// A study on several ranks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>

#include "lab/study/compare.h"
#include "lab/study/job.h"
#include "lab/study/open.h"
#include "lab/study/parts.h"
#include "lab/study/progress.h"
#include "lab/study/stop.h"
#include "lab/study/worker.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

using Clock = std::chrono::steady_clock;

// Every rank must train on the text that the study was created for.
void CheckCorpus(const Study& study) {
  const std::optional<Corpus> corpus = OpenCorpus(study.settings);
  if (!corpus) return;
  const Json& stored = study.record["settings"]["corpus"];
  if (stored["sha256"] == corpus->sha256()) return;
  throw Error(fmt::format(
      "its corpus {} is not that of the study; give every rank the same file",
      corpus->name()));
}

// Runs the jobs one after another, each on all ranks.
class Trainings {
 public:
  Trainings(const CompareOptions& options, const Study& study,
            const Ranks& ranks)
      : options_(options), study_(study), ranks_(ranks) {
    if (!ranks.first()) return;
    std::vector<Job> left;
    std::ranges::copy_if(study.plan, std::back_inserter(left),
                         [&](const Job& job) { return !study.IsDone(job); });
    line_.emplace(left, study.plan.size(), /*workers=*/1);
  }

  // Skips measurements.
  Outcome Run() {
    const auto start = Clock::now();
    for (const Job& job : study_.plan) {
      if (job.kind == JobKind::kCost) continue;
      if (ranks_.Any(ranks_.first() && study_.IsDone(job))) continue;
      outcome_.stopped = ranks_.Any(StopRequests() > 0);
      if (outcome_.stopped || !Do(job)) break;
    }
    outcome_.seconds =
        std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(outcome_);
  }

 private:
  // Returns false if no more jobs can be done now.
  bool Do(const Job& job) {
    for (const std::string& id : NeedsOf(job)) {
      if (std::ranges::find(outcome_.failures, id, &Failure::id) ==
          outcome_.failures.end()) {
        continue;
      }
      Note(job, fmt::format("it needs {}, which failed", id));
      return true;
    }
    if (line_) line_->Start(job);
    OnAllRanks(ranks_, [&] {
      if (ranks_.first()) WriteDown(job);
    });
    const JobOutcome own = TryJob({.study = study_,
                                   .job = job,
                                   .ranks = ranks_,
                                   .save_every = options_.save_every,
                                   .report = [&](const auto& text) {
                                     if (!line_) return;
                                     line_->OnLine(job, text);
                                     line_->Show();
                                   }});
    // The first rank decides, since it has the files.
    const int code = OnFirstRank(ranks_, [&] { return own.code; });
    const std::string error = ranks_.FromFirst(own.error);
    if (line_) line_->End(job, code == kWorkerDone);
    if (code == kWorkerNoRoom) outcome_.storage_error = error;
    if (code == kWorkerStopped) outcome_.stopped = true;
    if (code == kWorkerFailed) Note(job, error);
    return code == kWorkerDone || code == kWorkerFailed;
  }

  // Called before each job: publishes those that are done.
  void WriteDown(const Job& job) {
    clock_.JobEnded();
    clock_.Tick([&] {
      Publish(options_, study_,
              {.running = {job.id},
               .seconds_left = line_->SecondsLeft(),
               .failures = outcome_.failures},
              first_);
    });
  }

  void Note(const Job& job, const std::string& sentence) {
    if (line_) line_->Log(fmt::format("{} failed: {}", job.id, sentence));
    outcome_.failures.push_back({.id = job.id, .sentence = sentence});
  }

  const CompareOptions& options_;
  const Study& study_;
  const Ranks& ranks_;
  std::optional<ProgressLine> line_;  // of the first rank
  PublishClock clock_ = {};
  FirstAnswer first_ = {};
  Outcome outcome_ = {};
};

// Measurements, on the first rank only. The others wait; about once per second
// it tells them that it is alive.
void MeasureOnFirst(const Study& study, const Ranks& ranks, double save_every,
                    Outcome& outcome) {
  constexpr std::string_view kGoesOn = "goes on";
  Attempt attempt;
  if (ranks.first()) {
    auto told = Clock::now();
    const auto report = [&] {
      if (Clock::now() - told < std::chrono::seconds(1)) return;
      ranks.FromFirst(kGoesOn);
      told = Clock::now();
    };
    attempt = Attempt([&] {
      Outcome measured = RunJobs(study, {.workers = 1,
                                         .save_every = save_every,
                                         .measurements_only = true,
                                         .meanwhile = report});
      std::ranges::copy(measured.failures,
                        std::back_inserter(outcome.failures));
      outcome.stopped = measured.stopped;
      outcome.storage_error = measured.storage_error;
      outcome.seconds += measured.seconds;
    });
    ranks.FromFirst("over");
  } else {
    while (ranks.FromFirst("") == kGoesOn) {
    }
  }
  attempt.Settle(ranks, ranks.Any(attempt.failed()));
}

}  // namespace

int CompareOnRanks(const CompareOptions& options, const Ranks& ranks) {
  InstallSignalHandlers(/*interrupt=*/true);
  std::optional<OpenedStudy> opened;
  OnAllRanks(ranks, [&] {
    if (ranks.first()) opened.emplace(options);
  });
  const std::string record =
      ranks.FromFirst(opened ? opened->study().record.dump() : "");
  const Study study = StudyOf(options.request.folder, Json::parse(record));
  OnAllRanks(ranks, [&] { CheckCorpus(study); });
  if (ranks.first()) LogPlan(options, study);
  Outcome outcome = Trainings(options, study, ranks).Run();
  if (!outcome.stopped && outcome.storage_error.empty()) {
    MeasureOnFirst(study, ranks, options.save_every, outcome);
  }
  return OnFirstRank(ranks, [&] { return Conclude(options, study, outcome); });
}

}  // namespace locus::lab
