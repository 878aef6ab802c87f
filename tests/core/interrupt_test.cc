#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "core/threads.h"
#include "locus/threads.h"

namespace locus {
namespace {

struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

thread_local int checks = 0;
void Count() { ++checks; }
void Throw() { throw Interrupted(); }

// Sets a check, and takes it back.
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
  ParallelFor(7, /*threads=*/1, [](int64_t) {});
  EXPECT_EQ(checks, 7);
  CheckInterrupt();
  EXPECT_EQ(checks, 8);
}

TEST(InterruptTest, WhatTheCheckThrowsEndsTheCall) {
  for (const int threads : {1, 2, 4}) {
    std::atomic<int64_t> done = 0;
    const auto caller = std::this_thread::get_id();
    const auto task = [&](int64_t) {
      // Leaves tasks for the caller.
      if (std::this_thread::get_id() != caller) std::this_thread::yield();
      ++done;
    };
    {
      const Checking checking(&Throw);
      EXPECT_THROW(ParallelFor(1 << 20, threads, task), Interrupted);
    }
    EXPECT_LT(done, 1 << 20);
    done = 0;
    ParallelFor(1000, threads, task);
    EXPECT_EQ(done, 1000);
  }
}

// A task that would go on for an hour on another thread ends soon after the
// caller's has thrown.
TEST(InterruptTest, LongTasksOfHelpersEndToo) {
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> helped = false, ended = false;
  const auto soon = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto task = [&](int64_t) {
    if (std::this_thread::get_id() == caller) {
      while (!helped && std::chrono::steady_clock::now() < soon) {
        std::this_thread::yield();
      }
      throw Interrupted();
    }
    helped = true;
    try {
      while (std::chrono::steady_clock::now() < soon) CheckInterrupt();
    } catch (...) {
      ended = true;
      throw;
    }
  };
  EXPECT_THROW(ParallelFor(2, /*threads=*/2, task), Interrupted);
  EXPECT_EQ(helped, ended);
}

TEST(InterruptTest, OtherThreadsHaveNone) {
  const Checking checking(&Throw);
  std::thread([] { CheckInterrupt(); }).join();
  EXPECT_THROW(CheckInterrupt(), Interrupted);
}

}  // namespace
}  // namespace locus
