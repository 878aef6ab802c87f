// study.json written again from the runs of a study: each of them carries a
// copy of it.
#ifndef LOCUS_LAB_STUDY_RECOVER_H_
#define LOCUS_LAB_STUDY_RECOVER_H_

#include <filesystem>

namespace locus::lab {

// Whether there are checkpoints or results of runs, damaged or not.
bool HasRuns(const std::filesystem::path& folder);

// Makes FOLDER/study.json whole if it is damaged, or missing while there are
// runs, and says so on standard error. Runs are read and left as they are.
// Throws Error if no run has a copy or their copies differ.
void RecoverStudy(const std::filesystem::path& folder);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_RECOVER_H_
