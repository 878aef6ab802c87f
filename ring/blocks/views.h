// Views of some tokens of a tensor [B, H, L, D], and copies between them.
#ifndef LOCUS_RING_BLOCKS_VIEWS_H_
#define LOCUS_RING_BLOCKS_VIEWS_H_

#include <cstddef>

#include "locus/ring.h"
#include "locus/tensor.h"

namespace locus::ring {

// The first byte of the elements.
inline const std::byte* BytesOf(const Tensor& x) {
  return static_cast<const std::byte*>(x.Raw());
}
inline std::byte* MutableBytesOf(Tensor& x) {
  return const_cast<std::byte*>(BytesOf(x));
}

// Some elements along an axis; shares the storage of x.
Tensor Slice(const Tensor& x, size_t axis, const Chunk& chunk);
// Tokens of x [B, H, L, D] or [B, H, L].
inline Tensor TokensOf(const Tensor& x, const Chunk& chunk) {
  return Slice(x, 2, chunk);
}
// Pairs of queries and keys of x [.., .., Lq or 1, Lk]; undefined if x is.
Tensor PairsOf(const Tensor& x, const Chunk& queries, const Chunk& keys);
PairMask PairsOf(const PairMask& mask, const Chunk& queries, const Chunk& keys);

// Copies the elements of `from` to `to`, which has the same shape and type; any
// strides. Like TokensOf, for three or four axes.
void CopyTokens(const Tensor& from, Tensor to);

// A contiguous copy as float32, or back as another type; x itself if it is
// already that. One head at a time, since Tensor::To goes through float64. For
// three or four axes.
Tensor Convert(const Tensor& x, DType dtype);

// to += from, both f32 with the same shape of three or four axes; any strides.
void AddTo(const Tensor& from, Tensor to);

}  // namespace locus::ring

#endif  // LOCUS_RING_BLOCKS_VIEWS_H_
