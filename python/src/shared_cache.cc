#include "shared_cache.h"

#include "locus/error.h"

namespace locus::python {
namespace {

// The cache that this thread is at work on.
thread_local const SharedCache* inside = nullptr;

}  // namespace

SharedCache::Entry::Entry(const SharedCache& cache) : outer_(inside) {
  if (inside == &cache) {
    throw Error(
        "this KvCache is at work in the call that was interrupted: use it "
        "after that call has ended");
  }
  inside = &cache;
}

SharedCache::Entry::~Entry() { inside = outer_; }

}  // namespace locus::python
