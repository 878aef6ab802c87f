// Processes forked while other threads are busy: these threads do not exist in
// the child, and locks they held remain locked.
#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/buffer.h"
#include "core/threads.h"
#include "locus/locus.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

using std::chrono::steady_clock;

// Exit codes of children.
constexpr int kRight = 0, kWrong = 1, kHangs = 2, kCrashed = 3;

// Runs right() in a child and returns how it ended. A child that needs more
// than a minute for milliseconds of work hangs.
template <typename Right>
int InChild(const Right& right) {
  const pid_t child = fork();
  if (child == 0) _exit(right() ? kRight : kWrong);
  const auto deadline = steady_clock::now() + std::chrono::minutes(1);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return kHangs;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kCrashed;
}

// Repeats some work on a separate thread.
class Busy {
 public:
  template <typename Work>
  explicit Busy(const Work& work)
      : thread_([this, work] {
          while (!stop_) work();
        }) {}
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

int64_t SumOfTasks() {
  std::atomic<int64_t> sum{0};
  ParallelFor(8, 2, [&](int64_t at) noexcept { sum += at; });
  return sum;
}

// In a process forked while another thread allocates, AddressSanitizer's
// allocator remains locked: that of LLVM 14 has no fork handlers. The child
// then waits forever in
//   __sanitizer::Semaphore::Wait
//   __sanitizer::SizeClassAllocator64::GetFromAllocator
//   __asan::Allocator::Allocate
//   operator new
// as also happens in a program with two threads that call only new and delete.
// libc's allocator is locked by fork itself.
bool AllocatorSurvivesFork() {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  return false;
#endif
#endif
  return true;
}

TEST(ForkTest, ChildrenOfABusyPoolWork) {
  SumOfTasks();  // starts the helper, so that nobody allocates from here on
  const Busy busy([] { SumOfTasks(); });
  for (int n = 0; n < 400; ++n) {
    ASSERT_EQ(InChild([] { return SumOfTasks() == 28; }), kRight)
        << "child " << n;
  }
}

TEST(ForkTest, ChildrenFindTheStoreOfBuffersFree) {
  if (!AllocatorSurvivesFork()) {
    GTEST_SKIP() << "a child hangs on the lock of AddressSanitizer's allocator";
  }
  constexpr int64_t kFloats = int64_t{32} << 10;
  const Busy busy([] { const FloatBuffer buffer(kFloats); });
  for (int n = 0; n < 400; ++n) {
    ASSERT_EQ(InChild([] {
                for (int again = 0; again < 4; ++again) {
                  const FloatBuffer buffer(kFloats);
                }
                return true;
              }),
              kRight)
        << "child " << n;
  }
}

TEST(ForkTest, ChildrenOfACallGetTheSameBits) {
  if (!AllocatorSurvivesFork()) {
    GTEST_SKIP() << "a child hangs on the lock of AddressSanitizer's allocator";
  }
  const Tensor q = RandomTensor({2, 4, 192, 32}, 1).To(DType::kF32);
  const Tensor k = RandomTensor({2, 4, 192, 32}, 2).To(DType::kF32);
  const Tensor v = RandomTensor({2, 4, 192, 32}, 3).To(DType::kF32);
  const Rope rope(32, PairLayout::kHalves);
  const auto run = [&] {
    AttentionOptions options{.causal = true, .threads = 2, .return_lse = true};
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
  const std::vector<double> expected = run();
  const Busy busy([&] { run(); });
  for (int n = 0; n < 200; ++n) {
    ASSERT_EQ(InChild([&] { return run() == expected; }), kRight)
        << "child " << n;
  }
}

// Children of children as well: each begins with a new pool.
TEST(ForkTest, GrandchildrenWork) {
  SumOfTasks();
  EXPECT_EQ(InChild([] {
              return SumOfTasks() == 28 &&
                     InChild([] { return SumOfTasks() == 28; }) == kRight;
            }),
            kRight);
}

// Jobs that no helper takes must not pile up.
TEST(ForkTest, ChildrenKeepNothingOfTheirCalls) {
  if (!AllocatorSurvivesFork()) {
    GTEST_SKIP() << "AddressSanitizer's allocator has no mallinfo";
  }
  SumOfTasks();
  EXPECT_EQ(InChild([] {
              for (int n = 0; n < 100; ++n) SumOfTasks();
              const size_t before = mallinfo2().uordblks;
              for (int n = 0; n < 20000; ++n) SumOfTasks();
              return mallinfo2().uordblks < before + 10000;
            }),
            kRight);
}

}  // namespace
}  // namespace locus::testing
