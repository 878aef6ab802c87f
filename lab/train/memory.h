// The memory of this process, as measured by the system.
#ifndef LOCUS_LAB_TRAIN_MEMORY_H_
#define LOCUS_LAB_TRAIN_MEMORY_H_

#include <cstdint>

namespace locus::lab {

// Resident bytes of the process, and their maximum since the last reset (not
// that of getrusage, which includes the time before exec).
int64_t ResidentBytes();
int64_t PeakBytes();

// Returns freed memory to the system and restarts the maximum at the current
// size.
void ResetPeak();

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_MEMORY_H_
