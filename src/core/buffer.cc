#include "core/buffer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <new>

#include "core/os.h"
#include "locus/tensor.h"

namespace locus {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;

// Below this size (64 KiB) the allocator is fast. Above it, freed memory may be
// returned to the system, which interrupts the other cores to flush their TLBs.
constexpr int64_t kLargeFloats = int64_t{16} << 10;

struct Block {
  float* data = nullptr;
  int64_t floats = 0;
  const void* owner = nullptr;  // the thread that released it
};

// An address that identifies the calling thread.
const void* ThisThread() {
  static thread_local char place;
  return &place;
}

// Large arrays are aligned to large pages, so that walking a panel misses the
// TLB a thousand times less often.
constexpr size_t AlignmentFor(size_t bytes) {
  return bytes >= kLargePage ? kLargePage : 64;
}

Block Allocate(int64_t floats) {
  const auto whole = [](size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
  };
  const size_t lines = whole(static_cast<size_t>(floats) * sizeof(float), 64);
  const size_t align = AlignmentFor(lines);
  const size_t bytes = whole(lines, align);
  auto* data =
      static_cast<float*>(::operator new(bytes, std::align_val_t(align)));
  if (align == kLargePage) os::AdviseLargePages(data, bytes);
  return {.data = data, .floats = static_cast<int64_t>(bytes / sizeof(float))};
}

void Free(const Block& block) {
  const size_t bytes = static_cast<size_t>(block.floats) * sizeof(float);
  ::operator delete(block.data, std::align_val_t(AlignmentFor(bytes)));
}

// Keeps large blocks between calls. It neither allocates nor throws.
class Store {
 public:
  // Removes and returns the smallest block that is large enough but at most
  // twice as large as needed. Among blocks of equal size it prefers the one
  // that this thread released last, which may still be in its cache.
  Block Take(int64_t floats) {
    const void* self = ThisThread();
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto better = [self](const Block& a, const Block& b) {
      if (a.floats != b.floats) return a.floats < b.floats;
      return a.owner == self && b.owner != self;
    };
    size_t best = count_;
    for (size_t n = count_; n-- > 0;) {
      const int64_t size = blocks_[n].floats;
      if (size < floats || size > 2 * floats) continue;
      if (best == count_ || better(blocks_[n], blocks_[best])) best = n;
    }
    return best == count_ ? Block{} : Remove(best);
  }

  // Adds a block, freeing the oldest ones to make room. Returns false if the
  // block alone exceeds the limit.
  bool Keep(Block block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (block.floats > limit_) return false;
    while (held_ + block.floats > limit_) Free(Remove(0));
    block.owner = ThisThread();
    blocks_[count_++] = block;
    held_ += block.floats;
    return true;
  }

  // Keeps at most so many floats from now on.
  void Limit(int64_t floats) {
    const std::lock_guard<std::mutex> lock(mutex_);
    limit_ = std::clamp(floats, int64_t{0}, kMostFloats);
    while (held_ > limit_) Free(Remove(0));
  }

  // Called around a fork, so that the child inherits a consistent store and an
  // unlocked mutex.
  void Lock() { mutex_.lock(); }
  void Unlock() { mutex_.unlock(); }

 private:
  // 128 MiB: enough for rotated q and k of 4096 tokens with 32 and 8 heads of
  // 128 channels. Faulting in new pages takes three times as long as rotating.
  static constexpr int64_t kMostFloats = int64_t{32} << 20;

  Block Remove(size_t at) {
    const Block block = blocks_[at];
    std::copy(blocks_.begin() + at + 1, blocks_.begin() + count_,
              blocks_.begin() + at);
    --count_;
    held_ -= block.floats;
    return block;
  }

  std::mutex mutex_;
  // Oldest first. No block is smaller than kLargeFloats, which bounds the
  // count.
  std::array<Block, kMostFloats / kLargeFloats> blocks_;
  size_t count_ = 0;
  int64_t held_ = 0;
  int64_t limit_ = kMostFloats;
};

// Never destroyed: buffers of other threads may outlive static destruction.
Store& TheStore() {
  alignas(Store) static std::byte memory[sizeof(Store)];
  static auto* const store = new (memory) Store();
  return *store;
}

// Runs when the library is loaded, so that no fork can happen while the store
// is being constructed.
[[maybe_unused]] const int kStoreForkHandler = [] {
  TheStore();
  return os::AtFork([] { TheStore().Lock(); }, [] { TheStore().Unlock(); },
                    [] { TheStore().Unlock(); });
}();

void Release(const Block& block) {
  if (block.floats >= kLargeFloats && TheStore().Keep(block)) return;
  Free(block);
}

}  // namespace

void SetKeptMemory(int64_t bytes) {
  TheStore().Limit(bytes / static_cast<int64_t>(sizeof(float)));
}

FloatBuffer::~FloatBuffer() {
  if (data_ != nullptr) Release({.data = data_, .floats = capacity_});
}

void FloatBuffer::Resize(int64_t count) {
  if (count <= capacity_) return;
  Block block;
  if (count >= kLargeFloats) block = TheStore().Take(count);
  if (block.data == nullptr) block = Allocate(count);
  if (data_ != nullptr) Release({.data = data_, .floats = capacity_});
  data_ = block.data;
  capacity_ = block.floats;
}

}  // namespace locus
