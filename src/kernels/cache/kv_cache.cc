// KvCache: construction, appended tokens, and views.
#include "locus/kv_cache.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "core/threads.h"
#include "kernels/cache/storage.h"
#include "kernels/rotary/angles.h"
#include "kernels/simd/rows.h"
#include "locus/encoding.h"

namespace locus {
namespace {

// Throws Error unless the cache accepts these keys and values.
void CheckAppended(const KvCacheConfig& c, const Tensor& k, const Tensor& v) {
  const int64_t n = k.rank() == 4 ? k.size(2) : 0;
  const std::vector<int64_t> keys = {c.batch, c.kv_heads, n, c.head_dim};
  const std::vector<int64_t> values = {c.batch, c.kv_heads, n, c.value_dim};
  if (c.values_in_keys && (k.shape() != keys || v.defined())) {
    Fail(
        "the cache takes k [{}, {}, n, {}], whose first {} channels are the "
        "values, and no v, got {}, {}",
        c.batch, c.kv_heads, c.head_dim, c.value_dim, k.Describe(),
        v.Describe());
  }
  if (!c.values_in_keys && (k.shape() != keys || v.shape() != values)) {
    Fail("the cache takes k [{}, {}, n, {}] and v [{}, {}, n, {}], got {}, {}",
         c.batch, c.kv_heads, c.head_dim, c.batch, c.kv_heads, c.value_dim,
         k.Describe(), v.Describe());
  }
}

std::string TableName(uint64_t id) {
  return id == 0 ? "none" : fmt::format("{:016x}", id);
}

}  // namespace

using kernels::RotationTable;
using kernels::RowOf;
using kernels::Rows;
using kernels::StoredRotation;

DecodeOptions DecodeOptions::From(const AttentionOptions& o) {
  if (!o.k_positions.empty()) {
    Fail("a cache knows its k_positions: give them to Append, not to Decode");
  }
  if (o.dropout.rate != 0.0) {
    Fail("decoding has no dropout, got a rate of {}", o.dropout.rate);
  }
  return {.causal = o.causal,
          .by_index = o.by_index,
          .scale = o.scale,
          .window = o.window,
          .chunk = o.chunk,
          .softcap = o.softcap,
          .q_positions = o.q_positions,
          .key_lengths = o.key_lengths,
          .q_segments = o.q_segments,
          .k_segments = o.k_segments,
          .prefix_lengths = o.prefix_lengths,
          .mask = o.mask,
          .key_bias = o.key_bias,
          .pair_bias = o.pair_bias,
          .sinks = o.sinks,
          .table_queries = o.table_queries,
          .threads = o.threads,
          .return_lse = o.return_lse,
          .return_weights = o.return_weights};
}

AttentionOptions DecodeOptions::ForAttention() const {
  return {.causal = causal,
          .by_index = by_index,
          .scale = scale,
          .window = window,
          .chunk = chunk,
          .softcap = softcap,
          .q_positions = q_positions,
          .key_lengths = key_lengths,
          .q_segments = q_segments,
          .k_segments = k_segments,
          .prefix_lengths = prefix_lengths,
          .mask = mask,
          .key_bias = key_bias,
          .pair_bias = pair_bias,
          .sinks = sinks,
          .table_queries = table_queries,
          .threads = threads,
          .return_lse = return_lse,
          .return_weights = return_weights};
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
  if (c.values_in_keys && c.value_dim > c.head_dim) {
    Fail("values of {} channels cannot be part of keys of {}", c.value_dim,
         c.head_dim);
  }
  if (c.q_heads < 1 || c.q_heads % c.kv_heads != 0) {
    Fail("{} query heads cannot share {} key heads", c.q_heads, c.kv_heads);
  }
  if (c.dtype == DType::kF64) {
    Fail("a cache stores f32, bf16, f16 or i8, not f64");
  }
  if (c.capacity < 0) {
    Fail("a cache's capacity must not be negative, got {}", c.capacity);
  }
  k_ = kernels::NewRows(c, c.capacity, c.head_dim);
  v_ = c.values_in_keys ? kernels::FirstChannels(k_, c.value_dim)
                        : kernels::NewRows(c, c.capacity, c.value_dim);
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

bool KvCache::KeysRotated() const {
  return StoredRotation(rotation_, with_key_table_) != nullptr;
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
  if (terms.k_table && KeysRotated()) {
    Fail(
        "a key table sees unrotated keys, but this cache holds keys that were "
        "appended without one and rotated by table {}",
        TableName(table_id()));
  }
}

void KvCache::CheckValueChannels(const Rotation* stored) const {
  if (!config_.values_in_keys || stored == nullptr || stored->rotary_dim == 0 ||
      stored->first_channel >= config_.value_dim) {
    return;
  }
  Fail(
      "the values of this cache are the first {} channels of its keys, but the "
      "rotation would rotate channels {} .. {}",
      config_.value_dim, stored->first_channel,
      stored->first_channel + stored->rotary_dim - 1);
}

void KvCache::Grow(int64_t tokens) {
  if (tokens <= capacity()) return;
  // Doubles each time, so that a token is copied once on average; starts at 64.
  const int64_t room =
      std::max({tokens, 2 * capacity(), static_cast<int64_t>(64)});
  const int64_t used = size();
  CachedRows k = kernels::CopyRows(k_, used, room);
  CachedRows v = config_.values_in_keys
                     ? kernels::FirstChannels(k, config_.value_dim)
                     : kernels::CopyRows(v_, used, room);
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
  shape.value_dim = config_.value_dim;
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
  // Only the rotation matters here; if it depends on the length, the last
  // position decides.
  const int64_t n = k.rank() == 4 ? k.size(2) : 0;
  const int64_t last = ShapeWith(NewPositions(n, options)).max_k_pos;
  Append(k, v, encoding.Lower(ShapeOf(last, last)).terms, options);
}

void KvCache::Append(const Tensor& k, const Tensor& v, const Terms& terms,
                     const AppendOptions& options) {
  const KvCacheConfig& c = config_;
  CheckAppended(c, k, v);
  const int64_t n = k.size(2);
  CheckTable(terms, "the new ones would be rotated");
  std::vector<std::vector<int64_t>> added = NewPositions(n, options);
  int64_t longest = 0;
  for (size_t b = 0; b < added.size(); ++b) {
    longest = std::max(
        longest, static_cast<int64_t>(positions_[b].size() + added[b].size()));
  }
  Validate(Terms{.rotate = terms.rotate}, ShapeWith(added));

  // Nothing visible to a reader changes until everything is stored.
  const bool first_tokens = size() == 0;
  std::optional<Rotation> rotation = first_tokens ? terms.rotate : rotation_;
  const bool with_key_table = first_tokens
                                  ? terms.rotate.has_value() && terms.k_table
                                  : with_key_table_;
  const Rotation* rotate = StoredRotation(rotation, with_key_table);
  CheckValueChannels(rotate);
  Grow(longest);
  for (size_t b = 0; b < added.size(); ++b) {
    // As push_back: doubles each time.
    std::vector<int64_t>& list = positions_[b];
    const size_t needed = list.size() + added[b].size();
    if (needed > list.capacity()) {
      list.reserve(std::max(needed, 2 * list.capacity()));
    }
  }
  const int threads = kernels::ThreadsForElements(
      k.NumElements() + v.NumElements(), options.threads);
  std::vector<RotationTable> tables;
  for (size_t b = 0; rotate != nullptr && b < added.size(); ++b) {
    tables.emplace_back(*rotate, added[b], /*sign=*/0.0, /*origin=*/0, threads);
  }
  const Rows k_rows(k);
  std::optional<Rows> v_rows;
  if (!c.values_in_keys) v_rows.emplace(v);
  const int64_t row_floats = std::max(c.head_dim, c.value_dim);
  std::vector<float> rows(static_cast<size_t>(threads * row_floats));
  const auto store = [&](int64_t task, int worker) noexcept {
    const int64_t b = task / c.kv_heads, h = task % c.kv_heads;
    const size_t at = static_cast<size_t>(b);
    const int64_t used = static_cast<int64_t>(positions_[at].size());
    float* row = rows.data() + worker * row_floats;
    for (int64_t i = 0; i < static_cast<int64_t>(added[at].size()); ++i) {
      k_rows.Load(b, h, i, row);
      if (rotate != nullptr) {
        tables[at].RotateRow(*rotate, tables[at].Row(h, i), row);
      }
      kernels::WriteRow(k_, b, h, used + i, row);
      if (!v_rows) continue;
      v_rows->Load(b, h, i, row);
      kernels::WriteRow(v_, b, h, used + i, row);
    }
  };
  ParallelFor(c.batch * c.kv_heads, threads, store);
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

Tensor KvCache::View(const Tensor& x) const {
  if (!x.defined()) return {};
  Tensor t = x;
  return Tensor::Borrow(x.dtype(), {x.size(0), x.size(1), size(), x.size(3)},
                        x.strides(), RowOf(t, 0, 0, 0));
}

}  // namespace locus
