#include "lab/study/recover.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "lab/study/store.h"
#include "lab/study/study.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

namespace fs = std::filesystem;

// Checkpoints and results of all runs, sorted by name.
std::vector<fs::path> RunFiles(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;  // the folder may not exist
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(folder / "runs", error)) {
    const fs::path name = entry.path().filename();
    if (name == kCheckpointName || name == kResultName) {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

// The copy of study.json in a run's file; nothing if the file is damaged.
std::optional<Json> StudyIn(const fs::path& path) {
  try {
    const Json json = path.filename() == kResultName ? ReadSealedJson(path)
                                                     : ReadCheckpoint(path);
    if (const auto at = json.find("study"); at != json.end()) return *at;
  } catch (const DamageError&) {
  }
  return {};
}

struct Copy {
  fs::path path = {};
  Json record = {};
};

std::optional<Copy> FindCopy(const fs::path& folder) {
  std::optional<Copy> found;
  for (const fs::path& path : RunFiles(folder)) {
    std::optional<Json> record = StudyIn(path);
    if (!record) continue;
    if (!found) {
      found = {.path = path, .record = std::move(*record)};
    } else if (found->record != *record) {
      throw Error(fmt::format(
          "{} and {} are of different studies, and study.json does not tell "
          "which is meant; move one of them to another folder",
          found->path.string(), path.string()));
    }
  }
  return found;
}

// Describes what is wrong with study.json; empty if nothing is.
std::string Complaint(const fs::path& path) {
  if (!fs::exists(path)) return fmt::format("{} is missing", path.string());
  try {
    ReadSealedJson(path);
    return "";
  } catch (const DamageError& e) {
    return e.what();
  }
}

}  // namespace

bool HasRuns(const fs::path& folder) { return !RunFiles(folder).empty(); }

void RecoverStudy(const fs::path& folder) {
  const fs::path path = folder / "study.json";
  const std::string complaint = Complaint(path);
  if (complaint.empty()) return;
  const std::optional<Copy> copy = FindCopy(folder);
  if (!copy) {
    const size_t files = RunFiles(folder).size();
    if (files == 0 && !fs::exists(path)) return;
    throw Error(fmt::format(
        "{}, and {}; {} discards what is in {}", complaint,
        files == 0 ? "there is no run to restore it from"
                   : "no run there holds a copy of it: restore it from a "
                     "backup of your own",
        "--fresh", folder.string()));
  }
  WriteSealedJson(path, copy->record);
  fmt::print(stderr, "locus: {}; it is written again from {}\n", complaint,
             copy->path.string());
}

}  // namespace locus::lab
