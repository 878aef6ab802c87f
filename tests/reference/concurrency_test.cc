// Calls from several threads on shared encodings and tensors: no call writes
// what another reads, so results are bitwise equal.
#include <thread>

#include "reference/encoding_calls.h"

namespace locus::testing {
namespace {

constexpr int kThreads = 8;

// Everything one call computes, in one vector.
std::vector<double> Compute(const Encoding& encoding, const EncodingInfo& info,
                            const Tokens& tokens, const Tensor& d_out) {
  const std::vector<int64_t> positions = PositionsOf(info, 0, kLength);
  const AttentionOptions options{
      .causal = true, .q_positions = positions, .k_positions = positions};
  std::vector<double> all;
  const auto append = [&](const Tensor& t) {
    const std::vector<double> values = t.ToVector();
    all.insert(all.end(), values.begin(), values.end());
  };
  const reference::Forward f = Attend(encoding, tokens, options);
  append(f.out);
  append(f.lse);
  const EncodingGrads g = reference::AttentionBackward(
      d_out, tokens.q, tokens.k, tokens.v, encoding, options);
  append(g.d_q);
  append(g.d_k);
  append(g.d_v);
  for (const Param& p : g.params) append(p.value);
  return all;
}

TEST(ConcurrencyTest, SharedEncodingsGiveTheSameBits) {
  const Tokens tokens = Tokens::Random(kLength, 1);
  const Tensor d_out = RandomTensor({1, kHeads, kLength, kDim}, 4);
  std::vector<std::unique_ptr<Encoding>> encodings;
  for (const EncodingInfo& info : Encodings()) {
    encodings.push_back(MakeExample(info));
  }
  const auto compute_all = [&] {
    std::vector<std::vector<double>> results;
    for (size_t n = 0; n < encodings.size(); ++n) {
      results.push_back(Compute(*encodings[n], Encodings()[n], tokens, d_out));
    }
    return results;
  };
  const auto expected = compute_all();
  std::vector<std::vector<std::vector<double>>> results(kThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& result : results) {
      threads.emplace_back([&] { result = compute_all(); });
    }
  }
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

TEST(ConcurrencyTest, SharedLinearAttentionGivesTheSameBits) {
  const Tokens tokens = Tokens::Random(kLength, 2);
  const Rope rope(kDim, PairLayout::kHalves);
  const auto compute = [&] {
    return LinearAttention(tokens.q, tokens.k, tokens.v, rope, {.causal = true})
        .ToVector();
  };
  const std::vector<double> expected = compute();
  std::vector<std::vector<double>> results(kThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& result : results) {
      threads.emplace_back([&] { result = compute(); });
    }
  }
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

// The list itself is created on first use: from all threads at once.
TEST(ConcurrencyTest, TheListIsSafeToAskFromThreads) {
  std::vector<std::string> names(kThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& name : names) {
      threads.emplace_back([&] { name = FindEncoding("rope").title; });
    }
  }
  for (const auto& name : names) EXPECT_EQ(name, FindEncoding("rope").title);
}

}  // namespace
}  // namespace locus::testing
