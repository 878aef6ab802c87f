// Removes tokens of a cache, and copies caches.
#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "kernels/cache/storage.h"
#include "locus/kv_cache.h"

namespace locus {

std::pair<int64_t, int64_t> KvCache::Chosen(Sequence sequence) const {
  if (!sequence) return {0, config_.batch};
  size(*sequence);  // checks it
  return {*sequence, *sequence + 1};
}

std::span<const int64_t> KvCache::Range(int64_t b, int64_t begin,
                                        int64_t end) const {
  if (begin < 0 || begin > end || end > size(b)) {
    Fail("tokens [{}, {}) do not lie in [0, {}), the tokens of sequence {}",
         begin, end, size(b), b);
  }
  return positions(b).subspan(static_cast<size_t>(begin),
                              static_cast<size_t>(end - begin));
}

void KvCache::Recount() {
  alike_ = counting_ = true;
  for (const std::vector<int64_t>& list : positions_) {
    alike_ = alike_ && list == positions_[0];
    int64_t next = 0;
    for (int64_t p : list) counting_ = counting_ && p == next++;
  }
}

void KvCache::Truncate(int64_t n, Sequence sequence) {
  if (n < 0) Fail("a cache cannot keep {} tokens", n);
  const auto [first, last] = Chosen(sequence);
  for (int64_t b = first; b < last; ++b) {
    std::vector<int64_t>& list = positions_[static_cast<size_t>(b)];
    list.resize(std::min(list.size(), static_cast<size_t>(n)));
  }
  Recount();
}

void KvCache::Evict(int64_t begin, int64_t end, Sequence sequence) {
  const auto [first, last] = Chosen(sequence);
  for (int64_t b = first; b < last; ++b) Range(b, begin, end);
  for (int64_t b = first; b < last; ++b) {
    std::vector<int64_t>& list = positions_[static_cast<size_t>(b)];
    kernels::MoveRowsDown(k_, b, end, size(b), begin);
    if (!config_.values_in_keys) {
      kernels::MoveRowsDown(v_, b, end, size(b), begin);
    }
    list.erase(list.begin() + begin, list.begin() + end);
  }
  Recount();
}

void KvCache::Clear() {
  Truncate(0);
  rotation_.reset();
  with_key_table_ = false;
}

KvCache KvCache::Fork() const {
  KvCacheConfig config = config_;
  config.capacity = 0;  // allocated by the copies below
  KvCache copy(config);
  copy.config_ = config_;
  copy.k_ = kernels::CopyRows(k_, size(), capacity());
  copy.v_ = config_.values_in_keys
                ? kernels::FirstChannels(copy.k_, config_.value_dim)
                : kernels::CopyRows(v_, size(), capacity());
  copy.positions_ = positions_;
  copy.alike_ = alike_;
  copy.counting_ = counting_;
  copy.rotation_ = rotation_;
  copy.with_key_table_ = with_key_table_;
  return copy;
}

}  // namespace locus
