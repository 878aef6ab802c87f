// A text without end through a model that was trained on 256 positions: the
// cache keeps the first few tokens, which attention leans on, and a window of
// the latest (StreamingLLM, Xiao et al. 2023, arXiv:2309.17453).
//
// When the cache is full, the oldest quarter of the window is evicted and the
// rest is moved down to the positions that became free, keys rotated along. So
// positions never reach the trained length, and a key is rotated again four
// times in its life, not once per token. Without Shift the tokens would keep
// their positions, which for encodings that only bias by distance, such as
// ALiBi, is all that is needed.
#include <locus/locus.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "inputs.h"

namespace {

constexpr int64_t kTrained = 256, kSinks = 4, kQuarter = 63;
constexpr int64_t kHeads = 4, kKeyHeads = 2, kDim = 64, kText = 1000;

// Tokens `kept` of x.
locus::Tensor Tokens(const locus::Tensor& x, const std::vector<int64_t>& kept) {
  std::vector<float> rows;
  for (int64_t h = 0; h < x.size(1); ++h) {
    for (int64_t j : kept) {
      const float* row = x.Data<float>() + h * x.strides()[1] + j * kDim;
      rows.insert(rows.end(), row, row + kDim);
    }
  }
  return locus::Tensor::From(
      {1, x.size(1), static_cast<int64_t>(kept.size()), kDim}, std::move(rows));
}

}  // namespace

int main() {
  const locus::Tensor q = RandomTensor(kHeads, kText, kDim, 1),
                      k = RandomTensor(kKeyHeads, kText, kDim, 2),
                      v = RandomTensor(kKeyHeads, kText, kDim, 3);
  const locus::Rope rope(kDim, locus::PairLayout::kHalves);
  locus::KvCache cache({.kv_heads = kKeyHeads,
                        .head_dim = kDim,
                        .capacity = kTrained,
                        .q_heads = kHeads});
  std::vector<int64_t> kept;  // which tokens of the text are cached
  int64_t highest = 0;
  double error = 0.0;
  for (int64_t t = 0; t < kText; ++t) {
    if (cache.size() == kTrained) {
      cache.Evict(kSinks, kSinks + kQuarter);
      cache.Shift(-kQuarter, /*sequence=*/{}, /*begin=*/kSinks);
      kept.erase(kept.begin() + kSinks, kept.begin() + kSinks + kQuarter);
    }
    cache.Append(Tokens(k, {t}), Tokens(v, {t}), rope);
    kept.push_back(t);
    highest = std::max(highest, cache.positions().back());
    const locus::Tensor row = cache.Decode(Tokens(q, {t}), rope).out;
    if (t % 100 != 99) continue;
    // The same from scratch: the kept tokens at positions 0, 1, 2, ...
    const locus::Tensor want =
        locus::Attention(Tokens(q, {t}), Tokens(k, kept), Tokens(v, kept), rope)
            .out;
    error = std::max(error, LargestDifference(row, want));
  }
  std::printf("%d tokens, at most %d cached, highest position %d, %s\n",
              static_cast<int>(kText), static_cast<int>(cache.capacity()),
              static_cast<int>(highest),
              error < 1e-5 ? "equal to the kept tokens alone" : "WRONG");
  return error < 1e-5 ? 0 : 1;
}
