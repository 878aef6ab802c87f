// Ranks implemented with MPI.
#ifndef LOCUS_LAB_RANKS_MPI_H_
#define LOCUS_LAB_RANKS_MPI_H_

#include "lab/ranks/ranks.h"
#include "locus/ring_group.h"

namespace locus::lab {

// The ranks of a communicator, which must outlive this object.
class MpiRanks : public Ranks {
 public:
  MpiRanks(MPI_Comm comm, double deadline_seconds)
      : group_(comm, deadline_seconds) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void Sum(std::span<float> values) const override;
  void Sum(std::span<double> values) const override;
  std::vector<std::string> Gather(std::string_view mine) const override;

 private:
  ring::Group group_;
};

}  // namespace locus::lab

#endif  // LOCUS_LAB_RANKS_MPI_H_
