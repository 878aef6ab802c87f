// The library in a process with an OpenMP runtime. Built twice: one program
// links OpenMP, the other loads a runtime after the library has already run
// without one, as a Python module does. LOCUS_OPENMP_LIBRARY names a runtime
// other than GNU's to load.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "core/threads.h"
#include "locus/locus.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

using std::chrono::steady_clock;

int (*omp_in_parallel)() = nullptr;
void (*gomp_parallel)(void (*)(void*), void*, unsigned int,
                      unsigned int) = nullptr;

// A parallel region of the program itself.
template <typename Body>
void Region(int threads, const Body& body) {
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
  body();
#else
  using Pointer = const Body*;
  Pointer pointer = &body;
  gomp_parallel([](void* mine) { (**static_cast<Pointer*>(mine))(); }, &pointer,
                static_cast<unsigned int>(threads), 0);
#endif
}

// Two tasks that wait for each other, so two threads must run them. Returns how
// many of them ran inside an OpenMP parallel region; -1 if they never met.
int TasksInOpenMp() {
  std::atomic<int> here{0}, inside{0};
  std::atomic<bool> met{false};
  const auto deadline = steady_clock::now() + std::chrono::seconds(60);
  ParallelFor(2, 2, [&](int64_t) noexcept {
    if (omp_in_parallel != nullptr && omp_in_parallel() != 0) ++inside;
    ++here;
    while (!met && steady_clock::now() < deadline) {
      if (here == 2) met = true;
      std::this_thread::yield();
    }
  });
  return met ? inside.load() : -1;
}

class OpenMpTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
#if !defined(_OPENMP)
    // The library has searched for a runtime and found none.
    ASSERT_EQ(TasksInOpenMp(), 0);
#endif
    const char* const given = std::getenv("LOCUS_OPENMP_LIBRARY");
    library_ = dlopen(given != nullptr ? given : "libgomp.so.1",
                      RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    omp_in_parallel = reinterpret_cast<decltype(omp_in_parallel)>(
        dlsym(library_, "omp_in_parallel"));
    gomp_parallel = reinterpret_cast<decltype(gomp_parallel)>(
        dlsym(library_, "GOMP_parallel"));
  }

  void SetUp() override {
    if (library_ == nullptr) GTEST_SKIP() << dlerror();
    ASSERT_NE(omp_in_parallel, nullptr);
    ASSERT_NE(gomp_parallel, nullptr);
  }
  void TearDown() override { SetParallelBackend(nullptr); }

 private:
  static inline void* library_ = nullptr;
};

TEST_F(OpenMpTest, IsUsedByDefault) { EXPECT_EQ(TasksInOpenMp(), 2); }

TEST_F(OpenMpTest, OtherBackendsComeFirst) {
  SetParallelBackend(OwnThreads);
  EXPECT_EQ(TasksInOpenMp(), 0);
  SetParallelBackend(nullptr);
  EXPECT_EQ(TasksInOpenMp(), 2);
}

TEST_F(OpenMpTest, NoTwoTasksShareAWorker) {
  std::vector<std::atomic<int>> busy(3);
  std::atomic<int> shared{0}, runs{0};
  ParallelFor(500, 3, [&](int64_t, int worker) noexcept {
    std::atomic<int>& mine = busy[static_cast<size_t>(worker)];
    if (++mine > 1) ++shared;
    std::this_thread::yield();
    --mine;
    ++runs;
  });
  EXPECT_EQ(shared, 0);
  EXPECT_EQ(runs, 500);
}

TEST_F(OpenMpTest, AnInterruptEndsTheCall) {
  struct Interrupted {};
  const InterruptCheck before = SetInterruptCheck([] { throw Interrupted(); });
  std::atomic<int64_t> done{0};
  EXPECT_THROW(ParallelFor(int64_t{1} << 40, 2,
                           [&](int64_t) noexcept {
                             ++done;
                             std::this_thread::yield();
                           }),
               Interrupted);
  SetInterruptCheck(before);
  EXPECT_LT(done, int64_t{1} << 40);
  EXPECT_EQ(TasksInOpenMp(), 2);
}

// The runtime's threads are already busy, so each call runs on its own thread.
TEST_F(OpenMpTest, CallsInsideAParallelRegionRunAlone) {
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> calls{0}, elsewhere{0};
    std::atomic<int64_t> sum{0};
    Region(3, [&] {
      const auto caller = std::this_thread::get_id();
      ++calls;
      ParallelFor(16, 2, [&](int64_t at) noexcept {
        sum += at;
        if (std::this_thread::get_id() != caller) ++elsewhere;
      });
    });
    EXPECT_EQ(calls, 3);
    EXPECT_EQ(elsewhere, 0);
    EXPECT_EQ(sum, calls * 120);
  }
}

TEST_F(OpenMpTest, ManyCallersAtOnce) {
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int who = 0; who < 4; ++who) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        ParallelFor(16, 3, [&](int64_t at) noexcept { sum += at; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 200 * 120);
}

TEST_F(OpenMpTest, GivesTheBitsOfOwnThreads) {
  const Tensor q = RandomTensor({2, 4, 300, 32}, 1).To(DType::kF32);
  const Tensor k = RandomTensor({2, 4, 300, 32}, 2).To(DType::kF32);
  const Tensor v = RandomTensor({2, 4, 300, 32}, 3).To(DType::kF32);
  const Rope rope(32, PairLayout::kHalves);
  const auto run = [&] {
    AttentionOptions options{.causal = true, .threads = 3, .return_lse = true};
    const AttentionResult forward = Attention(q, k, v, rope, options);
    std::vector<double> bits = forward.out.ToVector();
    const auto grads =
        AttentionBackward(forward.out, q, k, v, forward, rope, options);
    for (const Tensor* t : {&grads.d_q, &grads.d_k, &grads.d_v}) {
      const std::vector<double> more = t->ToVector();
      bits.insert(bits.end(), more.begin(), more.end());
    }
    return bits;
  };
  const std::vector<double> openmp = run();
  SetParallelBackend(OwnThreads);
  EXPECT_EQ(run(), openmp);
}

// GNU's runtime would wait for threads that the child does not have.
TEST_F(OpenMpTest, ForkedProcessesUseTheirOwnThreads) {
  ASSERT_EQ(TasksInOpenMp(), 2);
  const pid_t child = fork();
  if (child == 0) _exit(TasksInOpenMp() == 0 ? 0 : 1);
  const auto deadline = steady_clock::now() + std::chrono::minutes(2);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      FAIL() << "the child hangs";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(TasksInOpenMp(), 2) << "in the parent as before";
}

}  // namespace
}  // namespace locus::testing
