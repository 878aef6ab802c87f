#include "ring/transport/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <thread>

#include "locus/ring_group.h"

namespace locus::ring {

void CheckMpi(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw LostRank(
      fmt::format("{} failed: {}; restart the ranks", what,
                  std::string_view(text.data(), static_cast<size_t>(length))));
}

Transfer::~Transfer() {
  for (const MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    // Kept until the program ends.
    static std::mutex mutex;
    static std::vector<std::shared_ptr<const void>> abandoned;
    const std::lock_guard lock(mutex);
    abandoned.push_back(std::move(memory_));
    return;
  }
}

bool Transfer::Test() {
  int over = 0;
  CheckMpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(),
                       &over, MPI_STATUSES_IGNORE),
           "a message between ranks");
  return over != 0;
}

void ThrowTimeout(const Group& group, std::string_view what) {
  throw LostRank(
      fmt::format("rank {} of {} waited {:g} s for {}: another rank has died, "
                  "stopped or needs a longer deadline",
                  group.rank(), group.size(), group.deadline_seconds(), what));
}

void Wait(Transfer& transfer, const Group& group, std::string_view what) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  while (!transfer.Test()) {
    const std::chrono::duration<double> waited = Clock::now() - start;
    if (waited.count() > group.deadline_seconds()) ThrowTimeout(group, what);
    Pause(waited.count());
  }
}

void Pause(double waited_seconds) {
  // Short waits end soon. During long ones, cores should be free for ranks that
  // compute: a rank sleeps for a fiftieth of the time that it has waited, so it
  // is at most 2 % late.
  constexpr double kShort = 1e-3, kShare = 0.02;
  constexpr double kShortestSleep = 1e-4, kLongestSleep = 1e-2;
  if (waited_seconds < kShort) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::duration<double>(
        std::clamp(kShare * waited_seconds, kShortestSleep, kLongestSleep)));
  }
}

}  // namespace locus::ring
