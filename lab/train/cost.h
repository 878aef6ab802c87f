// What a training step costs in time and memory.
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
  double low = 0;      // the fastest step, and the slowest
  double high = 0;
  // Peak memory of a step beyond what the process held before it.
  int64_t peak_memory_bytes = 0;
};

// The cost of a step of each spec. Specs are interleaved for `rounds` rounds,
// after a warm-up round that is not counted, so that other load on the machine
// falls on all of them. Memory is that of the whole process: nothing else
// should run in it meanwhile.
std::vector<StepCost> MeasureSteps(std::span<const RunSpec> specs,
                                   const Corpus* corpus, int rounds);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_COST_H_
