// Decoding as gpt-oss does it: a learned logit per head, the sink, joins the
// softmax without a value, so that a head may attend to nothing; every other
// layer sees a window of 128 tokens. Keys and values are cached as int8, a
// quarter of the memory of float32.
#include <locus/locus.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "inputs.h"

namespace {

constexpr int64_t kHeads = 8, kKeyHeads = 2, kDim = 64, kText = 300;

}  // namespace

int main() {
  const locus::Tensor q = RandomTensor(kHeads, kText, kDim, 1),
                      k = RandomTensor(kKeyHeads, kText, kDim, 2),
                      v = RandomTensor(kKeyHeads, kText, kDim, 3);
  const locus::Rope rope(kDim, locus::PairLayout::kHalves, {.base = 150000});
  locus::AttentionOptions options = {
      .causal = true, .window = locus::Window{.left = 127, .right = 0}};
  // Head h gives more and more of its weight to the sink.
  std::vector<float> sinks(kHeads);
  for (int64_t h = 0; h < kHeads; ++h) {
    sinks[static_cast<size_t>(h)] = static_cast<float>(h);
  }
  options.sinks = locus::Tensor::From({kHeads}, std::move(sinks));
  options.return_weights = true;
  const auto whole = locus::Attention(q, k, v, rope, options);

  locus::KvCache cache({.kv_heads = kKeyHeads,
                        .head_dim = kDim,
                        .dtype = locus::DType::kI8,
                        .capacity = kText,
                        .q_heads = kHeads});
  options.return_weights = false;
  const auto decode = locus::DecodeOptions::From(options);
  double error = 0.0;
  for (int64_t t = 0; t < kText; ++t) {
    cache.Append(k.Sliced(2, t, t + 1), v.Sliced(2, t, t + 1), rope);
    const auto row = cache.Decode(q.Sliced(2, t, t + 1), rope, decode).out;
    error =
        std::max(error, LargestDifference(row, whole.out.Sliced(2, t, t + 1)));
  }
  // The weights of a row sum to 1 less what the sink took.
  for (int64_t h = 0; h < kHeads; h += kHeads - 1) {
    double kept = 0.0;
    for (int64_t j = 0; j < kText; ++j) {
      kept += whole.weights.At(0, h, kText - 1, j);
    }
    std::printf("head %d: the sink takes %2.0f%% of the last token\n",
                static_cast<int>(h), 100.0 * (1.0 - kept));
  }
  std::printf("int8 cache, %d tokens: at most %.3f from float32%s\n",
              static_cast<int>(cache.size()), error,
              error < 0.05 ? "" : ", which is TOO FAR");
  return error < 0.05 ? 0 : 1;
}
