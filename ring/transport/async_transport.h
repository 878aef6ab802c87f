// Transfers messages while the caller computes.
//
// MPI makes progress on a message only while some thread is inside MPI. A
// thread of the transport polls at short intervals, so that blocks are
// transferred during long engine calls. A mutex serialises this thread and the
// caller, which requires MPI_THREAD_SERIALIZED. With less there is no thread,
// and messages make progress only in Wait.
#ifndef LOCUS_RING_TRANSPORT_ASYNC_TRANSPORT_H_
#define LOCUS_RING_TRANSPORT_ASYNC_TRANSPORT_H_

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "locus/ring_group.h"
#include "ring/transport/transfer.h"

namespace locus::ring {

// Several ranges of memory that are sent together, and their owner.
struct Message {
  std::vector<std::span<std::byte>> parts = {};
  std::shared_ptr<const void> memory = {};

  int64_t Bytes() const;
};

class AsyncTransport {
 public:
  using Request = std::shared_ptr<Transfer>;

  explicit AsyncTransport(const Group& group);
  ~AsyncTransport() { Stop(); }
  AsyncTransport(const AsyncTransport&) = delete;
  AsyncTransport& operator=(const AsyncTransport&) = delete;

  Request Send(const Message& message, int to, int tag);
  Request Receive(const Message& message, int from, int tag);
  // Returns when the request is complete; a null request is complete. Throws
  // LostRank after the deadline.
  void Wait(const Request& request, std::string_view what);

  // Ends the thread: afterwards only the caller uses MPI.
  void Stop();

  double wait_seconds() const { return wait_seconds_; }
  int64_t bytes_sent() const { return bytes_sent_; }

 private:
  template <typename Post>
  Request Start(const Message& message, const Post& post);
  void Run();

  const Group& group_;
  std::mutex mutex_;  // guards MPI and the members below
  std::condition_variable wake_;
  std::vector<Request> active_;
  std::exception_ptr failure_;
  bool stop_ = false;
  double wait_seconds_ = 0.0;
  int64_t bytes_sent_ = 0;
  std::thread thread_;
};

}  // namespace locus::ring

#endif  // LOCUS_RING_TRANSPORT_ASYNC_TRANSPORT_H_
