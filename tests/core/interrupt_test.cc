#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "core/threads.h"
#include "locus/threads.h"

namespace locus {
namespace {

struct Stop : std::runtime_error {
  Stop() : std::runtime_error("stop") {}
};

thread_local int checks = 0;
void Count() { ++checks; }
void Throw() { throw Stop(); }

// Sets a check, and restores the previous one.
class Checking {
 public:
  explicit Checking(InterruptCheck check) : outer_(SetInterruptCheck(check)) {}
  ~Checking() { SetInterruptCheck(outer_); }

 private:
  const InterruptCheck outer_;
};

TEST(InterruptTest, CallerChecksBeforeEachOfItsTasks) {
  const Checking checking(&Count);
  checks = 0;
  ParallelFor(7, /*threads=*/1, [](int64_t) noexcept {});
  EXPECT_EQ(checks, 7);
  CheckInterrupt();
  EXPECT_EQ(checks, 8);
}

TEST(InterruptTest, WhatTheCheckThrowsEndsTheCall) {
  for (const int threads : {1, 2, 4}) {
    std::atomic<int64_t> done = 0;
    const auto caller = std::this_thread::get_id();
    const auto task = [&](int64_t) noexcept {
      // Leaves tasks for the caller.
      if (std::this_thread::get_id() != caller) std::this_thread::yield();
      ++done;
    };
    {
      const Checking checking(&Throw);
      EXPECT_THROW(ParallelFor(1 << 20, threads, task), Stop);
    }
    EXPECT_LT(done, 1 << 20);
    done = 0;
    ParallelFor(1000, threads, task);
    EXPECT_EQ(done, 1000);
  }
}

// Throws once the helper of the next test is running.
std::atomic<bool> helped = false;
void ThrowOnceHelped() {
  if (helped) throw Stop();
}

// A task that would run for an hour on another thread ends soon after the
// caller's check has thrown, and the caller's own task ends at once.
TEST(InterruptTest, LongTasksEndEarly) {
  const Checking checking(&ThrowOnceHelped);
  const auto caller = std::this_thread::get_id();
  std::atomic<int> ended = 0;
  helped = false;
  const auto soon = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto task = [&](int64_t) noexcept {
    if (std::this_thread::get_id() != caller) helped = true;
    while (std::chrono::steady_clock::now() < soon) {
      if (Interrupted()) {
        ++ended;
        return;
      }
      std::this_thread::yield();
    }
  };
  EXPECT_THROW(ParallelFor(2, /*threads=*/2, task), Stop);
  EXPECT_EQ(ended, 2);
}

// Nested tasks stop as well, and the outermost call throws.
TEST(InterruptTest, NestedCallsReturnEarly) {
  const Checking checking(&Throw);
  std::atomic<int> runs = 0;
  EXPECT_THROW(ParallelFor(1, /*threads=*/1,
                           [&](int64_t) noexcept {
                             ParallelFor(8, /*threads=*/1,
                                         [&](int64_t) noexcept { ++runs; });
                           }),
               Stop);
  EXPECT_EQ(runs, 0);
  EXPECT_FALSE(Interrupted()) << "outside of tasks";
}

TEST(InterruptTest, OtherThreadsHaveNone) {
  const Checking checking(&Throw);
  std::thread([] { CheckInterrupt(); }).join();
  EXPECT_THROW(CheckInterrupt(), Stop);
}

}  // namespace
}  // namespace locus
