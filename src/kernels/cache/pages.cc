// DecodePages: attention over keys and values in blocks that the caller owns.
#include <algorithm>
#include <cstdint>

#include "core/fail.h"
#include "kernels/cache/storage.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/run.h"
#include "locus/encoding.h"
#include "locus/kv_cache.h"

namespace locus {
namespace {

bool IsFloat(const Tensor& t) {
  return t.dtype() != DType::kF64 && t.dtype() != DType::kI8;
}

// Checks the pages, and prepares what a plan needs and the rows.
class PagedCall {
 public:
  PagedCall(const Tensor& q, const KvPages& pages,
            const DecodeOptions& decode_options)
      : pages_(pages), options(decode_options.ForAttention()) {
    CheckShapes(q);
    batch_ = q.size(0);
    per_sequence_ = BlocksPerSequence();
    CheckBlocks();
    if (!options.key_lengths.empty()) {
      Fail("pages have {} lengths, so key_lengths must be empty, got {}",
           pages.lengths.size(), options.key_lengths.size());
    }
    int64_t longest = 0;
    for (int64_t length : pages.lengths) longest = std::max(longest, length);
    for (int64_t length : pages.lengths) {
      if (length != longest) options.key_lengths = pages.lengths;
    }
    k = Planned(pages.k, longest);
    v = Planned(pages.v, longest);
  }

  AttentionResult Run(const Tensor& q, const Terms& terms) const {
    const bool rotated =
        kernels::StoredRotation(terms.rotate, terms.k_table.has_value()) !=
        nullptr;
    const kernels::Plan plan(q, k, v, terms, options,
                             {.cached_keys = true, .keys_rotated = rotated});
    const int64_t* table = pages_.block_table.data();
    return kernels::Run(plan, kernels::Rows(q),
                        kernels::Rows(pages_.k, table, per_sequence_),
                        kernels::Rows(pages_.v, table, per_sequence_));
  }

 private:
  void CheckShapes(const Tensor& q) const {
    const Tensor& keys = pages_.k;
    const Tensor& values = pages_.v;
    if (q.rank() != 4 || !IsFloat(q)) {
      Fail("q must be f32, bf16 or f16 [batch, heads, length, dim], got {}",
           q.Describe());
    }
    if (keys.rank() != 4 || values.rank() != 4 || !IsFloat(keys) ||
        !IsFloat(values)) {
      Fail(
          "pages must be f32, bf16 or f16 [blocks, heads, block_size, dim], "
          "got {} and {}",
          keys.Describe(), values.Describe());
    }
    if (!std::equal(keys.shape().begin(), keys.shape().end() - 1,
                    values.shape().begin()) ||
        keys.size(2) < 1) {
      Fail(
          "pages of keys and values must have the same blocks, heads and a "
          "block_size of at least 1, got {} and {}",
          keys.Describe(), values.Describe());
    }
  }

  int64_t BlocksPerSequence() const {
    const auto entries = static_cast<int64_t>(pages_.block_table.size());
    if (static_cast<int64_t>(pages_.lengths.size()) != batch_) {
      Fail("lengths must have {} entries, got {}", batch_,
           pages_.lengths.size());
    }
    if (batch_ == 0 ? entries != 0 : entries % batch_ != 0) {
      Fail("a block table of {} entries does not divide into {} sequences",
           entries, batch_);
    }
    return batch_ == 0 ? 0 : entries / batch_;
  }

  void CheckBlocks() const {
    const int64_t blocks = pages_.k.size(0), block_size = pages_.k.size(2);
    for (int64_t b = 0; b < batch_; ++b) {
      const int64_t length = pages_.lengths[static_cast<size_t>(b)];
      if (length < 0 ||
          (length > 0 && (length - 1) / block_size >= per_sequence_)) {
        Fail("sequence {} has {} blocks of {} tokens, but length {}", b,
             per_sequence_, block_size, length);
      }
      for (int64_t n = 0; n * block_size < length; ++n) {
        const int64_t block =
            pages_.block_table[static_cast<size_t>(b * per_sequence_ + n)];
        if (block < 0 || block >= blocks) {
          Fail("block {} of sequence {} is {}, but there are {} blocks", n, b,
               block, blocks);
        }
      }
    }
  }

  // A tensor of the planned sizes and type for the plan, which never reads it.
  Tensor Planned(const Tensor& blocks, int64_t longest) const {
    return Tensor::Borrow(
        blocks.dtype(), {batch_, blocks.size(1), longest, blocks.size(3)},
        {0, blocks.strides()[1], blocks.strides()[2], blocks.strides()[3]},
        blocks.Raw());
  }

  const KvPages& pages_;
  int64_t batch_ = 0;
  int64_t per_sequence_ = 0;

 public:
  Tensor k, v;
  AttentionOptions options;
};

}  // namespace

AttentionResult DecodePages(const Tensor& q, const KvPages& pages,
                            const Terms& terms, const DecodeOptions& options) {
  return PagedCall(q, pages, options).Run(q, terms);
}

AttentionResult DecodePages(const Tensor& q, const KvPages& pages,
                            const Encoding& encoding,
                            const DecodeOptions& options) {
  PagedCall call(q, pages, options);
  const Terms terms =
      encoding.Lower(CallShape(q, call.k, call.v, call.options)).terms;
  call.options.scale.reset();  // the terms carry it
  return call.Run(q, terms);
}

}  // namespace locus
