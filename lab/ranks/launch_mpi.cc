// The ranks of MPI_COMM_WORLD.
#include <fmt/format.h>

#include "lab/ranks/launch.h"
#include "lab/ranks/mpi.h"
#include "locus/error.h"
#include "ring/cli/session.h"

namespace locus::lab {

int RunOnRanks(const Launch& launch, double deadline_seconds,
               const std::function<int(const Ranks&)>& body) {
  return ring::RunSession(deadline_seconds, [&] {
    const MpiRanks ranks(MPI_COMM_WORLD, deadline_seconds);
    // With the launcher of another MPI, each process is alone in its world.
    if (launch.size != 0 && launch.size != ranks.size()) {
      if (launch.rank != 0) return ring::StayQuiet();
      throw Error(fmt::format(
          "{} processes were started, but MPI finds {}; use the mpirun of the "
          "MPI that this program was built with",
          launch.size, ranks.size()));
    }
    try {
      return body(ranks);
    } catch (const LostRanks& e) {
      throw ring::LostRank(e.what());
    } catch (const RankFailed& e) {
      throw Error(e.what());
    }
  });
}

}  // namespace locus::lab
