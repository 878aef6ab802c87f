// The machine's peak rates, measured, as a yardstick for benchmarks.
#ifndef LOCUS_MACHINE_H_
#define LOCUS_MACHINE_H_

#include "locus/api.h"

namespace LOCUS_API locus {

// Rates of all threads together: the best of several short runs.
struct MachineLimits {
  double fma_gflops = 0.0;       // float32 multiply-adds, two operations each
  double read_gb_per_s = 0.0;    // reading 64 MiB per thread
  double copy_gb_per_s = 0.0;    // copying them, bytes read plus bytes written
  double update_gb_per_s = 0.0;  // adding in place, read plus written
};

// Takes about a tenth of a second. threads = 0: UsableCpus().
MachineLimits MeasureMachine(int threads = 0);

// The FMA rate alone, in a few milliseconds: to be interleaved with the code
// under measurement.
double MeasureFmaGflops(int threads = 0);

}  // namespace locus

#endif  // LOCUS_MACHINE_H_
