// A study in its folder: its settings, its jobs, and what of them is done.
//
//   OUT/study.json                 settings; written first
//   OUT/runs/<job>/checkpoint      a job that is not finished
//   OUT/runs/<job>/result.json     a finished one
//   OUT/runs/seconds.json          time spent on it so far
//   OUT/results.json, report.html  the answer
#ifndef LOCUS_LAB_STUDY_STUDY_H_
#define LOCUS_LAB_STUDY_STUDY_H_

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/study/config.h"
#include "lab/study/plan.h"
#include "lab/study/store.h"
#include "lab/tasks/corpus.h"

namespace locus::lab {

// Files of a job in its folder.
inline constexpr const char* kCheckpointName = "checkpoint";
inline constexpr const char* kResultName = "result.json";

struct Study {
  std::filesystem::path folder = {};
  Given given = {};  // the options that it was started with
  Json record = {};  // study.json: versions, settings, when it began
  Settings settings = {};
  std::vector<Job> plan = {};

  std::filesystem::path JobFolder(const Job& job) const;
  std::filesystem::path CheckpointPath(const Job& job) const;
  std::filesystem::path ResultPath(const Job& job) const;
  std::filesystem::path SecondsPath() const;

  // Finished, and what other jobs need of it is still there.
  bool IsDone(const Job& job) const;
  const Job& Find(const std::string& id) const;
};

// How a study is asked for.
struct StudyRequest {
  std::filesystem::path folder = {};
  Given given = {};
  std::string command = {};  // as it was typed
  int ranks = 1;
};
// A study that is not yet on disk. Throws Error for bad options, a corpus that
// cannot be read, or more ranks than sequences of a step.
Study MakeStudy(const StudyRequest& request);

// The study of such a study.json.
Study StudyOf(const std::filesystem::path& folder, Json record);

// The study in a folder, or nothing. Throws Error if it is damaged.
std::optional<Study> OpenStudy(const std::filesystem::path& folder);

// In which setting or version a study of these options on so many ranks would
// differ from the stored one, as one sentence; empty if in none.
std::string Difference(const Study& stored, const Given& given, int ranks);

// Writes study.json into a folder without runs.
void SaveStudy(const Study& study);

// Whether this is results.json of a study that is done.
bool IsFinished(const Json& results);

// Takes runs and results away: those of a finished study go to OUT/earlier.
void ClearFolder(const std::filesystem::path& folder);

// Reads what runs have written; throws Error that names the first file that is
// damaged or of another study, and what to do about it.
void CheckRuns(const Study& study);

// The corpus of the settings, or nothing if no task needs one.
std::optional<Corpus> OpenCorpus(const Settings& settings);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_STUDY_H_
