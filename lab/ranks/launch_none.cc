// For builds without MPI: several processes must not start the same study.
#include <fmt/format.h>
#include <unistd.h>

#include "lab/ranks/launch.h"
#include "lab/study/compare.h"

namespace locus::lab {

int RunOnRanks(const Launch& launch, double /*deadline_seconds*/,
               const std::function<int(const Ranks&)>& /*body*/) {
  if (launch.rank == 0) {
    fmt::print(
        stderr,
        "locus: started as one of {} processes, but this build of locus "
        "compare has no MPI; start it alone, or build it with -DLOCUS_RING=ON "
        "as well\n",
        launch.size == 0 ? "several" : fmt::format("{}", launch.size));
  } else {
    sleep(1);  // a launcher may drop the first one's output when others end
  }
  return kBadInput;
}

}  // namespace locus::lab
