// The study that the options ask for, begun or found in its folder.
#ifndef LOCUS_LAB_STUDY_OPEN_H_
#define LOCUS_LAB_STUDY_OPEN_H_

#include "lab/study/compare.h"
#include "lab/study/store.h"
#include "lab/study/study.h"

namespace locus::lab {

// Nobody else writes to the folder as long as it lives. From then on, a signal
// is a wish to stop (compare_stop.h).
class OpenedStudy {
 public:
  // Throws Error; a study that may not be replaced stays as it is.
  explicit OpenedStudy(const CompareOptions& options);

  const Study& study() const { return study_; }

 private:
  FolderLock lock_;
  Study study_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_OPEN_H_
