// One attention layer of LLaMA 3.1 from its config.json: prompt at once, then
// token by token over a cache. The rotation with its scaling, the heads, the
// scale and the mask all come from the config; nothing is typed in twice.
#include <locus/locus.h>

#include <algorithm>
#include <cstdio>

#include "inputs.h"

namespace {

// What decides positions in the config of Llama-3.1-8B.
constexpr const char* kConfig = R"({
  "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
  "num_key_value_heads": 8, "num_hidden_layers": 32,
  "max_position_embeddings": 131072, "rope_theta": 500000.0,
  "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192}})";

}  // namespace

int main() {
  const auto layer = locus::models::FromConfig(kConfig);
  const auto rope = locus::models::Build(layer.attention);
  const locus::AttentionOptions options = layer.CallOptions();
  std::printf("%s: %s, %d query heads on %d key heads, %s scaling by %g\n",
              layer.family.c_str(), layer.attention.name.c_str(),
              static_cast<int>(layer.q_heads), static_cast<int>(layer.kv_heads),
              layer.rotary->scaling.c_str(), layer.rotary->factor);

  constexpr int64_t kPrompt = 100, kText = 120;
  const locus::Tensor q =
      RandomTensor(layer.q_heads, kText, layer.head_dim, /*seed=*/1);
  const locus::Tensor k =
      RandomTensor(layer.kv_heads, kText, layer.head_dim, /*seed=*/2);
  const locus::Tensor v =
      RandomTensor(layer.kv_heads, kText, layer.value_dim, /*seed=*/3);
  const locus::Tensor whole = locus::Attention(q, k, v, *rope, options).out;

  locus::KvCache cache({.kv_heads = layer.kv_heads,
                        .head_dim = layer.head_dim,
                        .dtype = locus::DType::kBF16,
                        .capacity = kText,
                        .q_heads = layer.q_heads});
  const auto decode = locus::DecodeOptions::From(options);
  double error = 0.0;
  for (int64_t t = 0, end = kPrompt; t < kText; t = end++) {
    // The prompt first, then one token after the other.
    cache.Append(k.Sliced(2, t, end), v.Sliced(2, t, end), *rope);
    const locus::Tensor rows =
        cache.Decode(q.Sliced(2, t, end), *rope, decode).out;
    error = std::max(error, LargestDifference(rows, whole.Sliced(2, t, end)));
  }
  std::printf(
      "%d tokens cached as bfloat16: at most %.4f from one call in float32%s\n",
      static_cast<int>(cache.size()), error,
      error < 0.02 ? "" : ", which is TOO FAR");
  return error < 0.02 ? 0 : 1;
}
