// Numbered tasks on threads, and what becomes of exceptions in them.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/threads.h"
#include "locus/threads.h"

namespace locus::testing {
namespace {

// As OpenMP does it: nothing may be thrown out of the body.
void ThreadsOfMine(int threads, void (*body)(void*), void* argument) {
  const auto run = [&]() noexcept { body(argument); };
  std::vector<std::thread> others;
  for (int n = 1; n < threads; ++n) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
}

// On the engine's own threads and on those of a program.
class ParallelForTest : public ::testing::TestWithParam<ParallelBackend> {
 protected:
  void SetUp() override { SetParallelBackend(GetParam()); }
  void TearDown() override { SetParallelBackend(nullptr); }
};

TEST_P(ParallelForTest, RunsEachTaskOnce) {
  for (int threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> runs(100);
    ParallelFor(100, threads,
                [&](int64_t at) { ++runs[static_cast<size_t>(at)]; });
    for (const auto& count : runs) EXPECT_EQ(count, 1) << threads;
  }
}

TEST_P(ParallelForTest, ThrowsWhatATaskThrows) {
  for (int threads : {1, 2, 4}) {
    for (int64_t bad = 0; bad < 40; ++bad) {
      std::string message;
      try {
        ParallelFor(40, threads, [&](int64_t at) {
          if (at == bad) throw std::runtime_error(std::to_string(at));
        });
      } catch (const std::runtime_error& error) {
        message = error.what();
      }
      EXPECT_EQ(message, std::to_string(bad)) << threads;
    }
  }
}

TEST_P(ParallelForTest, EveryTaskMayThrow) {
  for (int round = 0; round < 200; ++round) {
    EXPECT_THROW(
        ParallelFor(64, 4, [](int64_t) { throw std::runtime_error("always"); }),
        std::runtime_error);
  }
}

// Whoever throws, no task may run after the call has returned: what it refers
// to is gone.
TEST_P(ParallelForTest, WaitsForOthersBeforeItThrows) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> running{0};
    EXPECT_THROW(ParallelFor(8, 4,
                             [&](int64_t at) {
                               if (at == round % 4) {
                                 throw std::runtime_error("one");
                               }
                               ++running;
                               std::this_thread::yield();
                               --running;
                             }),
                 std::runtime_error);
    EXPECT_EQ(running, 0);
  }
}

TEST_P(ParallelForTest, HandsOutNoTasksAfterAnException) {
  std::atomic<int> begun{0};
  EXPECT_THROW(ParallelFor(1 << 20, 2,
                           [&](int64_t) {
                             ++begun;
                             throw std::runtime_error("at once");
                           }),
               std::runtime_error);
  EXPECT_LE(begun, 2);
}

// A task inside a task runs on its own thread. After an exception the calling
// thread is outside again: helpers join the next call.
TEST_P(ParallelForTest, CallsAfterAnExceptionRunOnAllThreads) {
  EXPECT_THROW(
      ParallelFor(2, 2, [](int64_t) { throw std::runtime_error("first"); }),
      std::runtime_error);
  std::atomic<int> here{0};
  std::atomic<bool> met{false};
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  ParallelFor(2, 2, [&](int64_t) {
    ++here;
    while (!met && std::chrono::steady_clock::now() < deadline) {
      if (here == 2) met = true;
      std::this_thread::yield();
    }
  });
  EXPECT_TRUE(met) << "both tasks ran on one thread";
}

TEST_P(ParallelForTest, NestedTasksThrowThroughBoth) {
  EXPECT_THROW(ParallelFor(4, 2,
                           [](int64_t) {
                             ParallelFor(4, 2, [](int64_t at) {
                               if (at == 3) throw std::runtime_error("inner");
                             });
                           }),
               std::runtime_error);
}

// Nothing but what lives in the process may be thrown away or left behind: many
// callers, some of whose tasks throw.
TEST_P(ParallelForTest, ManyCallersAtOnce) {
  std::atomic<int> failed{0};
  std::atomic<int64_t> sum{0};
  const auto call = [&](int who) {
    for (int round = 0; round < 300; ++round) {
      try {
        ParallelFor(16, 3, [&](int64_t at) {
          if (who % 2 == 1) {
            sum += at;
          } else if (at == 15) {
            throw std::runtime_error("last");
          }
        });
      } catch (const std::runtime_error&) {
        ++failed;
      }
    }
  };
  std::vector<std::thread> callers;
  for (int who = 0; who < 4; ++who) callers.emplace_back(call, who);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failed, 600);
  EXPECT_EQ(sum, 300 * 2 * 120) << "calls without an exception ran every task";
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelForTest,
                         ::testing::Values(OwnThreads, ThreadsOfMine),
                         [](const auto& info) {
                           return info.param == OwnThreads ? "Own" : "Mine";
                         });

// Where the system gives no threads, those that are there do the work.
TEST(PoolTest, FewerThreadsWhereNoneCanBeStarted) {
  pthread_attr_t before, impossible;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&impossible), 0);
  // A stack that does not fit the address space.
  ASSERT_EQ(pthread_attr_setstacksize(&impossible, size_t{1} << 47), 0);
  ASSERT_EQ(pthread_setattr_default_np(&impossible), 0);
  std::atomic<int> runs{0};
  SetParallelBackend(OwnThreads);
  // More than any test before has asked for.
  EXPECT_NO_THROW(ParallelFor(100, 64, [&](int64_t) { ++runs; }));
  SetParallelBackend(nullptr);
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  EXPECT_EQ(runs, 100);
  pthread_attr_destroy(&before);
  pthread_attr_destroy(&impossible);
}

}  // namespace
}  // namespace locus::testing
