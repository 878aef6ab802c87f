// Messages in flight, and waiting for them with a deadline.
#ifndef LOCUS_RING_TRANSPORT_TRANSFER_H_
#define LOCUS_RING_TRANSPORT_TRANSFER_H_

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace locus::ring {

// Throws LostRank with MPI's error message for a code other than MPI_SUCCESS.
void CheckMpi(int code, std::string_view what);

// MPI requests and the memory that they read and write. If they are incomplete
// on destruction (a peer died, an exception was thrown), MPI may still use that
// memory, which is then kept until the program ends.
class Transfer {
 public:
  // The memory is passed first, so that no request exists without it.
  explicit Transfer(std::shared_ptr<const void> memory)
      : memory_(std::move(memory)) {}
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Storage for one more request.
  MPI_Request* Next() {
    requests_.push_back(MPI_REQUEST_NULL);
    return &requests_.back();
  }
  // Whether all are complete; lets MPI make progress. Throws LostRank if MPI
  // failed.
  bool Test();

 private:
  std::vector<MPI_Request> requests_;
  std::shared_ptr<const void> memory_;
};

// Polls until the transfer is complete. Throws LostRank after the group's
// deadline, saying who waited for what: "rank 1 of 4 waited 30 s for ...".
class Group;
void Wait(Transfer& transfer, const Group& group, std::string_view what);

// Sleeps between two polls, longer the longer the wait has been.
void Pause(double waited_seconds);

// Throws that error, for callers that wait in another way.
[[noreturn]] void ThrowTimeout(const Group& group, std::string_view what);

}  // namespace locus::ring

#endif  // LOCUS_RING_TRANSPORT_TRANSFER_H_
