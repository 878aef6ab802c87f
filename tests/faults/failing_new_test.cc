// The allocator of these tests, and a check that it fails when it should.
#include "faults/failing_new.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <thread>

#include "core/buffer.h"

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Number of allocations that still succeed.
std::atomic<int64_t> left{kNever};
std::atomic<bool> once{true};
std::atomic<bool> failed{false};

bool Fails() {
  if (left.load(std::memory_order_relaxed) == kNever) return false;
  const int64_t now = left.fetch_sub(1);
  if (now > 0 || (now < 0 && once)) return false;
  failed = true;
  return true;
}

void* Allocate(size_t bytes, size_t alignment) {
  if (Fails()) return nullptr;
  if (bytes == 0) bytes = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes);
  return std::aligned_alloc(alignment,
                            (bytes + alignment - 1) / alignment * alignment);
}

void* AllocateOrThrow(size_t bytes, size_t alignment) {
  void* memory = Allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return AllocateOrThrow(bytes, 1); }
void* operator new[](size_t bytes) { return AllocateOrThrow(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return Allocate(bytes, 1);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return Allocate(bytes, 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace locus::testing {

FailingNew::FailingNew(int64_t n, Mode mode) {
  failed = false;
  once = mode == Mode::kOnce;
  left = n;
}
FailingNew::~FailingNew() { left = kNever; }
bool FailingNew::Failed() { return failed; }

namespace {

// Which of five allocations succeed.
std::vector<bool> FirstFive(int64_t n, FailingNew::Mode mode) {
  std::vector<bool> succeeded(5);
  const FailingNew failing(n, mode);
  for (size_t at = 0; at < 5; ++at) {
    succeeded[at] =
        Try([] { const std::vector<int> some(3); }) == Outcome::kReturned;
  }
  return succeeded;
}

TEST(FailingNewTest, FailsOnceOrForGood) {
  EXPECT_EQ(FirstFive(2, FailingNew::Mode::kOnce),
            (std::vector<bool>{true, true, false, true, true}));
  EXPECT_EQ(FirstFive(2, FailingNew::Mode::kFromThenOn),
            (std::vector<bool>{true, true, false, false, false}));
}

TEST(FailingNewTest, OnEveryThread) {
  Outcome outcome = Outcome::kReturned;
  std::atomic<bool> go{false};
  std::thread other([&] {
    while (!go) std::this_thread::yield();
    outcome = Try([] { const std::vector<int> some(3); });
  });
  {
    const FailingNew failing(0, FailingNew::Mode::kFromThenOn);
    go = true;
    other.join();
  }
  EXPECT_EQ(outcome, Outcome::kThrew);
}

// Scratch memory: small, large and on large pages.
TEST(FailingNewTest, OfTheLibrarysBuffers) {
  for (int64_t floats : {100, 100 << 10, 100 << 20}) {
    const FailingNew failing(0, FailingNew::Mode::kOnce);
    EXPECT_EQ(Try([&] { const FloatBuffer buffer(floats); }), Outcome::kThrew)
        << floats;
  }
}

}  // namespace
}  // namespace locus::testing
