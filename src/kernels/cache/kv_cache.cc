// The cache of keys and values.
#include "locus/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/fail.h"
#include "core/threads.h"
#include "kernels/rotary/angles.h"
#include "kernels/simd/rows.h"
#include "locus/encoding.h"

namespace locus {
namespace {

std::string TableName(uint64_t id) {
  return id == 0 ? "none" : fmt::format("{:016x}", id);
}

}  // namespace

using kernels::RotationTable;
using kernels::RowOf;
using kernels::Rows;

DecodeOptions DecodeOptions::From(const AttentionOptions& o) {
  if (!o.k_positions.empty()) {
    Fail("a cache knows its k_positions: give them to Append, not to Decode");
  }
  return {.causal = o.causal,
          .by_index = o.by_index,
          .scale = o.scale,
          .window = o.window,
          .softcap = o.softcap,
          .q_positions = o.q_positions,
          .key_lengths = o.key_lengths,
          .q_segments = o.q_segments,
          .k_segments = o.k_segments,
          .threads = o.threads,
          .return_lse = o.return_lse};
}

AttentionOptions DecodeOptions::ForAttention() const {
  return {.causal = causal,
          .by_index = by_index,
          .scale = scale,
          .window = window,
          .softcap = softcap,
          .q_positions = q_positions,
          .key_lengths = key_lengths,
          .q_segments = q_segments,
          .k_segments = k_segments,
          .threads = threads,
          .return_lse = return_lse};
}

KvCache::KvCache(const KvCacheConfig& config) : config_(config) {
  KvCacheConfig& c = config_;
  if (c.value_dim == 0) c.value_dim = c.head_dim;
  if (c.q_heads == 0) c.q_heads = c.kv_heads;
  if (c.batch < 1 || c.kv_heads < 1 || c.head_dim < 1 || c.value_dim < 1) {
    Fail(
        "a cache needs a batch, heads and head dims of at least 1, got batch "
        "{}, {} heads, dims {} and {}",
        c.batch, c.kv_heads, c.head_dim, c.value_dim);
  }
  if (c.q_heads < 1 || c.q_heads % c.kv_heads != 0) {
    Fail("{} query heads cannot share {} key heads", c.q_heads, c.kv_heads);
  }
  if (c.dtype == DType::kF64) {
    Fail("a cache stores f32, bf16 or f16, not f64");
  }
  if (c.capacity < 0) {
    Fail("a cache's capacity must not be negative, got {}", c.capacity);
  }
  k_ = Tensor::Empty(c.dtype, {c.batch, c.kv_heads, c.capacity, c.head_dim});
  v_ = Tensor::Empty(c.dtype, {c.batch, c.kv_heads, c.capacity, c.value_dim});
  positions_.resize(static_cast<size_t>(c.batch));
}

int64_t KvCache::size() const {
  size_t longest = 0;
  for (const auto& list : positions_) longest = std::max(longest, list.size());
  return static_cast<int64_t>(longest);
}

int64_t KvCache::size(int64_t b) const {
  return static_cast<int64_t>(positions(b).size());
}

std::span<const int64_t> KvCache::positions(int64_t b) const {
  if (b < 0 || b >= config_.batch) {
    Fail("a cache of {} sequences has no sequence {}", config_.batch, b);
  }
  return positions_[static_cast<size_t>(b)];
}

const Rotation* KvCache::Stored(const std::optional<Rotation>& rotation,
                                bool with_key_table) {
  const bool carried =
      rotation && rotation->log_decay.empty() && !with_key_table;
  return carried ? &*rotation : nullptr;
}

void KvCache::CheckTable(const Terms& terms, const char* what) const {
  if (size() == 0) return;
  const uint64_t id = terms.rotate ? terms.rotate->Id() : 0;
  if (id != table_id()) {
    Fail(
        "the cached keys are rotated by table {}, but {} by table {}: Rerotate "
        "the cache first",
        TableName(table_id()), what, TableName(id));
  }
  if (terms.k_table && Stored(rotation_, with_key_table_) != nullptr) {
    Fail(
        "a key table sees unrotated keys, but this cache holds keys that were "
        "appended without one and rotated by table {}",
        TableName(table_id()));
  }
}

void KvCache::Grow(int64_t tokens) {
  if (tokens <= capacity()) return;
  // Twice as much each time, so that a token is copied once on average; 64 to
  // begin with.
  const int64_t room =
      std::max({tokens, 2 * capacity(), static_cast<int64_t>(64)});
  const int64_t used = size();
  const auto larger = [&](Tensor from) {
    const int64_t dim = from.size(3);
    Tensor to = Tensor::Empty(config_.dtype,
                              {config_.batch, config_.kv_heads, room, dim});
    for (int64_t b = 0; b < config_.batch && used > 0; ++b) {
      for (int64_t h = 0; h < config_.kv_heads; ++h) {
        std::memcpy(
            RowOf(to, b, h, 0), RowOf(from, b, h, 0),
            static_cast<size_t>(used * dim * DTypeBytes(config_.dtype)));
      }
    }
    return to;
  };
  Tensor k = larger(k_), v = larger(v_);
  k_ = std::move(k);
  v_ = std::move(v);
}

std::vector<std::vector<int64_t>> KvCache::NewPositions(
    int64_t n, const AppendOptions& options) const {
  const int64_t batch = config_.batch;
  const int64_t given = static_cast<int64_t>(options.positions.size());
  if (given != 0 && given != n && given != batch * n) {
    Fail("positions must number {} or {}, got {}", n, batch * n, given);
  }
  if (!options.lengths.empty() &&
      static_cast<int64_t>(options.lengths.size()) != batch) {
    Fail("lengths must have {} entries, got {}", batch, options.lengths.size());
  }
  std::vector<std::vector<int64_t>> added(static_cast<size_t>(batch));
  for (size_t b = 0; b < added.size(); ++b) {
    const int64_t count = options.lengths.empty() ? n : options.lengths[b];
    if (count < 0 || count > n) {
      Fail("a length must lie in [0, {}], got {}", n, count);
    }
    const std::vector<int64_t>& past = positions_[b];
    const TextPositions next = After(past);
    const int64_t first = given > n ? static_cast<int64_t>(b) * n : 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t p = given == 0
                            ? next.first + i * next.step
                            : options.positions[static_cast<size_t>(first + i)];
      if (p < kLowestPosition || p > kHighestPosition) {
        Fail("positions must lie in [{}, {}], got {}", kLowestPosition,
             kHighestPosition, p);
      }
      added[b].push_back(p);
    }
  }
  return added;
}

Shape KvCache::ShapeOf(int64_t first_position, int64_t last_position) const {
  Shape shape;
  shape.q_heads = config_.q_heads;
  shape.kv_heads = config_.kv_heads;
  shape.head_dim = config_.head_dim;
  shape.min_q_pos = shape.min_k_pos = first_position;
  shape.max_q_pos = shape.max_k_pos = last_position;
  return shape;
}

Shape KvCache::ShapeWith(
    const std::vector<std::vector<int64_t>>& positions) const {
  int64_t first = kHighestPosition, last = kLowestPosition;
  for (const auto* lists : {&positions, &positions_}) {
    for (const auto& list : *lists) {
      for (int64_t p : list) {
        first = std::min(first, p);
        last = std::max(last, p);
      }
    }
  }
  return first > last ? ShapeOf(0, 0) : ShapeOf(first, last);
}

TextPositions KvCache::After(std::span<const int64_t> positions) const {
  return rotation_ ? rotation_->After(positions) : Rotation().After(positions);
}

void KvCache::Append(const Tensor& k, const Tensor& v, const Encoding& encoding,
                     const AppendOptions& options) {
  // The rotation alone matters here; what changes with the length follows the
  // last position.
  const int64_t n = k.rank() == 4 ? k.size(2) : 0;
  const int64_t last = ShapeWith(NewPositions(n, options)).max_k_pos;
  Append(k, v, encoding.Lower(ShapeOf(last, last)).terms, options);
}

void KvCache::Append(const Tensor& k, const Tensor& v, const Terms& terms,
                     const AppendOptions& options) {
  const KvCacheConfig& c = config_;
  const int64_t n = k.rank() == 4 ? k.size(2) : 0;
  if (k.shape() != std::vector<int64_t>{c.batch, c.kv_heads, n, c.head_dim} ||
      v.shape() != std::vector<int64_t>{c.batch, c.kv_heads, n, c.value_dim}) {
    Fail("the cache takes k [{}, {}, n, {}] and v [{}, {}, n, {}], got {}, {}",
         c.batch, c.kv_heads, c.head_dim, c.batch, c.kv_heads, c.value_dim,
         k.Describe(), v.Describe());
  }
  CheckTable(terms, "the new ones would be rotated");
  std::vector<std::vector<int64_t>> added = NewPositions(n, options);
  int64_t longest = 0;
  for (size_t b = 0; b < added.size(); ++b) {
    longest = std::max(
        longest, static_cast<int64_t>(positions_[b].size() + added[b].size()));
  }
  Validate(Terms{.rotate = terms.rotate}, ShapeWith(added));

  // Nothing that a reader could notice changes before all is stored.
  const bool first_tokens = size() == 0;
  std::optional<Rotation> rotation = first_tokens ? terms.rotate : rotation_;
  const bool with_key_table = first_tokens
                                  ? terms.rotate.has_value() && terms.k_table
                                  : with_key_table_;
  Grow(longest);
  for (size_t b = 0; b < added.size(); ++b) {
    // As push_back does: twice as much each time.
    std::vector<int64_t>& list = positions_[b];
    const size_t needed = list.size() + added[b].size();
    if (needed > list.capacity()) {
      list.reserve(std::max(needed, 2 * list.capacity()));
    }
  }
  const Rotation* rotate = Stored(rotation, with_key_table);
  const int threads = kernels::ThreadsForElements(
      k.NumElements() + v.NumElements(), options.threads);
  std::vector<RotationTable> tables;
  for (size_t b = 0; rotate != nullptr && b < added.size(); ++b) {
    tables.emplace_back(*rotate, added[b], /*sign=*/0.0, /*origin=*/0, threads);
  }
  const Rows k_rows(k), v_rows(v);
  ParallelFor(c.batch * c.kv_heads, threads, [&](int64_t task) {
    const int64_t b = task / c.kv_heads, h = task % c.kv_heads;
    const size_t at = static_cast<size_t>(b);
    const int64_t used = static_cast<int64_t>(positions_[at].size());
    std::vector<float> row(
        static_cast<size_t>(std::max(c.head_dim, c.value_dim)));
    for (int64_t i = 0; i < static_cast<int64_t>(added[at].size()); ++i) {
      k_rows.Load(b, h, i, row.data());
      if (rotate != nullptr) tables[at].RotateRow(*rotate, i, row.data());
      kernels::StoreFloats(row.data(), c.head_dim, c.dtype,
                           RowOf(k_, b, h, used + i));
      v_rows.Load(b, h, i, row.data());
      kernels::StoreFloats(row.data(), c.value_dim, c.dtype,
                           RowOf(v_, b, h, used + i));
    }
  });
  rotation_ = std::move(rotation);
  with_key_table_ = with_key_table;
  if (first_tokens) alike_ = counting_ = true;
  for (size_t b = 0; b < added.size(); ++b) {
    alike_ = alike_ && added[b] == added[0];
    int64_t next = static_cast<int64_t>(positions_[b].size());
    for (int64_t p : added[b]) counting_ = counting_ && p == next++;
    positions_[b].insert(positions_[b].end(), added[b].begin(), added[b].end());
  }
}

void KvCache::Truncate(int64_t n) {
  if (n < 0) Fail("a cache cannot keep {} tokens", n);
  for (auto& list : positions_) {
    list.resize(std::min(list.size(), static_cast<size_t>(n)));
  }
}

void KvCache::Clear() {
  Truncate(0);
  rotation_.reset();
  with_key_table_ = false;
}

Tensor KvCache::View(const Tensor& x) const {
  Tensor t = x;
  return Tensor::Borrow(x.dtype(), {x.size(0), x.size(1), size(), x.size(3)},
                        x.strides(), RowOf(t, 0, 0, 0));
}

}  // namespace locus
