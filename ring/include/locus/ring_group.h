// A group of MPI ranks and its collective operations. Every wait has a
// deadline; sums are bitwise reproducible from run to run.
#ifndef LOCUS_RING_GROUP_H_
#define LOCUS_RING_GROUP_H_

#include <mpi.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "locus/api.h"
#include "locus/error.h"

namespace locus {
namespace LOCUS_API ring {

// Communication has failed: a rank died or hangs, or MPI failed. The caller can
// only report it and call MPI_Abort: MPI_Finalize would wait forever.
class LostRank : public Error {
 public:
  using Error::Error;
};

// How long a rank waits for the others before it gives up. Must be longer than
// the slowest rank computes between two messages, since a busy rank is not
// dead.
inline constexpr double kDeadlineSeconds = 300.0;

// The ranks of a communicator, which must outlive the group. While the group
// exists, MPI errors on it are returned instead of ending the program.
//
// If a wait exceeds the deadline, or MPI fails, functions throw LostRank.
class Group {
 public:
  explicit Group(MPI_Comm comm, double deadline_seconds = kDeadlineSeconds);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm comm() const { return comm_; }
  double deadline_seconds() const { return deadline_seconds_; }

  // Returns when every rank has called it.
  void Barrier() const;
  // The strings of all ranks, indexed by rank; lengths may differ.
  std::vector<std::string> Gather(std::string_view mine) const;
  // Sums the numbers of all ranks in place, element by element: rank 0 + rank 1
  // + ..., in float64, rounded once. Sizes must be the same on every rank.
  void Sum(std::span<float> values) const;
  void Sum(std::span<double> values) const;

 private:
  MPI_Comm comm_;
  MPI_Errhandler previous_ = MPI_ERRHANDLER_NULL;
  int rank_ = 0;
  int size_ = 1;
  double deadline_seconds_;
};

}  // namespace ring
}  // namespace locus

#endif  // LOCUS_RING_GROUP_H_
