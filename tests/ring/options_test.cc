// Options, uneven shards and element types.
#include "ring/ranks.h"

namespace locus::testing {
namespace {

const Encoding& Shaw() {
  static const auto encoding =
      FindEncoding("shaw").example({.heads = 4, .head_dim = 16, .length = 40});
  return *encoding;
}

// Two sequences of odd length, grouped heads, another value dim, and the ring's
// default positions.
Call PlainCall(int64_t q_len = 53, int64_t k_len = 53) {
  Call call;
  call.q = RandomTensor({2, 4, q_len, 16}, 1);
  call.k = RandomTensor({2, 2, k_len, 16}, 2);
  call.v = RandomTensor({2, 2, k_len, 16}, 3);
  return AsFloat(call);
}

void ExpectEverySharding(const Call& call, const Encoding& encoding) {
  const Expected expected(call, encoding);
  for (ring::Sharding sharding : kShardings) {
    SCOPED_TRACE(ring::ShardingName(sharding));
    ExpectRingEqualsWhole(call, encoding, expected, sharding);
  }
}

TEST(RingOptionsTest, Window) {
  for (bool causal : {false, true}) {
    Call call = PlainCall();
    call.options.causal = causal;
    call.options.window = Window{.left = 5, .right = 2};
    ExpectEverySharding(call, Shaw());
  }
}

TEST(RingOptionsTest, SoftcapAndScale) {
  Call call = PlainCall();
  call.options.softcap = 2.0;
  call.options.scale = 0.4;
  ExpectEverySharding(call, Shaw());
}

TEST(RingOptionsTest, KeyLengths) {
  Call call = PlainCall();
  call.options.causal = true;
  call.key_lengths = {31, 0};
  ExpectEverySharding(call, Shaw());
  call.options.window = Window{.left = 7, .right = 0};
  ExpectEverySharding(call, Shaw());
}

TEST(RingOptionsTest, PackedSequences) {
  const PackedTokens packed = Pack(std::vector<int64_t>{20, 1, 32});
  for (bool causal : {false, true}) {
    Call call = PlainCall();
    call.options.causal = causal;
    for (int b = 0; b < 2; ++b) {
      call.q_pos.insert(call.q_pos.end(), packed.positions.begin(),
                        packed.positions.end());
      call.q_seg.insert(call.q_seg.end(), packed.segments.begin(),
                        packed.segments.end());
    }
    call.k_pos = call.q_pos;
    call.k_seg = call.q_seg;
    ExpectEverySharding(call, Shaw());
  }
}

TEST(RingOptionsTest, PositionsOfEachSequence) {
  Call call = PlainCall();
  call.options.causal = true;
  for (int64_t n = 0; n < 2 * 53; ++n) call.q_pos.push_back(n * 7 % 53);
  call.k_pos = call.q_pos;
  ExpectEverySharding(call, Shaw());
}

TEST(RingOptionsTest, FewerQueriesThanKeys) {
  Call call = PlainCall(19, 53);
  call.options.causal = true;
  ExpectEverySharding(call, Shaw());
}

// Queries end where the keys of their own sequence end.
TEST(RingOptionsTest, KeyLengthsOfFewerQueries) {
  Call call = PlainCall(19, 53);
  call.options.causal = true;
  for (const auto& lengths : {std::vector<int64_t>{53, 31}, {40, 5}}) {
    call.key_lengths = lengths;
    call.options.window = {};
    ExpectEverySharding(call, Shaw());
    call.options.window = Window{.left = 7, .right = 0};
    ExpectEverySharding(call, Shaw());
  }
}

// No single rank sees a decrease of positions at the boundary of two ranks.
TEST(RingOptionsTest, PackedPositionsRiseThroughAllRanks) {
  const MRope encoding(16, PairLayout::kHalves, {2, 3, 3});
  const Tensor d_out = RandomTensor({2, 4, 53, 16}, 4).To(DType::kF32);
  for (ring::Sharding sharding : kShardings) {
    for (int64_t fall = 0; fall < 53; fall += 9) {
      Call call = PlainCall();
      call.options.causal = true;
      for (int b = 0; b < 2; ++b) {
        for (int64_t i = 0; i < 53; ++i) {
          const int64_t t = b == 1 && fall > 0 && i >= fall ? i - 1 : i;
          call.q_pos.push_back(PackPosition(t, 1, 2));
        }
      }
      call.k_pos = call.q_pos;
      const auto chunks = ring::Shard(sharding, 53, Rank(), Ranks());
      const RankCall mine(call, d_out, chunks, chunks, sharding);
      const std::string error = ErrorOf([&] { RunRing(mine, encoding); });
      EXPECT_EQ(
          error.find("do not rise from token to token") != std::string::npos,
          fall > 0)
          << error;
    }
  }
}

// Fewer tokens than ranks: some have none.
TEST(RingOptionsTest, OneToken) {
  ExpectEverySharding(PlainCall(1, 1), Shaw());
}

TEST(RingOptionsTest, NarrowTypes) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    Call call = PlainCall();
    call.options.causal = true;
    call.q = call.q.To(dtype);
    call.k = call.k.To(dtype);
    call.v = call.v.To(dtype);
    SCOPED_TRACE(DTypeName(dtype));
    ExpectEverySharding(call, Shaw());
  }
}

// Strided inputs: [B, L, H, D] seen as [B, H, L, D].
TEST(RingOptionsTest, StridedInputs) {
  const Call call = PlainCall();
  const Expected expected(call, Shaw());
  const auto chunks = ring::Shard(ring::Sharding::kZigzag, 53, Rank(), Ranks());
  RankCall mine(call, expected.d_out, chunks, chunks, ring::Sharding::kZigzag);
  for (Tensor* x : {&mine.call.q, &mine.call.k, &mine.call.v, &mine.d_out}) {
    *x = x->Transposed(1, 2).To(DType::kF32).Transposed(1, 2);
  }
  ExpectEqualsWhole(mine, expected, call, RunRing(mine, Shaw()));
}

// Contiguous shards of 3 + 2 r tokens on rank r, none on rank 1, and the rest
// on the last rank.
TEST(RingOptionsTest, UnevenShards) {
  Call call = PlainCall();
  call.options.causal = true;
  const Expected expected(call, Shaw());
  const int ranks = Ranks();
  int64_t first = 0, count = 0;
  for (int r = 0; r <= Rank(); ++r) {
    first += count;
    count = r + 1 == ranks ? 53 - first : r == 1 ? 0 : 3 + 2 * r;
  }
  const std::vector<ring::Chunk> chunks = {{.first = first, .count = count}};
  const RankCall mine(call, expected.d_out, chunks, chunks,
                      ring::Sharding::kContiguous);
  ExpectEqualsWhole(mine, expected, call, RunRing(mine, Shaw()));
}

// Long enough for several threads to merge the parts.
TEST(RingOptionsTest, SeveralThreads) {
  constexpr int64_t kTokens = 4001;
  const auto random = [](uint64_t seed) {
    return RandomTensor({1, 1, kTokens, 8}, seed).To(DType::kF32);
  };
  const Tensor q = random(1), k = random(2), v = random(3);
  const AttentionOptions plain{.causal = true, .return_lse = true};
  const auto alibi = FindEncoding("alibi").example({.heads = 1, .head_dim = 8});
  const AttentionResult whole = Attention(q, k, v, *alibi, plain);
  for (ring::Sharding sharding : kShardings) {
    const auto chunks = ring::Shard(sharding, kTokens, Rank(), Ranks());
    ring::Options options{.attention = plain, .sharding = sharding};
    options.attention.threads = 3;
    const AttentionResult mine = ring::Attention(
        MPI_COMM_WORLD, ring::TakeShard(q, chunks), ring::TakeShard(k, chunks),
        ring::TakeShard(v, chunks), *alibi, options);
    // Both sides may be off by the engine's error bound.
    const double tolerance = 2.0 * ForwardTolerance({.q = q});
    EXPECT_LE(RelativeError(mine.out, ring::TakeShard(whole.out, chunks)),
              tolerance);
    EXPECT_LE(RelativeError(mine.lse, TakeTokens(whole.lse, chunks)),
              tolerance);
  }
}

// A causal, contiguous ring computes only on and below the diagonal, and a
// block travels no further than the last rank.
TEST(RingOptionsTest, SkipsWhatNobodySees) {
  Call call = PlainCall();
  call.options.causal = true;
  const auto chunks =
      ring::Shard(ring::Sharding::kContiguous, 53, Rank(), Ranks());
  RankCall mine(call, call.q, chunks, chunks, ring::Sharding::kContiguous);
  ring::Stats stats;
  mine.options.stats = &stats;
  ring::Attention(MPI_COMM_WORLD, mine.call.q, mine.call.k, mine.call.v, Shaw(),
                  mine.options);
  EXPECT_EQ(stats.pairs_computed, Rank() + 1);
  EXPECT_EQ(stats.bytes_sent > 0, Rank() + 1 < Ranks());
}

}  // namespace
}  // namespace locus::testing
