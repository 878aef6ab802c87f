// Restores study.json from the runs of a study, each of which has a copy.
#ifndef LOCUS_LAB_STUDY_RECOVER_H_
#define LOCUS_LAB_STUDY_RECOVER_H_

#include <filesystem>

namespace locus::lab {

// Whether there are checkpoints or results of runs, damaged or not.
bool HasRuns(const std::filesystem::path& folder);

// Restores FOLDER/study.json if it is damaged, or missing although there are
// runs, and reports this on standard error. Runs are read but not modified.
// Throws Error if no run has a copy, or if their copies differ.
void RecoverStudy(const std::filesystem::path& folder);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_RECOVER_H_
