// The cache of keys and values against attention over whole sequences.
#include "kernels/cache/calls.h"

namespace locus::testing {
namespace {

TEST(KvCacheTest, TokenByTokenEqualsTheCausalRun) {
  OnEveryTarget([] {
    constexpr int64_t kLength = 37;
    for (const EncodingInfo& info : Encodings()) {
      SCOPED_TRACE(info.name);
      const auto encoding = info.example(
          {.heads = kQueryHeads, .head_dim = kHeadDim, .length = kLength});
      const Sequence x = RandomSequence(kLength);
      const std::vector<int64_t> positions = PositionsOf(info, kLength);
      const AttentionResult whole = Attention(x.q, x.k, x.v, *encoding,
                                              {.causal = true,
                                               .q_positions = positions,
                                               .k_positions = positions,
                                               .return_lse = true});
      KvCache cache(Config());
      // A prompt of seven tokens, then one by one.
      for (int64_t i = 0; i < kLength; i = i == 0 ? 7 : i + 1) {
        const int64_t end = i == 0 ? 7 : i + 1;
        cache.Append(Part(x.k, i, end), Part(x.v, i, end), *encoding,
                     {.positions = Part(positions, i, end)});
        const AttentionResult step =
            cache.Decode(Part(x.q, i, end), *encoding, {.return_lse = true});
        // Two runs, each within the tolerance of the exact result.
        EXPECT_LE(RelativeError(step.out, Part(whole.out, i, end)),
                  2 * kTolerance)
            << "token " << i;
        for (int64_t h = 0; h < kQueryHeads; ++h) {
          const double lse = whole.lse.At(0, h, end - 1);
          EXPECT_NEAR(step.lse.At(0, h, end - 1 - i), lse,
                      2 * kTolerance * std::max(1.0, std::abs(lse)));
        }
      }
      EXPECT_EQ(cache.size(), kLength);
      EXPECT_TRUE(std::ranges::equal(cache.positions(), positions));
    }
  });
}

// Every driver supports keys of another type than the queries, including calls
// with few of both.
TEST(KvCacheTest, StorageOfAnotherTypeAtEveryLength) {
  OnEveryTarget([] {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      for (int64_t keys : {1, 2, 3, 4, 40, 300}) {
        for (int64_t queries : {1, 2, 5, 40}) {
          SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " "
                                            << queries << " over " << keys);
          const Sequence x = RandomSequence(std::max(keys, queries));
          const Tensor k = Part(x.k, 0, keys), v = Part(x.v, 0, keys);
          KvCache cache(Config(1, dtype));
          cache.Append(k, v, Terms());
          const Tensor q = Part(x.q, 0, queries);
          const Tensor stored_k = k.To(dtype).To(DType::kF32);
          const Tensor stored_v = v.To(dtype).To(DType::kF32);
          const reference::Forward expected =
              reference::Attention(q, stored_k, stored_v, Terms());
          const Tensor out = cache.Decode(q, Terms(), {.causal = false}).out;
          EXPECT_LE(RelativeError(out, expected.out), kTolerance);
        }
      }
    }
  });
}

// More queries than the decode driver accepts, over rotated and unrotated keys.
TEST(KvCacheTest, ManyQueriesEqualTheCausalRun) {
  constexpr int64_t kLength = 150;
  for (std::string_view name : {"rope", "xpos", "alibi", "shaw"}) {
    SCOPED_TRACE(name);
    const auto encoding = FindEncoding(name).example(
        {.heads = kQueryHeads, .head_dim = kHeadDim, .length = kLength});
    const Sequence x = RandomSequence(kLength);
    const AttentionResult whole =
        Attention(x.q, x.k, x.v, *encoding, {.causal = true});
    KvCache cache(Config());
    for (int64_t i : {0, 50, 100}) {
      cache.Append(Part(x.k, i, i + 50), Part(x.v, i, i + 50), *encoding);
      const Tensor out = cache.Decode(Part(x.q, i, i + 50), *encoding).out;
      EXPECT_LE(RelativeError(out, Part(whole.out, i, i + 50)), 2 * kTolerance);
    }
  }
}

// A tree of drafts after a prompt: siblings share a position, and a mask lets
// each token see its ancestors. Must equal running each path alone.
TEST(KvCacheTest, TreesOfDrafts) {
  constexpr int64_t kPrompt = 40, kNodes = 7;
  constexpr int64_t kParents[kNodes] = {-1, 0, 0, 1, 1, 2, 5};
  const Sequence x = RandomSequence(kPrompt + kNodes);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < kPrompt; ++i) positions.push_back(i);
  std::vector<uint8_t> sees(kNodes * (kPrompt + kNodes), 0);
  for (int64_t node = 0; node < kNodes; ++node) {
    const auto row = sees.begin() + node * (kPrompt + kNodes);
    std::fill(row, row + kPrompt, uint8_t{1});
    int64_t depth = 0;
    for (int64_t at = node; at >= 0; at = kParents[at], ++depth) {
      row[kPrompt + at] = 1;
    }
    positions.push_back(kPrompt + depth - 1);
  }
  const Terms terms = RopeTerms(10000.0);
  KvCache cache(Config());
  cache.Append(x.k, x.v, terms, {.positions = positions});
  const Tensor q = Part(x.q, kPrompt, kPrompt + kNodes);
  DecodeOptions options;
  options.q_positions = std::span(positions).subspan(kPrompt);
  options.mask = {.data = sees.data(),
                  .shape = {1, 1, kNodes, kPrompt + kNodes},
                  .strides = {0, 0, kPrompt + kNodes, 1}};
  const Tensor tree = cache.Decode(q, terms, options).out;
  for (int64_t node = 0; node < kNodes; ++node) {
    KvCache alone(Config());
    for (int64_t j = 0; j < kPrompt + kNodes; ++j) {
      if (sees[static_cast<size_t>(node * (kPrompt + kNodes) + j)] == 0) {
        continue;
      }
      alone.Append(Part(x.k, j, j + 1), Part(x.v, j, j + 1), terms);
    }
    EXPECT_LE(RelativeError(Part(tree, node, node + 1),
                            alone.Decode(Part(q, node, node + 1), terms).out),
              2 * kTolerance)
        << "node " << node;
  }
}

// Causal by default, as for text; not causal if requested.
TEST(KvCacheTest, QueriesAreCausalUnlessAskedOtherwise) {
  const Sequence x = RandomSequence(70);
  const Terms terms = RopeTerms(10000.0);
  KvCache cache(Config());
  cache.Append(x.k, x.v, terms);
  for (int64_t queries : {3, 70}) {
    const Tensor q = Part(x.q, 70 - queries, 70);
    const auto expect = [&](const DecodeOptions& options, bool causal) {
      EXPECT_LE(
          RelativeError(cache.Decode(q, terms, options).out,
                        Attention(q, x.k, x.v, terms, {.causal = causal}).out),
          2 * kTolerance);
    };
    expect({}, true);
    expect({.threads = 1}, true);
    expect({.causal = false}, false);
    expect(DecodeOptions::From({}), false);
    expect(DecodeOptions::From({.causal = true}), true);
  }
}

// No queries and no tokens: no position that a term might have no row for.
TEST(KvCacheTest, NothingOverNothing) {
  const Tensor none = RandomTensor({1, kQueryHeads, 0, kHeadDim}, 1);
  Terms terms;
  terms.extra_dot = ExtraDot{.q_rows = RandomTensor({1, 3, 4}, 2),
                             .k_rows = RandomTensor({1, 3, 4}, 3),
                             .first_position = -1000};
  terms.scale = {.rows = RandomTensor({1, 3}, 4), .first_position = 1000};
  const KvCache cache(Config());
  const Tensor out = cache.Decode(none.To(DType::kF32), terms).out;
  EXPECT_EQ(out.shape(), (std::vector<int64_t>{1, kQueryHeads, 0, kHeadDim}));
}

TEST(KvCacheTest, GrowthChangesNothing) {
  const Sequence x = RandomSequence(300);
  const Terms terms = RopeTerms(10000.0);
  KvCacheConfig config = Config();
  config.capacity = 300;
  KvCache large(config), grown(Config());
  large.Append(x.k, x.v, terms);
  EXPECT_EQ(large.capacity(), 300);
  EXPECT_EQ(grown.capacity(), 0);
  for (int64_t i = 0; i < 300; i += 25) {
    grown.Append(Part(x.k, i, i + 25), Part(x.v, i, i + 25), terms);
  }
  EXPECT_GE(grown.capacity(), 300);
  EXPECT_EQ(grown.keys().ToVector(), large.keys().ToVector());
  EXPECT_EQ(grown.values().ToVector(), large.values().ToVector());
  const Tensor q = Part(x.q, 299, 300);
  EXPECT_EQ(grown.Decode(q, terms).out.ToVector(),
            large.Decode(q, terms).out.ToVector());
}

TEST(KvCacheTest, NarrowStorageRoundsOnce) {
  const Sequence x = RandomSequence(200);
  const Terms terms = RopeTerms(10000.0);
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    KvCache cache(Config(1, dtype));
    cache.Append(x.k, x.v, terms);
    EXPECT_EQ(cache.keys().dtype(), dtype);
    const double rounding = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
    const Tensor rotated = Rotate(x.k, *terms.rotate);
    EXPECT_LE(RelativeError(cache.keys(), rotated), rounding + 2 * kEps);
    EXPECT_EQ(cache.values().ToVector(), x.v.To(dtype).ToVector());
    // The exact result for the rounded keys and values; queries are f32.
    Terms rest = terms;
    rest.rotate.reset();
    AttentionOptions options;
    options.causal = true;
    const Tensor q = Part(x.q, 198, 200);
    const std::vector<int64_t> positions = {198, 199};
    const reference::Forward expected =
        reference::Attention(Rotate(q, *terms.rotate, positions), cache.keys(),
                             cache.values(), rest, options);
    const Tensor out = cache.Decode(q, terms).out;
    EXPECT_EQ(out.dtype(), DType::kF32);
    EXPECT_LE(RelativeError(out, expected.out), 2 * kTolerance);
    EXPECT_EQ(cache.Decode(q.To(dtype), terms).out.dtype(), dtype);
  }
}

// Sequences of different lengths in a batch equal running each alone.
TEST(KvCacheTest, RaggedBatchesEqualSingleSequences) {
  for (std::string_view name : {"rope", "xpos", "t5"}) {
    SCOPED_TRACE(name);
    const auto encoding = FindEncoding(name).example(
        {.heads = kQueryHeads, .head_dim = kHeadDim, .length = 30});
    const Sequence x = RandomSequence(30, /*batch=*/3);
    const std::vector<int64_t> prompt = {5, 20, 0};
    KvCache batch(Config(3));
    batch.Append(Part(x.k, 0, 20), Part(x.v, 0, 20), *encoding,
                 {.lengths = prompt});
    batch.Append(Part(x.k, 20, 22), Part(x.v, 20, 22), *encoding);
    EXPECT_EQ(batch.size(), 22);
    const Tensor q = Part(x.q, 20, 22);
    const AttentionResult all =
        batch.Decode(q, *encoding, {.return_lse = true});
    for (int64_t b = 0; b < 3; ++b) {
      KvCache one(Config());
      const int64_t length = prompt[static_cast<size_t>(b)];
      const Tensor k = Only(x.k, b), v = Only(x.v, b);
      one.Append(Part(k, 0, length), Part(v, 0, length), *encoding);
      one.Append(Part(k, 20, 22), Part(v, 20, 22), *encoding);
      EXPECT_EQ(batch.size(b), length + 2);
      EXPECT_TRUE(std::ranges::equal(batch.positions(b), one.positions()));
      const AttentionResult alone = one.Decode(Only(q, b), *encoding);
      EXPECT_LE(RelativeError(Only(all.out, b), alone.out), 2 * kTolerance);
    }
  }
}

TEST(KvCacheTest, KeyLengthsHideTheRest) {
  const Sequence x = RandomSequence(20, /*batch=*/2);
  const Terms terms = RopeTerms(10000.0);
  KvCache whole(Config(2));
  whole.Append(x.k, x.v, terms);
  const std::vector<int64_t> lengths = {20, 6};
  const Tensor q = Part(x.q, 0, 1);
  const Tensor out = whole.Decode(q, terms, {.key_lengths = lengths}).out;
  for (int64_t b = 0; b < 2; ++b) {
    const int64_t length = lengths[static_cast<size_t>(b)];
    KvCache part(Config());
    part.Append(Part(Only(x.k, b), 0, length), Part(Only(x.v, b), 0, length),
                terms);
    EXPECT_LE(RelativeError(Only(out, b), part.Decode(Only(q, b), terms).out),
              2 * kTolerance);
  }
}

// Different positions for each sequence, out of order.
TEST(KvCacheTest, ScatteredPositionsEqualAttention) {
  const Sequence x = RandomSequence(4, /*batch=*/2);
  const std::vector<int64_t> positions = {9, 3, 70, 5, 0, 1, 2, 100};
  const std::vector<int64_t> last = {70, 100};
  for (std::string_view name : {"rope", "alibi", "xpos"}) {
    SCOPED_TRACE(name);
    const auto encoding = FindEncoding(name).example(
        {.heads = kQueryHeads, .head_dim = kHeadDim, .length = 128});
    KvCache cache(Config(2));
    cache.Append(x.k, x.v, *encoding, {.positions = positions});
    const Tensor q = Part(x.q, 0, 1);
    AttentionOptions options{.causal = true, .q_positions = last};
    const Tensor out =
        cache.Decode(q, *encoding, DecodeOptions::From(options)).out;
    options.k_positions = positions;
    EXPECT_LE(
        RelativeError(out, Attention(q, x.k, x.v, *encoding, options).out),
        2 * kTolerance);
  }
}

// Over the cached tokens, in the order in which they were appended.
TEST(KvCacheTest, WeightsEqualAttention) {
  const Sequence all = RandomSequence(300, /*batch=*/2);
  const Terms terms = RopeTerms(100.0);
  for (const bool scattered : {false, true}) {
    std::vector<int64_t> positions;
    for (int64_t j = 0; j < 300; ++j) {
      positions.push_back(scattered ? j * 7 % 300 : j);
    }
    for (const int64_t queries : {1, 60}) {
      KvCache cache(Config(2));
      cache.Append(all.k, all.v, terms, {.positions = positions});
      const Tensor q = Part(all.q, 300 - queries, 300);
      const std::span<const int64_t> q_positions =
          Part(positions, 300 - queries, 300);
      const AttentionResult actual = cache.Decode(
          q, terms, {.q_positions = q_positions, .return_weights = true});
      const reference::Forward expected =
          reference::Attention(q, all.k, all.v, terms,
                               {.causal = true,
                                .q_positions = q_positions,
                                .k_positions = positions,
                                .return_weights = true});
      EXPECT_LE(RelativeError(actual.weights, expected.weights), kTolerance);
      EXPECT_LE(RelativeError(actual.out, expected.out), kTolerance);
    }
  }
}

TEST(KvCacheTest, TruncateKeepsTheFirstTokens) {
  const Sequence x = RandomSequence(20);
  const Terms terms = RopeTerms(10000.0);
  KvCache cache(Config()), expected(Config());
  cache.Append(x.k, x.v, terms);
  cache.Truncate(12);
  cache.Truncate(15);
  EXPECT_EQ(cache.size(), 12);
  cache.Append(Part(x.k, 3, 5), Part(x.v, 3, 5), terms);
  expected.Append(Part(x.k, 0, 12), Part(x.v, 0, 12), terms);
  expected.Append(Part(x.k, 3, 5), Part(x.v, 3, 5), terms);
  EXPECT_EQ(cache.keys().ToVector(), expected.keys().ToVector());
  EXPECT_EQ(cache.positions().back(), 13);
  cache.Truncate(0);
  const AttentionResult none = cache.Decode(x.q, terms, {.return_lse = true});
  for (double value : none.out.ToVector()) EXPECT_EQ(value, 0.0);
  for (double value : none.lse.ToVector()) EXPECT_EQ(value, -INFINITY);
}

TEST(KvCacheTest, BitsDoNotDependOnThreads) {
  const Sequence x = RandomSequence(3000, /*batch=*/2);
  const Terms terms = RopeTerms(10000.0);
  KvCache one(Config(2, DType::kBF16)), many(Config(2, DType::kBF16));
  one.Append(x.k, x.v, terms, {.threads = 1});
  many.Append(x.k, x.v, terms, {.threads = 5});
  EXPECT_EQ(one.keys().ToVector(), many.keys().ToVector());
  const Tensor q = Part(x.q, 2998, 3000);
  const std::vector<double> out =
      one.Decode(q, terms, {.threads = 1}).out.ToVector();
  for (int threads : {2, 3, 7}) {
    EXPECT_EQ(one.Decode(q, terms, {.threads = threads}).out.ToVector(), out);
  }
}

TEST(KvCacheTest, RefusesWhatDoesNotFit) {
  const Sequence x = RandomSequence(3);
  const Terms terms;
  EXPECT_EQ(ErrorOf([] { KvCache({.head_dim = 0}); }),
            "a cache needs a batch, heads and head dims of at least 1, got "
            "batch 1, 1 heads, dims 0 and 0");
  EXPECT_EQ(ErrorOf([] { KvCache({.head_dim = 8, .dtype = DType::kF64}); }),
            "a cache stores f32, bf16, f16 or i8, not f64");
  EXPECT_EQ(
      ErrorOf([] { KvCache({.kv_heads = 2, .head_dim = 8, .q_heads = 3}); }),
      "3 query heads cannot share 2 key heads");
  EXPECT_EQ(ErrorOf([] { KvCache({.head_dim = 8, .capacity = -1}); }),
            "a cache's capacity must not be negative, got -1");
  KvCache cache(Config());
  EXPECT_EQ(ErrorOf([&] { cache.Append(x.q, x.v, terms); }),
            "the cache takes k [1, 2, n, 16] and v [1, 2, n, 16], got f32 [1, "
            "4, 3, 16], f32 [1, 2, 3, 16]");
  const std::vector<int64_t> two = {0, 1};
  EXPECT_EQ(ErrorOf([&] { cache.Append(x.k, x.v, terms, {.positions = two}); }),
            "positions must number 3 or 3, got 2");
  EXPECT_EQ(ErrorOf([&] { cache.Append(x.k, x.v, terms, {.lengths = two}); }),
            "lengths must have 1 entries, got 2");
  const std::vector<int64_t> four = {4};
  EXPECT_EQ(ErrorOf([&] { cache.Append(x.k, x.v, terms, {.lengths = four}); }),
            "a length must lie in [0, 3], got 4");
  EXPECT_EQ(cache.size(), 0);
  cache.Append(Part(x.k, 0, 2), Part(x.v, 0, 2), terms);
  EXPECT_EQ(ErrorOf([&] {
              cache.Decode(Part(x.q, 0, 1), terms,
                           DecodeOptions::From({.k_positions = two}));
            }),
            "a cache knows its k_positions: give them to Append, not to "
            "Decode");
  EXPECT_EQ(ErrorOf([&] {
              cache.Decode(Part(x.q, 0, 1), terms, {.key_lengths = four});
            }),
            "a key length of sequence 0 must lie in [0, 2], got 4");
  EXPECT_EQ(ErrorOf([&] { cache.Decode(x.q.To(DType::kF64), terms); }),
            "q must be f32, bf16 or f16 [batch, heads, length, dim], got f64 "
            "[1, 4, 3, 16]");
  EXPECT_EQ(ErrorOf([&] { cache.positions(1); }),
            "a cache of 1 sequences has no sequence 1");
  EXPECT_EQ(ErrorOf([&] { cache.Truncate(-1); }),
            "a cache cannot keep -1 tokens");
}

}  // namespace
}  // namespace locus::testing
