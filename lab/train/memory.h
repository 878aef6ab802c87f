// The memory of this process, as the system counts it.
#ifndef LOCUS_LAB_TRAIN_MEMORY_H_
#define LOCUS_LAB_TRAIN_MEMORY_H_

#include <cstdint>

namespace locus::lab {

// Bytes that the process holds, and the most that it held since the last reset
// (not that of getrusage, which includes the process before exec).
int64_t ResidentBytes();
int64_t PeakBytes();

// Gives freed memory back to the system and restarts the peak from what is
// held.
void ResetPeak();

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_MEMORY_H_
