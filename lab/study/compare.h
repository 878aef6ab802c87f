// The command: starts or continues a study, and shows the results.
#ifndef LOCUS_LAB_STUDY_COMPARE_H_
#define LOCUS_LAB_STUDY_COMPARE_H_

#include "lab/ranks/ranks.h"
#include "lab/study/study.h"

namespace locus::lab {

// Exit codes: success; it ran and something failed; bad usage, input or disk;
// stopped by a signal.
inline constexpr int kSuccess = 0;
inline constexpr int kSomeFailed = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kInterrupted = 130;

// What to do if the folder already has a study.
enum class Existing : uint8_t {
  kRefuse,    // an unfinished one is an error; a finished one is moved aside
  kResume,    // continue it; options that were given must match
  kContinue,  // continue it if the settings match, otherwise as kRefuse
  kReplace,   // discard it
};

struct CompareOptions {
  StudyRequest request = {};
  Existing existing = Existing::kRefuse;
  int workers = 1;
  double save_every = 1.0;                // seconds between checkpoints
  bool json = false;                      // results to standard output
  std::vector<std::string> formats = {};  // of tables and charts to export
};

// Each returns an exit code or throws Error.
int Compare(const CompareOptions& options);
// Collective: the ranks train each run together, one run after another. Only
// the first rank accesses the folder, prints and measures; its exit code is
// that of all.
int CompareOnRanks(const CompareOptions& options, const Ranks& ranks);
int Redraw(const CompareOptions& options);                        // --plot-only
int ShowPlan(const CompareOptions& options, const Ranks& ranks);  // --dry-run

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_COMPARE_H_
