// Whether an MPI launcher (mpirun, mpiexec, srun) started this process, and how
// its ranks then work together.
#ifndef LOCUS_LAB_RANKS_LAUNCH_H_
#define LOCUS_LAB_RANKS_LAUNCH_H_

#include <functional>
#include <optional>

#include "lab/ranks/ranks.h"

namespace locus::lab {

struct Launch {
  int rank = 0;
  int size = 0;  // 0: the launcher did not say
};

// From the environment that launchers give to each process: MPI itself is not
// asked, so a program that is started by hand, or alone, never starts MPI.
// Nothing if there is no other process.
std::optional<Launch> FindLaunch();

// Calls `body` on every rank and returns its exit code. An Error, or a rank
// that failed, is said once, by the first rank; a lost rank by each that
// notices. A build without MPI says that it has none.
int RunOnRanks(const Launch& launch, double deadline_seconds,
               const std::function<int(const Ranks&)>& body);

}  // namespace locus::lab

#endif  // LOCUS_LAB_RANKS_LAUNCH_H_
