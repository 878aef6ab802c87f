// Operands of a call besides its terms, and every term, on all ranks: forward,
// weights and all gradients against a single process in float64.
#include "ring/ranks.h"

namespace locus::testing {
namespace {

// The bits of CallMaker::AddOperands.
enum OperandBit : unsigned {
  kSinks = 1,
  kKeyBias = 2,
  kPairBias = 4,
  kMask = 8,
  kPrefix = 16,
  kChunk = 32,
  kDropout = 64,
  kTableQueries = 128,
  kScaleRows = 256,
  kWeights = 512,
  kAllOperands = 1023,
};
static_assert(kAllOperands + 1 == 1U << CallMaker::kOperands);

// Odd lengths, two sequences, grouped heads, every term. Positions are random,
// or the ring's defaults.
Call OperandCall(unsigned operands, uint64_t seed, bool counted,
                 int64_t keys = 13) {
  CallMaker maker({.q_len = counted ? keys : keys - 2,
                   .k_len = keys,
                   .bias_kind = static_cast<int>(seed % 3),
                   .seed = seed});
  Call call = maker.Make();
  maker.AddOperands(call, operands);
  if (counted) {
    call.q_pos.clear();
    call.k_pos.clear();
  }
  return AsFloat(call);
}

void ExpectEqual(const Call& call, ring::Sharding sharding) {
  SCOPED_TRACE(ring::ShardingName(sharding));
  const GivenTerms encoding(call.terms);
  const Expected expected(call, encoding, /*with_d_lse=*/true);
  ExpectRingEqualsWhole(call, encoding, expected, sharding);
}

class EveryOperand : public ::testing::TestWithParam<unsigned> {};

TEST_P(EveryOperand, EqualsOneProcess) {
  const unsigned operand = 1U << GetParam();
  for (bool causal : {false, true}) {
    for (ring::Sharding sharding : kShardings) {
      SCOPED_TRACE(::testing::Message() << "causal " << causal);
      Call call = OperandCall(operand, 10 * operand + causal, causal);
      call.options.causal = causal;
      ExpectEqual(call, sharding);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ring, EveryOperand,
                         ::testing::Range(0U, CallMaker::kOperands));

// Each operand combined with each other one.
TEST(RingOperandsTest, Pairs) {
  uint64_t seed = 100;
  for (unsigned a = 0; a < CallMaker::kOperands; ++a) {
    for (unsigned b = a + 1; b < CallMaker::kOperands; ++b, ++seed) {
      SCOPED_TRACE(::testing::Message() << "operands " << a << " and " << b);
      Call call = OperandCall(1U << a | 1U << b, seed, seed % 2 == 0);
      call.options.causal = seed % 4 < 2;
      ExpectEqual(call, kShardings[seed % 3]);
    }
  }
}

// All operands together, with every option as well.
TEST(RingOperandsTest, AllTogether) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Call call = OperandCall(kAllOperands, seed, /*counted=*/false);
    CallMaker({.q_len = 11, .k_len = 13, .seed = seed + 50}).AddOptions(call);
    for (ring::Sharding sharding : kShardings) ExpectEqual(call, sharding);
  }
}

// If a window leaves one range on either side of a pair of pieces, the engine
// gets only that, including its operands.
TEST(RingOperandsTest, WhatAWindowCutsOff) {
  for (bool causal : {false, true}) {
    Call call = OperandCall(kAllOperands & ~(kPrefix | kChunk), 20 + causal,
                            /*counted=*/true, /*keys=*/37);
    call.options.causal = causal;
    call.options.window = Window{.left = 3, .right = 2};
    for (ring::Sharding sharding : kShardings) ExpectEqual(call, sharding);
  }
}

// Rotated values with outputs rotated back, rotations by several axes, tables,
// extra dimensions and biases, as drawn.
TEST(RingOperandsTest, EveryTerm) {
  for (uint64_t seed = 200; seed < 206; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Call call = OperandCall(0, seed, /*counted=*/false);
    ASSERT_TRUE(call.terms.rotate_values);
    call.terms.rotate_values->relative = seed % 2 == 0;
    call.options.causal = seed % 3 == 0;
    for (ring::Sharding sharding : kShardings) ExpectEqual(call, sharding);
  }
}

TEST(RingOperandsTest, TheSameBitsFromRunToRun) {
  const Call call = OperandCall(kAllOperands, 7, /*counted=*/false);
  const GivenTerms encoding(call.terms);
  const Tensor d_out = RandomTensor({2, 4, 11, 3}, 4).To(DType::kF32);
  const Tensor d_lse = RandomTensor({2, 4, 11}, 5);
  for (ring::Sharding sharding : kShardings) {
    SCOPED_TRACE(ring::ShardingName(sharding));
    const RankCall mine(call, d_out, ring::Shard(sharding, 11, Rank(), Ranks()),
                        ring::Shard(sharding, 13, Rank(), Ranks()), sharding);
    const RingResult first = RunRing(mine, encoding, d_lse);
    const RingResult second = RunRing(mine, encoding, d_lse);
    ExpectSameBits(first, second);
    ExpectSameBits<float>(first.forward.weights, second.forward.weights);
  }
}

// Every operand in a narrow type, and gradients in that type.
TEST(RingOperandsTest, NarrowTypes) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    Call call = OperandCall(kAllOperands, 9, /*counted=*/false);
    AttentionOptions& o = call.options;
    for (Tensor* x : {&call.q, &call.k, &call.v, &o.key_bias, &o.pair_bias,
                      &o.sinks, &o.table_queries}) {
      *x = x->To(dtype);
    }
    for (ring::Sharding sharding : kShardings) ExpectEqual(call, sharding);
  }
}

// Rank 1 has no tokens, and passes no operands of tokens.
TEST(RingOperandsTest, ARankWithoutTokensBringsNothing) {
  const Call call = OperandCall(kAllOperands, 11, /*counted=*/false);
  const GivenTerms encoding(call.terms);
  const Expected expected(call, encoding, /*with_d_lse=*/true);
  const auto mine = [](int64_t length) {
    int64_t first = 0, count = 0;
    for (int r = 0; r <= Rank(); ++r) {
      first += count;
      count = r + 1 == Ranks() ? length - first : r == 1 ? 0 : 2;
    }
    return std::vector<ring::Chunk>{{.first = first, .count = count}};
  };
  RankCall part(call, expected.d_out, mine(11), mine(13),
                ring::Sharding::kContiguous);
  const bool nothing = part.queries[0].count == 0;
  if (nothing) {
    AttentionOptions& o = part.options.attention;
    o.key_bias = o.pair_bias = o.table_queries = {};
    o.mask = {};
  }
  const RingResult result = RunRing(part, encoding, expected.d_lse);
  if (!nothing) {
    ExpectEqualsWhole(part, expected, call, result);
    return;
  }
  EXPECT_FALSE(result.grads.operands.key_bias.defined());
  EXPECT_FALSE(result.grads.operands.pair_bias.defined());
  EXPECT_FALSE(result.grads.operands.table_queries.defined());
  EXPECT_LE(
      RelativeError(result.grads.operands.sinks, expected.grads.operands.sinks),
      GradTolerance(call));
  // The other ranks sum their contributions to a row for all queries.
  if (call.options.pair_bias.size(2) == 1) {
    SumOverRanks(Tensor::Zeros(DType::kF64, call.options.pair_bias.shape()));
  }
}

// Scores of 0 over n keys and one sink z: lse = ln(e^z + n), for any number of
// ranks. A sink per rank or per block would count several times.
TEST(RingOperandsTest, ASinkCountsOnce) {
  constexpr int64_t kTokens = 12;
  constexpr double kSink = 2.0;
  const Tensor sinks = Tensor::From({1}, std::vector<double>{kSink});
  const double sum = std::exp(kSink) + kTokens;
  const NoPosition none;
  for (ring::Sharding sharding : kShardings) {
    SCOPED_TRACE(ring::ShardingName(sharding));
    const int64_t own = TakeIds(std::vector<int64_t>(kTokens), 1,
                                ring::Shard(sharding, kTokens, Rank(), Ranks()))
                            .size();
    const Tensor q = Tensor::Zeros(DType::kF32, {1, 1, own, 4});
    const Tensor ones = Tensor::From(
        {1, 1, own, 4}, std::vector<float>(static_cast<size_t>(4 * own), 1.0F));
    const ring::Options options{
        .attention = {.sinks = sinks, .return_lse = true},
        .sharding = sharding};
    const AttentionResult result =
        ring::Attention(MPI_COMM_WORLD, q, q, ones, none, options);
    for (int64_t i = 0; i < own; ++i) {
      EXPECT_NEAR(result.lse.At(0, 0, i), std::log(sum), 1e-6);
      EXPECT_NEAR(result.out.At(0, 0, i, 0), kTokens / sum, 1e-6);
    }
    // out = n / (e^z + n) in 4 channels of every token:
    // d z = -4 n (e^z / sum) (n / sum).
    const EncodingGrads grads = ring::AttentionBackward(
        MPI_COMM_WORLD, ones, q, q, ones, result, none, options);
    EXPECT_NEAR(grads.operands.sinks.At(0),
                -4.0 * kTokens * std::exp(kSink) * kTokens / (sum * sum), 1e-5);
  }
}

// A ring drops exactly the weights that a single process drops.
TEST(RingOperandsTest, DropsWhatOneProcessDrops) {
  constexpr int64_t kTokens = 29;
  const Tensor x = Tensor::Zeros(DType::kF32, {1, 2, kTokens, 4});
  AttentionOptions options{.dropout = {.rate = 0.5, .seed = 3},
                           .return_weights = true};
  const Tensor whole = Attention(x, x, x, NoPosition(), options).weights;
  for (ring::Sharding sharding : kShardings) {
    SCOPED_TRACE(ring::ShardingName(sharding));
    const auto chunks = ring::Shard(sharding, kTokens, Rank(), Ranks());
    const Tensor part = ring::TakeShard(x, chunks);
    const Tensor weights =
        ring::Attention(MPI_COMM_WORLD, part, part, part, NoPosition(),
                        {.attention = options, .sharding = sharding})
            .weights;
    const std::vector<double> mine = weights.ToVector();
    const std::vector<double> same = ring::TakeShard(whole, chunks).ToVector();
    ASSERT_EQ(mine.size(), same.size());
    for (size_t n = 0; n < mine.size(); ++n) {
      ASSERT_EQ(mine[n] == 0.0, same[n] == 0.0);
    }
  }
}

// Chunks coincide with shards, so no block has to travel.
TEST(RingOperandsTest, ChunksKeepBlocksAtHome) {
  const Tensor x = Tensor::Zeros(DType::kF32, {1, 1, 5, 4});
  ring::Stats stats;
  ring::Attention(MPI_COMM_WORLD, x, x, x, NoPosition(),
                  {.attention = {.chunk = 5}, .stats = &stats});
  EXPECT_EQ(stats.pairs_computed, 1);
  EXPECT_EQ(stats.bytes_sent, 0);
}

// A causal ring sends blocks only forwards. Those of a prefix go everywhere.
TEST(RingOperandsTest, APrefixIsSeenFromBefore) {
  const Tensor x = RandomTensor({1, 1, 5, 4}, 1).To(DType::kF32);
  const std::vector<int64_t> prefix = {5 * Ranks()};
  const ring::Options all{.attention = {.return_lse = true}};
  ring::Options options = all;
  options.attention.causal = true;
  options.attention.prefix_lengths = prefix;
  ring::Stats stats;
  options.stats = &stats;
  const NoPosition none;
  const auto run = [&](const ring::Options& how) {
    return ring::Attention(MPI_COMM_WORLD, x, x, x, none, how);
  };
  EXPECT_LE(RelativeError(run(options).out, run(all).out),
            2.0 * ForwardTolerance({.q = x}));
  EXPECT_EQ(stats.pairs_computed, Ranks());
}

}  // namespace
}  // namespace locus::testing
