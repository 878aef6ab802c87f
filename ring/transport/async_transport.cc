#include "ring/transport/async_transport.h"

#include <algorithm>
#include <chrono>

namespace locus::ring {
namespace {

using Clock = std::chrono::steady_clock;

// Polling interval. A poll that finds nothing takes about 1 us: 0.5 % of a
// core. Meanwhile a network of 10 GB/s fills 2 MB of its buffers.
constexpr auto kInterval = std::chrono::microseconds(200);

// MPI counts are int; and a poll copies at most this much of a message between
// processes of one machine, so that the caller never waits long for the mutex.
constexpr size_t kPieceBytes = size_t{1} << 24;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

int64_t Message::Bytes() const {
  int64_t bytes = 0;
  for (const auto& part : parts) bytes += static_cast<int64_t>(part.size());
  return bytes;
}

AsyncTransport::AsyncTransport(const Group& group) : group_(group) {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_SERIALIZED && group.size() > 1) {
    thread_ = std::thread([this] { Run(); });
  }
}

void AsyncTransport::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

template <typename Post>
AsyncTransport::Request AsyncTransport::Start(const Message& message,
                                              const Post& post) {
  auto request = std::make_shared<Transfer>(message.memory);
  {
    const std::lock_guard lock(mutex_);
    for (std::span<std::byte> part : message.parts) {
      while (!part.empty()) {
        const size_t size = std::min(part.size(), kPieceBytes);
        CheckMpi(post(part.data(), static_cast<int>(size), request->Next()),
                 "a message between ranks");
        part = part.subspan(size);
      }
    }
    active_.push_back(request);
  }
  wake_.notify_one();
  return request;
}

AsyncTransport::Request AsyncTransport::Send(const Message& message, int to,
                                             int tag) {
  bytes_sent_ += message.Bytes();
  return Start(message, [&](const void* data, int size, MPI_Request* request) {
    return MPI_Isend(data, size, MPI_BYTE, to, tag, group_.comm(), request);
  });
}

AsyncTransport::Request AsyncTransport::Receive(const Message& message,
                                                int from, int tag) {
  return Start(message, [&](void* data, int size, MPI_Request* request) {
    return MPI_Irecv(data, size, MPI_BYTE, from, tag, group_.comm(), request);
  });
}

void AsyncTransport::Wait(const Request& request, std::string_view what) {
  if (request == nullptr) return;
  const auto start = Clock::now();
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) std::rethrow_exception(failure_);
      // Tests every message, not only this one, so that the others make
      // progress.
      std::erase_if(active_, [](const Request& t) { return t->Test(); });
      if (request->Test()) break;
    }
    const double waited = SecondsSince(start);
    if (waited > group_.deadline_seconds()) ThrowTimeout(group_, what);
    Pause(waited);
  }
  wait_seconds_ += SecondsSince(start);
}

void AsyncTransport::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (active_.empty() || failure_) {
      wake_.wait(lock);
      continue;
    }
    try {
      std::erase_if(active_, [](const Request& t) { return t->Test(); });
    } catch (...) {
      failure_ = std::current_exception();  // rethrown by Wait
    }
    wake_.wait_for(lock, kInterval, [this] { return stop_; });
  }
}

}  // namespace locus::ring
