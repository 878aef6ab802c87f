// Every encoding on all ranks: forward and gradients against a single process.
#include "reference/encoding_calls.h"
#include "ring/ranks.h"

namespace locus::testing {
namespace {

constexpr int64_t kTokens = 81, kChannels = 16;

Call EncodingCall(const EncodingInfo& info, bool causal) {
  Call call;
  call.q = RandomTensor({1, kHeads, kTokens, kChannels}, 1);
  call.k = RandomTensor({1, kHeads / 2, kTokens, kChannels}, 2);
  call.v = RandomTensor({1, kHeads / 2, kTokens, kChannels}, 3);
  call.options.causal = causal;
  // M-RoPE takes a time, a row and a column; all others token indices.
  for (int64_t i = 0; i < kTokens && info.name == "mrope"; ++i) {
    call.q_pos.push_back(PackPosition(i, i / 9, i % 9));
  }
  call.k_pos = call.q_pos;
  return AsFloat(call);
}

class EveryEncoding : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryEncoding, EqualsOneProcess) {
  const EncodingInfo& info = FindEncoding(GetParam());
  const auto encoding =
      info.example({.heads = kHeads, .head_dim = kChannels, .length = kTokens});
  for (bool causal : {false, true}) {
    const Call call = EncodingCall(info, causal);
    const Expected expected(call, *encoding);
    for (ring::Sharding sharding : kShardings) {
      SCOPED_TRACE(::testing::Message()
                   << ring::ShardingName(sharding) << ", causal " << causal);
      ExpectRingEqualsWhole(call, *encoding, expected, sharding);
    }
  }
}

TEST_P(EveryEncoding, HasTheSameBitsFromRunToRun) {
  const EncodingInfo& info = FindEncoding(GetParam());
  const auto encoding =
      info.example({.heads = kHeads, .head_dim = kChannels, .length = kTokens});
  const Call call = EncodingCall(info, /*causal=*/true);
  const Tensor d_out = RandomTensor(call.q.shape(), 4).To(DType::kF32);
  for (ring::Sharding sharding : kShardings) {
    SCOPED_TRACE(ring::ShardingName(sharding));
    const auto chunks = ring::Shard(sharding, kTokens, Rank(), Ranks());
    const RankCall mine(call, d_out, chunks, chunks, sharding);
    ExpectSameBits(RunRing(mine, *encoding), RunRing(mine, *encoding));
  }
}

INSTANTIATE_TEST_SUITE_P(Ring, EveryEncoding, ::testing::ValuesIn(ClassNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace locus::testing
