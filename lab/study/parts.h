// What a study on one process and one on several ranks have in common.
#ifndef LOCUS_LAB_STUDY_PARTS_H_
#define LOCUS_LAB_STUDY_PARTS_H_

#include "lab/study/compare.h"
#include "lab/study/pool.h"
#include "lab/study/study.h"

namespace locus::lab {

// One line on standard error, before the work.
void SayWhatIsToDo(const CompareOptions& options, const Study& study);

// Writes the results, says what came out, returns the exit code. Throws Error.
int Conclude(const CompareOptions& options, const Study& study,
             const Outcome& outcome);

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_PARTS_H_
