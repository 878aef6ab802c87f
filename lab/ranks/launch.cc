#include "lab/ranks/launch.h"

#include <cstdlib>
#include <string>

namespace locus::lab {
namespace {

// The environment variables that a launcher sets in each process: Open MPI;
// MPICH, Intel MPI and srun with PMI; others with PMIx, which has no variable
// for the size.
struct Variables {
  const char* rank;
  const char* size;
};
constexpr Variables kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"PMIX_RANK", nullptr},
};

}  // namespace

std::optional<Launch> FindLaunch() {
  for (const auto& [rank, size] : kLaunchers) {
    const char* given = std::getenv(rank);
    const char* of = size == nullptr ? nullptr : std::getenv(size);
    if (given == nullptr || (size != nullptr && of == nullptr)) continue;
    const Launch launch{.rank = std::atoi(given),
                        .size = of == nullptr ? 0 : std::atoi(of)};
    if (launch.size == 1) return {};
    return launch;
  }
  return {};
}

}  // namespace locus::lab
