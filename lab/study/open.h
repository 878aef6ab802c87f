// The study that the options describe, newly created or found in its folder.
#ifndef LOCUS_LAB_STUDY_OPEN_H_
#define LOCUS_LAB_STUDY_OPEN_H_

#include "lab/study/compare.h"
#include "lab/study/store.h"
#include "lab/study/study.h"

namespace locus::lab {

// Holds the folder's lock during its lifetime. From construction on, a signal
// is a request to stop (stop.h).
class OpenedStudy {
 public:
  // Throws Error; a study that may not be replaced remains unchanged.
  explicit OpenedStudy(const CompareOptions& options);

  const Study& study() const { return study_; }

 private:
  FolderLock lock_;
  Study study_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_OPEN_H_
