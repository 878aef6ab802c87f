// A KvCache that threads of Python may share.
#ifndef LOCUS_PYTHON_SRC_SHARED_CACHE_H_
#define LOCUS_PYTHON_SRC_SHARED_CACHE_H_

#include <mutex>
#include <shared_mutex>
#include <utility>

#include "compute.h"
#include "locus/kv_cache.h"

namespace locus::python {

// Calls that read run side by side, a call that changes the cache runs alone.
// Threads wait without the interpreter's lock, so that the one they wait for
// can finish.
class SharedCache {
 public:
  explicit SharedCache(KvCache cache) : cache_(std::move(cache)) {}

  template <typename Work>
  auto Read(const Work& work) const {
    return Compute([&] {
      const Entry entry(*this);
      std::unique_lock gate(gate_);
      const std::shared_lock lock(mutex_);
      gate.unlock();
      return work(cache_);
    });
  }
  template <typename Work>
  auto Write(const Work& work) {
    return Compute([&] {
      const Entry entry(*this);
      std::unique_lock gate(gate_);
      const std::unique_lock lock(mutex_);
      gate.unlock();
      return work(cache_);
    });
  }

 private:
  // Refuses a call from within a call of the same thread, such as a signal's
  // handler makes: it would wait for itself.
  class Entry {
   public:
    explicit Entry(const SharedCache& cache);
    ~Entry();

   private:
    const SharedCache* const outer_;
  };

  KvCache cache_;
  mutable std::shared_mutex mutex_;
  // Held while waiting for the other: readers who come later wait behind a
  // writer, whom they would keep out forever.
  mutable std::mutex gate_;
};

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_SHARED_CACHE_H_
