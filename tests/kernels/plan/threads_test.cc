// Calls on the library's own threads, and on a backend of the program.
#include "locus/threads.h"

#include <atomic>
#include <thread>

#include "kernels/compare.h"

namespace locus::testing {
namespace {

std::atomic<int> asked{0};

void ThreadsOfMine(int threads, void (*body)(void*), void* argument) {
  asked = threads;
  std::vector<std::thread> others;
  for (int n = 1; n < threads; ++n) others.emplace_back(body, argument);
  body(argument);
  for (std::thread& other : others) other.join();
}

// A backend that only runs the calling thread.
void OnlyMe(int threads, void (*body)(void*), void* argument) {
  asked = threads;
  body(argument);
}

TEST(ThreadsTest, AnyBackendGivesTheSameBits) {
  const Tensor q = RandomTensor({2, 4, 300, 32}, 1).To(DType::kF32);
  const Tensor k = RandomTensor({2, 4, 300, 32}, 2).To(DType::kF32);
  const Tensor v = RandomTensor({2, 4, 300, 32}, 3).To(DType::kF32);
  const Alibi alibi(4);
  AttentionOptions options;
  options.threads = 3;
  const auto run = [&] {
    return Attention(q, k, v, alibi, options).out.ToVector();
  };
  const auto automatic = run();
  for (const ParallelBackend backend : {ThreadsOfMine, OnlyMe}) {
    asked = 0;
    SetParallelBackend(backend);
    const auto out = run();
    SetParallelBackend(nullptr);
    EXPECT_EQ(asked, 3);
    EXPECT_EQ(out, automatic);
  }
  asked = 0;
  run();
  EXPECT_EQ(asked, 0) << "automatic again";
  SetParallelBackend(OwnThreads);
  const auto own = run();
  SetParallelBackend(nullptr);
  EXPECT_EQ(own, automatic);
}

}  // namespace
}  // namespace locus::testing
