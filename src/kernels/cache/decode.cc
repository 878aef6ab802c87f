// KvCache::Decode: attention over the cached tokens.

#include <algorithm>
#include <vector>

#include "core/fail.h"
#include "kernels/cache/storage.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/run.h"
#include "locus/encoding.h"
#include "locus/kv_cache.h"

namespace locus {

// A call over the cached tokens: views of them, and options with spans into
// this object or into the cache.
struct KvCache::Prepared {
  Tensor k = {}, v = {};
  AttentionOptions options = {};
  std::vector<int64_t> q_positions = {}, k_positions = {}, lengths = {};
};

KvCache::Prepared KvCache::Prepare(const Tensor& q,
                                   const DecodeOptions& options) const {
  if (q.rank() != 4 || q.dtype() == DType::kF64 || q.dtype() == DType::kI8) {
    Fail("q must be f32, bf16 or f16 [batch, heads, length, dim], got {}",
         q.Describe());
  }
  const int64_t batch = config_.batch, tokens = size(), q_len = q.size(2);
  Prepared call{.options = options.ForAttention()};
  call.k = keys();
  call.v = values();
  if (!options.key_lengths.empty() &&
      static_cast<int64_t>(options.key_lengths.size()) != batch) {
    Fail("key_lengths must have {} entries, got {}", batch,
         options.key_lengths.size());
  }
  bool ragged = !options.key_lengths.empty();
  for (int64_t b = 0; b < batch; ++b) {
    ragged |= size(b) != tokens;
    call.lengths.push_back(options.key_lengths.empty()
                               ? size(b)
                               : options.key_lengths[static_cast<size_t>(b)]);
    if (call.lengths.back() < 0 || call.lengths.back() > size(b)) {
      Fail("a key length of sequence {} must lie in [0, {}], got {}", b,
           size(b), call.lengths.back());
    }
  }
  if (ragged) call.options.key_lengths = call.lengths;
  if (counting_) {
    // 0, 1, 2, ...: the default positions of a call.
  } else if (alike_) {
    call.options.k_positions = positions_[0];
  } else {
    for (const std::vector<int64_t>& list : positions_) {
      call.k_positions.insert(call.k_positions.end(), list.begin(), list.end());
      // Missing tokens still need an entry.
      call.k_positions.resize(call.k_positions.size() +
                              static_cast<size_t>(tokens) - list.size());
    }
    call.options.k_positions = call.k_positions;
  }
  // If the cached positions count up from 0, the default positions of queries
  // are right.
  if (options.q_positions.empty() && !counting_) {
    const bool one_list = alike_ && !ragged;
    for (int64_t b = 0; b < (one_list ? 1 : batch); ++b) {
      const std::span<const int64_t> cached = positions(b);
      const TextPositions next = After(cached);
      const int64_t first =
          std::max<int64_t>(call.lengths[static_cast<size_t>(b)] - q_len, 0);
      for (int64_t at = first; at < first + q_len; ++at) {
        const int64_t past = at - size(b);
        call.q_positions.push_back(past < 0 ? cached[static_cast<size_t>(at)]
                                            : next.first + past * next.step);
      }
    }
    call.options.q_positions = call.q_positions;
    // The indices of these queries are known, so masks can use them where
    // packed positions have no order.
    if (rotation_ && rotation_->packed_from > 0 &&
        ShapeWith({}).max_k_pos >= rotation_->packed_from) {
      call.options.by_index = true;
    }
  }
  return call;
}

AttentionResult KvCache::Decode(const Tensor& q, const Encoding& encoding,
                                const DecodeOptions& options) const {
  const Prepared call = Prepare(q, options);
  const kernels::Plan plan(
      q, call.k, call.v, encoding, call.options,
      {.cached_keys = true, .keys_rotated = KeysRotated()});
  CheckTable(plan.terms, "the queries would be rotated");
  return kernels::Run(plan, kernels::Rows(q), kernels::ReadRows(k_),
                      kernels::ReadRows(v_));
}

AttentionResult KvCache::Decode(const Tensor& q, const Terms& terms,
                                const DecodeOptions& options) const {
  Prepared call = Prepare(q, options);
  CheckTable(terms, "the queries would be rotated");
  // Without queries and tokens, terms are not used, and their rows need not
  // match any position.
  const bool nothing = q.size(2) == 0 && size() == 0;
  const Terms scale_alone{.scale = {.scale = terms.scale.scale}};
  if (nothing) call.options.table_queries = {};
  const kernels::Plan plan(
      q, call.k, call.v, nothing ? scale_alone : terms, call.options,
      {.cached_keys = true, .keys_rotated = KeysRotated()});
  return kernels::Run(plan, kernels::Rows(q), kernels::ReadRows(k_),
                      kernels::ReadRows(v_));
}

}  // namespace locus
