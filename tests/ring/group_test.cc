// Agreement, disagreement and sums of ranks.
#include "locus/encodings/alibi.h"
#include "locus/encodings/none.h"
#include "locus/encodings/rope.h"
#include "ring/ranks.h"

namespace locus::testing {
namespace {

// The messages of all ranks, which must be equal.
std::string CommonError(const std::string& mine) {
  const ring::Group group(MPI_COMM_WORLD, 60.0);
  const std::vector<std::string> all = group.Gather(mine);
  for (const std::string& text : all) EXPECT_EQ(text, all[0]);
  return all[0];
}

struct Inputs {
  Tensor q, k, v;
};

Inputs Some(int64_t tokens, int64_t dim) {
  return {Tensor::Zeros(DType::kF32, {1, 2, tokens, dim}),
          Tensor::Zeros(DType::kF32, {1, 2, tokens, dim}),
          Tensor::Zeros(DType::kF32, {1, 2, tokens, dim})};
}

std::string AttentionError(const Inputs& x, const Encoding& encoding,
                           const ring::Options& options = {}) {
  return CommonError(ErrorOf([&] {
    ring::Attention(MPI_COMM_WORLD, x.q, x.k, x.v, encoding, options);
  }));
}

bool Last() { return Rank() + 1 == Ranks(); }

TEST(RingGroupTest, SumsInTheOrderOfRanks) {
  const ring::Group group(MPI_COMM_WORLD, 60.0);
  std::vector<double> numbers(23), expected(23);
  std::vector<float> floats(23);
  const auto value = [](int rank, size_t n) {
    return std::sin(static_cast<double>(n) + 100.0 * rank) *
           std::pow(10.0, rank);
  };
  for (size_t n = 0; n < numbers.size(); ++n) {
    numbers[n] = value(Rank(), n);
    floats[n] = static_cast<float>(numbers[n]);
    for (int r = 0; r < Ranks(); ++r) expected[n] += value(r, n);
  }
  group.Sum(std::span(numbers));
  group.Sum(std::span(floats));
  EXPECT_EQ(numbers, expected);
  for (size_t n = 0; n < floats.size(); ++n) {
    double sum = 0.0;
    for (int r = 0; r < Ranks(); ++r) {
      sum += static_cast<double>(static_cast<float>(value(r, n)));
    }
    EXPECT_EQ(floats[n], static_cast<float>(sum));
  }
  group.Barrier();
}

TEST(RingGroupTest, GathersTextsOfAnyLength) {
  const ring::Group group(MPI_COMM_WORLD, 60.0);
  const auto texts =
      group.Gather(std::string(static_cast<size_t>(Rank()), 'x'));
  ASSERT_EQ(static_cast<int>(texts.size()), Ranks());
  for (size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r].size(), r);
}

TEST(RingGroupTest, RefusesADeadlineOfNothing) {
  EXPECT_NE(ErrorOf([] {
              ring::Group(MPI_COMM_WORLD, 0.0);
            }).find("deadline must be positive, got 0"),
            std::string::npos);
}

TEST(RingGroupTest, DifferentHeadDims) {
  if (Ranks() == 1) return;
  EXPECT_EQ(AttentionError(Some(4, Last() ? 8 : 16), NoPosition()),
            "every rank must bring the same head dim: rank 0 has 16 and rank " +
                std::to_string(Ranks() - 1) + " has 8");
}

TEST(RingGroupTest, DifferentOptions) {
  if (Ranks() == 1) return;
  ring::Options options;
  options.attention.causal = Last();
  EXPECT_NE(AttentionError(Some(4, 8), NoPosition(), options).find("causal"),
            std::string::npos);
}

// Each operand differs on one rank, or is missing there.
TEST(RingGroupTest, DifferentOperands) {
  if (Ranks() == 1) return;
  const auto error = [](const AttentionOptions& mine) {
    return AttentionError(Some(4, 8), NoPosition(), {.attention = mine});
  };
  const auto expect = [&](const AttentionOptions& mine, const char* part) {
    const std::string text = error(mine);
    EXPECT_NE(text.find(std::string("every rank must bring the same ") + part),
              std::string::npos)
        << text;
  };
  const int64_t total = 4 * Ranks();
  const auto zeros = [](std::vector<int64_t> shape) {
    return Tensor::Zeros(DType::kF32, std::move(shape));
  };
  const std::vector<int64_t> prefix = {Last() ? 3 : 2};
  const std::vector<uint8_t> pairs(static_cast<size_t>(total), 1);
  expect({.prefix_lengths = prefix}, "prefix lengths: rank 0 has 2 and rank");
  expect({.mask = {.data = Last() ? nullptr : pairs.data(),
                   .shape = {1, 1, 1, total},
                   .strides = {0, 0, 0, 1}}},
         "mask: rank 0 has one and rank");
  expect({.key_bias = zeros({1, Last() ? 2 : 1, 4})},
         "key_bias, batch and heads: rank 0 has [1, 1] and rank");
  expect({.key_bias = Last() ? Tensor() : zeros({1, 1, 4})},
         "key_bias, batch and heads: rank 0 has [1, 1] and rank");
  expect({.pair_bias = Last() ? Tensor() : zeros({1, 1, 1, total})},
         "pair_bias: rank 0 has one and rank");
  expect({.sinks = Tensor::From({2}, std::vector<float>(2, Last() ? 1 : 2))},
         "sinks");
  expect({.table_queries = zeros({1, 2, 4, Last() ? 3 : 2})},
         "table_queries, width: rank 0 has [2] and rank");
  expect({.dropout = {.rate = 0.5, .seed = Last() ? 2U : 1U}},
         "dropout: rank 0 has 0.5 by seed 1");
}

// Operands that do not match the whole sequence, on one rank only.
TEST(RingGroupTest, OperandsThatDoNotFit) {
  const std::string who =
      Ranks() == 1 ? "" : "rank " + std::to_string(Ranks() - 1) + ": ";
  const int64_t total = 4 * Ranks();
  const auto error = [](const AttentionOptions& mine) {
    return AttentionError(Some(4, 8), NoPosition(), {.attention = mine});
  };
  const auto expect = [&](const AttentionOptions& mine,
                          const std::string& part) {
    const std::string text = error(mine);
    EXPECT_EQ(text.find(part), 0U) << text;
  };
  expect({.pair_bias = Tensor::Zeros(DType::kF32, {1, 1, 4, total + Last()})},
         who + "pair_bias must be [1, 2, 4, " + std::to_string(total) + "]");
  const std::vector<uint8_t> pairs(static_cast<size_t>(total) + 1, 1);
  expect({.mask = {.data = pairs.data(),
                   .shape = {1, 1, 1, total + Last()},
                   .strides = {0, 0, 0, 1}}},
         who + "the mask must be [1, 2, 4, " + std::to_string(total) + "]");
  expect({.dropout = {.rate = Last() ? 1.0 : 0.5}},
         who + "dropout must lie in");
  const std::vector<int64_t> prefix = {total + 1};
  expect({.prefix_lengths = prefix}, "a prefix length must lie in [0, ");
  expect({.table_queries = Tensor::Zeros(DType::kF32, {1, 2, 4, 8})},
         "table_queries");
}

// No kernel has a backward pass through such a table, and a rank without tokens
// would not notice by itself.
TEST(RingGroupTest, WhatTheEngineHasNoDriverFor) {
  const BucketMap map =
      BucketMap::Constant().WithSpecial(/*position=*/0, /*both=*/true);
  const GivenTerms by_pair(
      {.q_table =
           BucketTable{.rows = Tensor::Zeros(DType::kF32, {1, map.count, 8}),
                       .buckets = map}});
  const Inputs x = Some(Last() && Ranks() > 1 ? 0 : 4, 8);
  const AttentionResult forward =
      ring::Attention(MPI_COMM_WORLD, x.q, x.k, x.v, by_pair,
                      {.attention = {.return_lse = true}});
  const std::string text = CommonError(ErrorOf([&] {
    ring::AttentionBackward(MPI_COMM_WORLD, x.q, x.q, x.k, x.v, forward,
                            by_pair);
  }));
  EXPECT_NE(text.find("no backward pass through a table"), std::string::npos)
      << text;
}

TEST(RingGroupTest, DifferentEncodings) {
  if (Ranks() == 1) return;
  const Alibi alibi(2);
  const NoPosition none;
  const Encoding& mine = Last() ? static_cast<const Encoding&>(alibi) : none;
  EXPECT_NE(AttentionError(Some(4, 8), mine)
                .find("same encoding: rank 0 has none and rank"),
            std::string::npos);
}

// Equal names and no parameters, but different terms.
TEST(RingGroupTest, DifferentSettingsOfAnEncoding) {
  if (Ranks() == 1) return;
  const auto rope = FindEncoding("rope").example(
      {.heads = 2,
       .head_dim = 8,
       .options = {{"base", Last() ? "500000" : "10000"}}});
  EXPECT_NE(AttentionError(Some(4, 8), *rope).find("with the same settings"),
            std::string::npos);
}

TEST(RingGroupTest, DifferentParameters) {
  if (Ranks() == 1) return;
  const auto t5 = FindEncoding("t5").example(
      {.heads = 2, .head_dim = 8, .seed = Last() ? 2U : 1U});
  EXPECT_NE(AttentionError(Some(4, 8), *t5).find("parameters of the encoding"),
            std::string::npos);
}

// If one rank cannot take part, all report its error.
TEST(RingGroupTest, ABadShapeOnOneRank) {
  Inputs x = Some(4, 8);
  if (Last()) x.v = Tensor::Zeros(DType::kF32, {1, 2, 3, 8});
  const std::string error = AttentionError(x, NoPosition());
  const std::string who =
      Ranks() == 1 ? "" : "rank " + std::to_string(Ranks() - 1) + ": ";
  EXPECT_EQ(error.find(who + "q "), 0U) << error;
}

TEST(RingGroupTest, ShardsOfTheWrongSize) {
  if (Ranks() == 1) return;
  ring::Options options{.sharding = ring::Sharding::kZigzag};
  const std::string error =
      AttentionError(Some(Last() ? 40 : 4, 8), NoPosition(), options);
  EXPECT_NE(error.find("zigzag sharding of"), std::string::npos) << error;
}

TEST(RingGroupTest, UnknownSharding) {
  EXPECT_NE(ErrorOf([] {
              ring::FindSharding("spiral");
            }).find("no sharding 'spiral'; known values: contiguous"),
            std::string::npos);
}

// Shards are disjoint and cover the sequence.
TEST(RingGroupTest, ShardsCoverTheSequence) {
  for (ring::Sharding sharding : kShardings) {
    for (int64_t length : {0, 1, 13, 64}) {
      std::vector<int> seen(static_cast<size_t>(length));
      for (int r = 0; r < 5; ++r) {
        for (const ring::Chunk& c : ring::Shard(sharding, length, r, 5)) {
          for (int64_t i = 0; i < c.count; ++i) {
            ++seen.at(static_cast<size_t>(c.first + i * c.stride));
          }
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    }
  }
}

}  // namespace
}  // namespace locus::testing
