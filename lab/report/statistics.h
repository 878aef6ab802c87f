// How sure a mean over seeds and sequences is.
//
// Every encoding of a task is scored on the same blocks of sequences, and runs
// of one seed share their data and starting values. Seeds and blocks are
// crossed, so both are resampled (Owen, "The pigeonhole bootstrap", 2007), the
// same draws for every encoding: differences of two encodings are paired in
// both.
//
// A bootstrap over n seeds understates their variance by (n - 1) / n, and few
// seeds leave it uncertain: the interval is the mean and Student's t for n - 1
// degrees of freedom times the corrected standard error. With one seed only
// blocks are resampled: the interval then speaks of that one model.
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
// By seed, then block. Every seed has the same blocks.
using Scores = std::vector<std::vector<BlockSum>>;

// A mean, and the 95 % interval around it.
struct Interval {
  double mean = 0;
  double low = 0;
  double high = 0;

  bool ExcludesZero() const { return low > 0 || high < 0; }
};

// The mean over seeds of the mean per token. Not empty.
Interval MeanInterval(const Scores& scores);

// The mean of `a` minus that of `b`, of the same seeds. Where they have as many
// blocks, these are paired, too.
Interval DifferenceInterval(const Scores& a, const Scores& b);

}  // namespace locus::lab

#endif  // LOCUS_LAB_REPORT_STATISTICS_H_
