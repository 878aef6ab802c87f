#include "core/buffer.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace locus {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;

struct Block {
  float* data = nullptr;
  int64_t floats = 0;
  std::thread::id owner = {};  // the thread that released it
};

Block Allocate(int64_t floats) {
  // Large arrays on large pages: walking a panel then misses the TLB a
  // thousand times less often.
  const size_t wanted = static_cast<size_t>(floats) * sizeof(float);
  const size_t align = wanted >= kLargePage ? kLargePage : 64;
  const size_t bytes = (wanted + align - 1) / align * align;
  auto* data = static_cast<float*>(std::aligned_alloc(align, bytes));
  if (data == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (align == kLargePage) {
    madvise(data, bytes, MADV_HUGEPAGE);  // a hint: may fail
  }
#endif
  return {.data = data, .floats = static_cast<int64_t>(bytes / sizeof(float))};
}

// Large blocks between calls.
class Store {
 public:
  static Store& Get() {
    // Never destroyed: buffers of other threads may outlive static destruction.
    static auto* store = new Store();
    return *store;
  }

  // The smallest block that is large enough and not twice as large as needed;
  // of equals one that this thread released, the latest, which may still be in
  // its cache.
  Block Take(int64_t floats) {
    const std::thread::id self = std::this_thread::get_id();
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto better = [self](const Block& a, const Block& b) {
      if (a.floats != b.floats) return a.floats < b.floats;
      return a.owner == self && b.owner != self;
    };
    size_t best = blocks_.size();
    for (size_t n = blocks_.size(); n-- > 0;) {
      const int64_t size = blocks_[n].floats;
      if (size < floats || size > 2 * floats) continue;
      if (best == blocks_.size() || better(blocks_[n], blocks_[best])) best = n;
    }
    if (best == blocks_.size()) return {};
    const Block block = blocks_[best];
    blocks_.erase(blocks_.begin() + static_cast<int64_t>(best));
    held_ -= block.floats;
    return block;
  }

  // Gives up what has lain there longest to make room. Returns false if the
  // block is too large by itself.
  bool Keep(Block block) {
    if (block.floats > kMostFloats) return false;
    const std::lock_guard<std::mutex> lock(mutex_);
    while (held_ + block.floats > kMostFloats) {
      held_ -= blocks_.front().floats;
      std::free(blocks_.front().data);
      blocks_.erase(blocks_.begin());
    }
    block.owner = std::this_thread::get_id();
    blocks_.push_back(block);
    held_ += block.floats;
    return true;
  }

 private:
  // 128 MiB: q and k of 4096 tokens, 32 and 8 heads of 128 channels, rotated.
  // New pages cost three times what rotating them does.
  static constexpr int64_t kMostFloats = int64_t{32} << 20;

  std::mutex mutex_;
  std::vector<Block> blocks_;  // in the order in which they came
  int64_t held_ = 0;
};

// Below this the allocator is quick by itself. Above it, what a thread frees
// may go back to the system, and the other cores are interrupted to forget it.
constexpr int64_t kLargeFloats = int64_t{16} << 10;

void Release(Block block) {
  if (block.floats >= kLargeFloats && Store::Get().Keep(block)) return;
  std::free(block.data);
}

}  // namespace

FloatBuffer::~FloatBuffer() {
  if (data_ != nullptr) Release({.data = data_, .floats = capacity_});
}

void FloatBuffer::Resize(int64_t count) {
  if (count <= capacity_) return;
  Block block;
  if (count >= kLargeFloats) block = Store::Get().Take(count);
  if (block.data == nullptr) block = Allocate(count);
  if (data_ != nullptr) Release({.data = data_, .floats = capacity_});
  data_ = block.data;
  capacity_ = block.floats;
}

}  // namespace locus
