// Numbered tasks on several threads, and the workers that run them.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/threads.h"
#include "locus/threads.h"

namespace locus::testing {
namespace {

// As with OpenMP, the body must not throw.
void ThreadsOfMine(int threads, void (*body)(void*), void* argument) {
  const auto run = [&]() noexcept { body(argument); };
  std::vector<std::thread> others;
  for (int n = 1; n < threads; ++n) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
}

// With the library's own threads and with a backend of the program.
class ParallelForTest : public ::testing::TestWithParam<ParallelBackend> {
 protected:
  void SetUp() override { SetParallelBackend(GetParam()); }
  void TearDown() override { SetParallelBackend(nullptr); }
};

TEST_P(ParallelForTest, RunsEachTaskOnce) {
  for (int threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> runs(100);
    ParallelFor(100, threads,
                [&](int64_t at) noexcept { ++runs[static_cast<size_t>(at)]; });
    for (const auto& count : runs) EXPECT_EQ(count, 1) << threads;
  }
}

// State of a worker is used by one task at a time.
TEST_P(ParallelForTest, NoTwoTasksShareAWorker) {
  for (int threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> busy(static_cast<size_t>(threads));
    std::atomic<int> shared{0}, outside{0}, runs{0};
    ParallelFor(500, threads, [&](int64_t, int worker) noexcept {
      if (worker < 0 || worker >= threads) {
        ++outside;
        return;
      }
      std::atomic<int>& mine = busy[static_cast<size_t>(worker)];
      if (++mine > 1) ++shared;
      std::this_thread::yield();
      --mine;
      ++runs;
    });
    EXPECT_EQ(outside, 0) << threads;
    EXPECT_EQ(shared, 0) << threads;
    EXPECT_EQ(runs, 500) << threads;
  }
}

// A nested task runs on the same thread, as the only worker.
TEST_P(ParallelForTest, NestedTasksStayOnTheirThread) {
  std::atomic<int> elsewhere{0}, runs{0};
  ParallelFor(4, 2, [&](int64_t) noexcept {
    const auto self = std::this_thread::get_id();
    ParallelFor(4, 2, [&](int64_t, int worker) noexcept {
      if (worker != 0 || std::this_thread::get_id() != self) ++elsewhere;
      ++runs;
    });
  });
  EXPECT_EQ(elsewhere, 0);
  EXPECT_EQ(runs, 16);
}

TEST_P(ParallelForTest, TwoTasksRunAtOnce) {
  std::atomic<int> here{0};
  std::atomic<bool> met{false};
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  ParallelFor(2, 2, [&](int64_t) noexcept {
    ++here;
    while (!met && std::chrono::steady_clock::now() < deadline) {
      if (here == 2) met = true;
      std::this_thread::yield();
    }
  });
  EXPECT_TRUE(met) << "both tasks ran on one thread";
}

TEST_P(ParallelForTest, ManyCallersAtOnce) {
  std::atomic<int64_t> sum{0};
  const auto call = [&] {
    for (int round = 0; round < 300; ++round) {
      ParallelFor(16, 3, [&](int64_t at) noexcept { sum += at; });
    }
  };
  std::vector<std::thread> callers;
  for (int who = 0; who < 4; ++who) callers.emplace_back(call);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 300 * 4 * 120);
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelForTest,
                         ::testing::Values(OwnThreads, ThreadsOfMine),
                         [](const auto& info) {
                           return info.param == OwnThreads ? "Own" : "Mine";
                         });

// If the system cannot start threads, existing ones do the work.
TEST(PoolTest, FewerThreadsWhereNoneCanBeStarted) {
  pthread_attr_t before, impossible;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&impossible), 0);
  // A stack that does not fit the address space.
  ASSERT_EQ(pthread_attr_setstacksize(&impossible, size_t{1} << 47), 0);
  ASSERT_EQ(pthread_setattr_default_np(&impossible), 0);
  std::atomic<int> runs{0};
  SetParallelBackend(OwnThreads);
  // More than any previous test has requested.
  EXPECT_NO_THROW(ParallelFor(100, 64, [&](int64_t) noexcept { ++runs; }));
  SetParallelBackend(nullptr);
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  EXPECT_EQ(runs, 100);
  pthread_attr_destroy(&before);
  pthread_attr_destroy(&impossible);
}

}  // namespace
}  // namespace locus::testing
