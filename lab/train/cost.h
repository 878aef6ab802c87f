// The time and memory of a training step.
#ifndef LOCUS_LAB_TRAIN_COST_H_
#define LOCUS_LAB_TRAIN_COST_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lab/tasks/corpus.h"
#include "lab/train/run.h"

namespace locus::lab {

struct StepCost {
  double seconds = 0;  // median
  double low = 0;      // the fastest and the slowest step
  double high = 0;
  // Peak memory of a step beyond what the process held before it.
  int64_t peak_memory_bytes = 0;
};

// The cost of a step of each spec. Specs are interleaved for `rounds` rounds,
// after an uncounted warm-up round, so that other load on the machine affects
// all of them. Memory is that of the whole process, in which nothing else
// should run.
std::vector<StepCost> MeasureSteps(std::span<const RunSpec> specs,
                                   const Corpus* corpus, int rounds);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_COST_H_
