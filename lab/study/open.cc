#include "lab/study/open.h"

#include <fmt/format.h>

#include <utility>

#include "lab/study/recover.h"
#include "lab/study/stop.h"
#include "locus/error.h"

namespace locus::lab {
namespace {

namespace fs = std::filesystem;

Study Begin(const CompareOptions& options) {
  Study study = MakeStudy(options.request);
  ClearFolder(options.request.folder);
  SaveStudy(study);
  return study;
}

Study Resume(const CompareOptions& options) {
  RecoverStudy(options.request.folder);
  auto stored = OpenStudy(options.request.folder);
  if (!stored) {
    throw Error(
        fmt::format("there is no study in {} to resume; start one "
                    "without --resume",
                    options.request.folder.string()));
  }
  Given given = stored->given;
  for (const auto& [name, value] : StudyOptions(options.request.given)) {
    given[name] = value;
  }
  const std::string difference =
      Difference(*stored, given, options.request.ranks);
  if (!difference.empty()) {
    throw Error(fmt::format(
        "the study in {} has other settings: {}; make that the same, or start "
        "over with --fresh",
        options.request.folder.string(), difference));
  }
  return std::move(*stored);
}

// Whether the folder has a finished study of this version, or nothing to lose.
bool MayReplace(const fs::path& folder) {
  const fs::path path = folder / "results.json";
  if (!fs::exists(folder / "study.json") && !HasRuns(folder)) return true;
  if (!fs::exists(path)) return false;
  const Json results =
      Json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
  return IsFinished(results);
}

[[noreturn]] void RefuseUnfinished(const CompareOptions& options,
                                   const std::string& why) {
  throw Error(fmt::format(
      "{} holds an unfinished study{}; continue it with --resume, discard it "
      "with --fresh, or choose another folder by --out",
      options.request.folder.string(), why));
}

Study Open(const CompareOptions& options) {
  switch (options.existing) {
    case Existing::kResume:
      return Resume(options);
    case Existing::kReplace:
      return Begin(options);
    case Existing::kContinue: {
      RecoverStudy(options.request.folder);
      if (!fs::exists(options.request.folder / "study.json"))
        return Begin(options);
      const bool replaceable = MayReplace(options.request.folder);
      const auto stored = OpenStudy(options.request.folder);
      const std::string difference =
          Difference(*stored, options.request.given, options.request.ranks);
      if (difference.empty()) return *stored;
      if (replaceable) return Begin(options);
      RefuseUnfinished(options,
                       fmt::format(" of other settings ({})", difference));
    }
    case Existing::kRefuse:
      break;
  }
  if (!MayReplace(options.request.folder)) RefuseUnfinished(options, "");
  return Begin(options);
}

// Checks the options before anything on disk is touched.
fs::path MakeFolderFor(const CompareOptions& options) {
  Resolve(options.request.given);
  MakeFolder(options.request.folder);
  return options.request.folder;
}

}  // namespace

OpenedStudy::OpenedStudy(const CompareOptions& options)
    : lock_(MakeFolderFor(options)) {
  // Until here, a signal simply ends the program.
  InstallSignalHandlers(/*interrupt=*/true);
  study_ = Open(options);
  RemoveUnfinished(study_.folder);
  CheckRuns(study_);
  MakeFolder(study_.folder / "runs");
}

}  // namespace locus::lab
