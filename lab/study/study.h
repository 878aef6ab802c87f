// A study in its folder: its settings, its jobs, and which of them are done.
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

  // Finished, with everything present that other jobs need from it.
  bool IsDone(const Job& job) const;
  const Job& Find(const std::string& id) const;
};

// The request for a study.
struct StudyRequest {
  std::filesystem::path folder = {};
  Given given = {};
  std::string command = {};  // as typed
  int ranks = 1;
};
// A study that is not yet on disk. Throws Error for invalid options, an
// unreadable corpus, or more ranks than sequences per step.
Study MakeStudy(const StudyRequest& request);

// The study described by a study.json.
Study StudyOf(const std::filesystem::path& folder, Json record);

// The study in a folder, or nothing. Throws Error if it is damaged.
std::optional<Study> OpenStudy(const std::filesystem::path& folder);

// The setting or version in which a study with these options and ranks would
// differ from the stored one, as a sentence; empty if there is none.
std::string Difference(const Study& stored, const Given& given, int ranks);

// Writes study.json into a folder without runs.
void SaveStudy(const Study& study);

// Whether this is the results.json of a finished study.
bool IsFinished(const Json& results);

// Removes runs and results; those of a finished study are moved to OUT/earlier.
void ClearFolder(const std::filesystem::path& folder);

// Reads the files of runs; throws Error that names the first one that is
// damaged or belongs to another study, and says what to do about it.
void CheckRuns(const Study& study);

// The corpus of the settings, or nothing if no task needs one.
std::optional<Corpus> OpenCorpus(const Settings& settings);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_STUDY_H_
