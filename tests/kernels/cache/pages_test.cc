// Keys and values in blocks that the caller owns.
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "kernels/cache/calls.h"
#include "kernels/simd/rows.h"

namespace locus::testing {
namespace {

// The tokens of a cache, distributed over blocks in shuffled order. Rows
// without a token are NaN, and so is any memory between rows.
class Paged {
 public:
  // heads_inside: blocks are [block_size, heads, dim] in memory, with a gap
  // after each row.
  Paged(const KvCache& cache, int64_t block_size, bool heads_inside = false)
      : block_size_(block_size),
        per_sequence_((cache.size() + block_size - 1) / block_size + 1) {
    const int64_t batch = cache.config().batch;
    const int64_t blocks = batch * per_sequence_ + 3;
    std::vector<int64_t> ids(static_cast<size_t>(blocks));
    for (size_t n = 0; n < ids.size(); ++n) ids[n] = static_cast<int64_t>(n);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(5));
    for (int64_t b = 0; b < batch; ++b) {
      lengths_.push_back(cache.size(b));
      for (int64_t n = 0; n < per_sequence_; ++n) {
        const bool needed = n * block_size < cache.size(b);
        // The others are never read.
        table_.push_back(
            needed ? ids[static_cast<size_t>(b * per_sequence_ + n)] : -7);
      }
    }
    k_ = Dealt(cache.keys(), blocks, heads_inside);
    v_ = Dealt(cache.values(), blocks, heads_inside);
  }

  KvPages pages() const {
    return {.k = k_, .v = v_, .block_table = table_, .lengths = lengths_};
  }

 private:
  Tensor Dealt(const Tensor& from, int64_t blocks, bool heads_inside) const {
    const int64_t heads = from.size(1), dim = from.size(3), gap = 8;
    const DType dtype = from.dtype();
    Tensor memory =
        heads_inside
            ? Tensor::Empty(dtype, {blocks, block_size_, heads, dim + gap})
            : Tensor::Empty(dtype, {blocks, heads, block_size_, dim});
    const std::vector<float> nan(static_cast<size_t>(memory.NumElements()),
                                 std::numeric_limits<float>::quiet_NaN());
    kernels::StoreFloats(nan.data(), memory.NumElements(), dtype,
                         kernels::ElementAt(memory, 0));
    const std::vector<int64_t>& s = memory.strides();
    const Tensor view = Tensor::Borrow(
        dtype, {blocks, heads, block_size_, dim},
        heads_inside ? std::vector<int64_t>{s[0], s[2], s[1], 1} : s,
        memory.Raw(), std::make_shared<Tensor>(memory));
    Tensor to = view;
    const kernels::Rows rows(from);
    for (int64_t b = 0; b < from.size(0); ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < lengths_[static_cast<size_t>(b)]; ++i) {
          const int64_t block =
              table_[static_cast<size_t>(b * per_sequence_ + i / block_size_)];
          std::memcpy(kernels::RowOf(to, block, h, i % block_size_),
                      rows.Row(b, h, i),
                      static_cast<size_t>(dim * DTypeBytes(dtype)));
        }
      }
    }
    return view;
  }

  int64_t block_size_, per_sequence_;
  std::vector<int64_t> table_, lengths_;
  Tensor k_, v_;
};

KvCache Filled(const Encoding& encoding, DType dtype, int64_t length,
               int64_t shorter) {
  const Sequence x = RandomSequence(length, /*batch=*/2);
  KvCache cache(Config(2, dtype));
  const std::vector<int64_t> lengths = {length, shorter};
  cache.Append(x.k, x.v, encoding, {.lengths = lengths});
  return cache;
}

// Bitwise equal to the cache, with every driver: few queries, many, and few
// keys; rotated keys, keys that are rotated when read, and biases.
TEST(DecodePagesTest, EqualsTheCacheToTheBit) {
  OnEveryTarget([] {
    for (std::string_view name : {"none", "rope", "xpos", "alibi", "shaw"}) {
      for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        for (int64_t length : {3, 4, 90, 300}) {
          // One case with few keys that every query sees.
          const bool all = length == 4;
          const auto encoding = FindEncoding(name).example(
              {.heads = kQueryHeads, .head_dim = kHeadDim, .length = length});
          const KvCache cache =
              Filled(*encoding, dtype, length, all ? 4 : length * 2 / 3);
          for (int64_t block_size : {1, 16, 33}) {
            const Paged paged(cache, block_size);
            for (int64_t queries : {1, 5, 40}) {
              SCOPED_TRACE(::testing::Message()
                           << name << " " << DTypeName(dtype) << ", " << queries
                           << " over " << length << " in blocks of "
                           << block_size);
              const Tensor q = RandomSequence(queries, 2, 9).q;
              const DecodeOptions options{.causal = !all, .return_lse = true};
              const AttentionResult expected =
                  cache.Decode(q, *encoding, options);
              const AttentionResult actual =
                  DecodePages(q, paged.pages(), *encoding, options);
              EXPECT_EQ(actual.out.ToVector(), expected.out.ToVector());
              EXPECT_EQ(actual.lse.ToVector(), expected.lse.ToVector());
            }
          }
        }
      }
    }
  });
}

// Blocks with any strides; a table and rotated keys, from given terms.
TEST(DecodePagesTest, TakesAnyStridesAndTerms) {
  const Rope rope(kHeadDim, PairLayout::kInterleaved);
  const KvCache cache = Filled(rope, DType::kBF16, 200, 200);
  const Paged paged(cache, 16, /*heads_inside=*/true);
  Terms terms;
  terms.rotate = rope.RotationFor(200);
  terms.scale.scale = 0.3;
  for (int64_t queries : {1, 40}) {
    const Tensor q = RandomSequence(queries, 2, 9).q;
    EXPECT_EQ(DecodePages(q, paged.pages(), terms).out.ToVector(),
              cache.Decode(q, terms).out.ToVector());
    EXPECT_EQ(
        DecodePages(q, paged.pages(), rope, {.scale = 0.3}).out.ToVector(),
        cache.Decode(q, terms).out.ToVector());
  }
}

// Segments that are not in token order, windows, no causality.
TEST(DecodePagesTest, MasksAreThoseOfTheCache) {
  const NoPosition none;
  std::vector<int64_t> q_segments = {1, 0, 2, 0, 1, 2}, k_segments;
  for (int64_t j = 0; j < 300; ++j) k_segments.push_back((j * 7) % 3);
  const Tensor q = RandomSequence(3, 2, 9).q;
  const DecodeOptions segments{
      .causal = false, .q_segments = q_segments, .k_segments = k_segments};
  const DecodeOptions window{.window = Window{20, 0}, .softcap = 3.0};
  OnEveryTarget([&] {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(DTypeName(dtype));
      const KvCache cache = Filled(none, dtype, 150, 90);
      const Paged paged(cache, 16);
      for (const DecodeOptions& options : {segments, window}) {
        EXPECT_EQ(DecodePages(q, paged.pages(), none, options).out.ToVector(),
                  cache.Decode(q, none, options).out.ToVector());
      }
    }
  });
}

// One block may belong to several sequences: a shared prefix.
TEST(DecodePagesTest, SequencesMayShareBlocks) {
  const NoPosition none;
  const KvCache cache = Filled(none, DType::kF32, 64, 64);
  const Paged paged(cache, 16);
  KvPages pages = paged.pages();
  std::vector<int64_t> table(pages.block_table.begin(),
                             pages.block_table.begin() + 5);
  table.insert(table.end(), pages.block_table.begin(),
               pages.block_table.begin() + 5);
  pages.block_table = table;
  const Tensor one = RandomSequence(1, 1, 9).q;
  std::vector<float> twice(one.Data<float>(),
                           one.Data<float>() + one.NumElements());
  twice.insert(twice.end(), one.Data<float>(),
               one.Data<float>() + one.NumElements());
  const Tensor q =
      Tensor::From({2, kQueryHeads, 1, kHeadDim}, std::move(twice));
  const Tensor out = DecodePages(q, pages, none).out;
  EXPECT_EQ(Only(out, 0).ToVector(), Only(out, 1).ToVector());
}

TEST(DecodePagesTest, BitsDoNotDependOnThreads) {
  const Rope rope(kHeadDim, PairLayout::kHalves);
  const KvCache cache = Filled(rope, DType::kBF16, 3000, 2000);
  const Paged paged(cache, 16);
  const Tensor q = RandomSequence(1, 2, 9).q;
  const std::vector<double> out =
      DecodePages(q, paged.pages(), rope, {.threads = 1}).out.ToVector();
  for (int threads : {2, 7}) {
    EXPECT_EQ(DecodePages(q, paged.pages(), rope, {.threads = threads})
                  .out.ToVector(),
              out);
  }
}

TEST(DecodePagesTest, Refusals) {
  const NoPosition none;
  const KvCache cache = Filled(none, DType::kF32, 40, 20);
  const Paged paged(cache, 16);
  const Tensor q = RandomSequence(1, 2, 9).q;
  const auto error = [&](const auto& change,
                         const DecodeOptions& options = {}) {
    KvPages pages = paged.pages();
    std::vector<int64_t> table(pages.block_table.begin(),
                               pages.block_table.end());
    std::vector<int64_t> lengths(pages.lengths.begin(), pages.lengths.end());
    change(pages, table, lengths);
    pages.block_table = table;
    pages.lengths = lengths;
    return ErrorOf([&] { DecodePages(q, pages, none, options); });
  };
  using List = std::vector<int64_t>;
  EXPECT_EQ(error([](KvPages&, List& table, List&) { table[1] = 99; }),
            "block 1 of sequence 0 is 99, but there are 11 blocks");
  EXPECT_EQ(error([](KvPages&, List& table, List&) { table[5] = -1; }),
            "block 1 of sequence 1 is -1, but there are 11 blocks");
  EXPECT_EQ(error([](KvPages&, List&, List& lengths) { lengths[1] = 65; }),
            "sequence 1 has 4 blocks of 16 tokens, but length 65");
  EXPECT_EQ(error([](KvPages&, List&, List& lengths) { lengths[0] = -1; }),
            "sequence 0 has 4 blocks of 16 tokens, but length -1");
  EXPECT_EQ(error([](KvPages&, List&, List& lengths) { lengths.pop_back(); }),
            "lengths must have 2 entries, got 1");
  EXPECT_EQ(error([](KvPages&, List& table, List&) { table.pop_back(); }),
            "a block table of 7 entries does not divide into 2 sequences");
  EXPECT_EQ(error([](KvPages& p, List&, List&) { p.k = p.k.To(DType::kF64); }),
            "pages must be f32, bf16 or f16 [blocks, heads, block_size, dim], "
            "got f64 [11, 2, 16, 16] and f32 [11, 2, 16, 16]");
  EXPECT_EQ(
      error([](KvPages& p, List&, List&) {
        p.v = Tensor::Zeros(DType::kF32, {11, 2, 8, 16});
      }),
      "pages of keys and values must have the same blocks, heads and a "
      "block_size of at least 1, got f32 [11, 2, 16, 16] and f32 [11, 2, 8, "
      "16]");
  const std::vector<int64_t> two = {1, 1};
  EXPECT_EQ(error([](KvPages&, List&, List&) {}, {.key_lengths = two}),
            "pages have 2 lengths, so key_lengths must be empty, got 2");
}

}  // namespace
}  // namespace locus::testing
