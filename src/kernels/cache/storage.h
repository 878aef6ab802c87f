// The storage of a cache: allocating, copying, moving, reading and writing
// rows.
#ifndef LOCUS_SRC_KERNELS_CACHE_STORAGE_H_
#define LOCUS_SRC_KERNELS_CACHE_STORAGE_H_

#include <cstdint>
#include <optional>

#include "kernels/simd/rows.h"
#include "locus/kv_cache.h"
#include "locus/terms.h"

namespace locus::kernels {

// The rotation that stored keys have, given that of their encoding, or nullptr
// if they are stored unrotated.
inline const Rotation* StoredRotation(const std::optional<Rotation>& rotation,
                                      bool with_key_table) {
  const bool carried =
      rotation && rotation->log_decay.empty() && !with_key_table;
  return carried ? &*rotation : nullptr;
}

// Uninitialised storage for `room` tokens of a cache, rows of `dim` channels.
CachedRows NewRows(const KvCacheConfig& config, int64_t room, int64_t dim);

// A view of the first `dim` channels of the same rows; shares ownership.
CachedRows FirstChannels(const CachedRows& from, int64_t dim);

// A copy of the first `used` rows of every head, with room for `room`.
CachedRows CopyRows(const CachedRows& from, int64_t used, int64_t room);

// Moves rows [begin, end) of every head of sequence b to row `to` < begin.
void MoveRowsDown(CachedRows& rows, int64_t b, int64_t begin, int64_t end,
                  int64_t to) noexcept;

inline Rows ReadRows(const CachedRows& from) {
  return {from.rows, from.scales};
}

// Writes floats to row (b, h, i), rounded to its type.
void WriteRow(CachedRows& to, int64_t b, int64_t h, int64_t i,
              const float* row) noexcept;

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_CACHE_STORAGE_H_
