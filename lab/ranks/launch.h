// Detects whether an MPI launcher (mpirun, mpiexec, srun) started this process,
// and runs the program on its ranks.
#ifndef LOCUS_LAB_RANKS_LAUNCH_H_
#define LOCUS_LAB_RANKS_LAUNCH_H_

#include <functional>
#include <optional>

#include "lab/ranks/ranks.h"

namespace locus::lab {

struct Launch {
  int rank = 0;
  int size = 0;  // 0: the launcher does not say
};

// Uses only the environment that launchers set: MPI itself is not involved, so
// a program that is started without a launcher, or as a single process, never
// initialises MPI. Returns nothing if there is no other process.
std::optional<Launch> FindLaunch();

// Calls `body` on every rank and returns its exit code. An Error, or a rank
// that failed, is reported once, by the first rank; a lost rank by every rank
// that notices. A build without MPI reports that it has none.
int RunOnRanks(const Launch& launch, double deadline_seconds,
               const std::function<int(const Ranks&)>& body);

}  // namespace locus::lab

#endif  // LOCUS_LAB_RANKS_LAUNCH_H_
