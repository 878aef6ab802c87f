#include "lab/ranks/mpi.h"

namespace locus::lab {
namespace {

// Translates LostRank to the lab's exception: its programs may lack MPI.
template <typename Call>
auto InStep(const Call& call) {
  try {
    return call();
  } catch (const ring::LostRank& e) {
    throw LostRanks(e.what());
  }
}

}  // namespace

void MpiRanks::Sum(std::span<float> values) const {
  InStep([&] { group_.Sum(values); });
}

void MpiRanks::Sum(std::span<double> values) const {
  InStep([&] { group_.Sum(values); });
}

std::vector<std::string> MpiRanks::Gather(std::string_view mine) const {
  return InStep([&] { return group_.Gather(mine); });
}

}  // namespace locus::lab
