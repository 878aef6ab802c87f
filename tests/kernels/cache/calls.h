// Sequences and tables for tests of the cache.
#ifndef LOCUS_TESTS_KERNELS_KV_CACHE_CALLS_H_
#define LOCUS_TESTS_KERNELS_KV_CACHE_CALLS_H_

#include "kernels/compare.h"
#include "locus/kv_cache.h"
#include "locus/rotary.h"

namespace locus::testing {

inline constexpr int64_t kQueryHeads = 4, kKeyHeads = 2, kHeadDim = 16;

// As ForwardTolerance: float32 sums of kHeadDim products.
inline const double kTolerance =
    4.0 * kEps * std::sqrt(static_cast<double>(kHeadDim) + 12.0);

inline KvCacheConfig Config(int64_t batch = 1, DType dtype = DType::kF32) {
  return {.batch = batch,
          .kv_heads = kKeyHeads,
          .head_dim = kHeadDim,
          .dtype = dtype,
          .q_heads = kQueryHeads};
}

struct Sequence {
  Tensor q, k, v;
};

inline Sequence RandomSequence(int64_t length, int64_t batch = 1,
                               uint64_t seed = 1) {
  const auto random = [&](int64_t heads, uint64_t n) {
    return RandomTensor({batch, heads, length, kHeadDim}, seed * 10 + n)
        .To(DType::kF32);
  };
  return {random(kQueryHeads, 1), random(kKeyHeads, 2), random(kKeyHeads, 3)};
}

// Tokens [begin, end) of x [B, H, L, D] f32, as a view.
inline Tensor Part(const Tensor& x, int64_t begin, int64_t end) {
  return Tensor::Borrow(x.dtype(),
                        {x.size(0), x.size(1), end - begin, x.size(3)},
                        x.strides(), x.Data<float>() + begin * x.strides()[2]);
}

// Sequence b of x [B, H, L, D] f32.
inline Tensor Only(const Tensor& x, int64_t b) {
  return Tensor::Borrow(x.dtype(), {1, x.size(1), x.size(2), x.size(3)},
                        x.strides(), x.Data<float>() + b * x.strides()[0]);
}

inline std::vector<int64_t> PositionsOf(const EncodingInfo& info,
                                        int64_t length) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < length; ++i) {
    positions.push_back(info.name == "mrope" ? PackPosition(i, i / 2, i % 5)
                                             : i);
  }
  return positions;
}

// [L] to [begin, end), as a view.
inline std::span<const int64_t> Part(const std::vector<int64_t>& x,
                                     int64_t begin, int64_t end) {
  return std::span(x).subspan(static_cast<size_t>(begin),
                              static_cast<size_t>(end - begin));
}

inline Rotation RopeRotation(double base,
                             PairLayout layout = PairLayout::kInterleaved) {
  return Rope(kHeadDim, layout, {.base = base}).RotationFor(1);
}

inline Terms RopeTerms(double base) {
  Terms terms;
  terms.rotate = RopeRotation(base);
  terms.scale.scale = 0.25;
  return terms;
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_KERNELS_KV_CACHE_CALLS_H_
