#include <locus/locus.h>

#include <cstdio>

int main() {
  // Eight heads of 64 channels, 16 tokens: [batch, heads, length, head_dim].
  const locus::Tensor x = locus::Tensor::From(
      {1, 8, 16, 64}, std::vector<float>(8 * 16 * 64, 1.0f));
  const locus::Rope rope(64, locus::PairLayout::kHalves, {.base = 500000});
  const locus::Alibi alibi(8);
  const auto a = locus::Attention(x, x, x, rope, {.causal = true});
  const auto b = locus::Attention(x, x, x, alibi, {.causal = true});
  std::printf("out[0] = %.2f with RoPE, %.2f with ALiBi\n",
              a.out.At(0, 0, 0, 0), b.out.At(0, 0, 0, 0));
}
