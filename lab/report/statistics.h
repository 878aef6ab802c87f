// The uncertainty of a mean over seeds and sequences.
//
// Every encoding of a task is scored on the same blocks of sequences, and runs
// with the same seed share their data and initial values. Seeds and blocks are
// crossed, so both are resampled (Owen, "The pigeonhole bootstrap", 2007), with
// the same draws for every encoding: differences of two encodings are paired in
// both.
//
// A bootstrap over n seeds underestimates their variance by (n - 1) / n, and
// with few seeds the variance is uncertain: the interval is the mean plus or
// minus Student's t for n - 1 degrees of freedom times the corrected standard
// error. With one seed only blocks are resampled, and the interval applies to
// that one model.
#ifndef LOCUS_LAB_REPORT_STATISTICS_H_
#define LOCUS_LAB_REPORT_STATISTICS_H_

#include <cstdint>
#include <vector>

namespace locus::lab {

// A sum over a block's scored tokens, and their number.
struct BlockSum {
  double sum = 0;
  double tokens = 0;
};
// Indexed by seed, then block. Every seed has the same blocks.
using Scores = std::vector<std::vector<BlockSum>>;

// A mean, and the 95 % interval around it.
struct Interval {
  double mean = 0;
  double low = 0;
  double high = 0;

  bool ExcludesZero() const { return low > 0 || high < 0; }
};

// The mean over seeds of the mean per token. `scores` must not be empty.
Interval MeanInterval(const Scores& scores);

// The mean of `a` minus that of `b`, with the same seeds. If they have equally
// many blocks, these are paired as well.
Interval DifferenceInterval(const Scores& a, const Scores& b);

}  // namespace locus::lab

#endif  // LOCUS_LAB_REPORT_STATISTICS_H_
