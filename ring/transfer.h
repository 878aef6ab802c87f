// Messages under way, and waiting for them no longer than a deadline.
#ifndef LOCUS_RING_TRANSFER_H_
#define LOCUS_RING_TRANSFER_H_

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace locus::ring {

// Throws LostRank with MPI's own words for a code other than MPI_SUCCESS.
void CheckMpi(int code, std::string_view what);

// Requests of MPI, with the memory that they read and write. If they are not
// over when the transfer goes (a peer died, the engine threw), MPI may still
// use that memory: it is then kept until the program ends.
class Transfer {
 public:
  // The memory comes first, so that no request is without.
  explicit Transfer(std::shared_ptr<const void> memory)
      : memory_(std::move(memory)) {}
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // The place for one more request.
  MPI_Request* Next() {
    requests_.push_back(MPI_REQUEST_NULL);
    return &requests_.back();
  }
  // Whether all is over; lets MPI work on it. Throws LostRank if MPI failed.
  bool Test();

 private:
  std::vector<MPI_Request> requests_;
  std::shared_ptr<const void> memory_;
};

// Tests until it is over. Throws LostRank after `deadline_seconds`, saying who
// waited for what: "rank 1 of 4 waited 30 s for ...".
class Group;
void Wait(Transfer& transfer, const Group& group, std::string_view what);

// Between two tests, after so long a wait.
void Pause(double waited_seconds);

// That error, for those who wait in another way.
[[noreturn]] void ThrowTimeout(const Group& group, std::string_view what);

}  // namespace locus::ring

#endif  // LOCUS_RING_TRANSFER_H_
