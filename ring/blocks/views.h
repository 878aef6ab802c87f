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
// Pairs of queries and keys of x [.., .., Lq or 1, Lk]; of an absent one none.
Tensor PairsOf(const Tensor& x, const Chunk& queries, const Chunk& keys);
PairMask PairsOf(const PairMask& mask, const Chunk& queries, const Chunk& keys);

// Copies the elements of `from` to `to`, of the same shape and type; any
// strides. Like TokensOf, for three axes or four.
void CopyTokens(const Tensor& from, Tensor to);

// A contiguous copy as float32 or back as another type; x itself where it is
// one already. One head at a time: Tensor::To passes through float64. For three
// axes or four.
Tensor Convert(const Tensor& x, DType dtype);

// to += from, both f32 of one shape with three axes or four; any strides.
void AddTo(const Tensor& from, Tensor to);

}  // namespace locus::ring

#endif  // LOCUS_RING_BLOCKS_VIEWS_H_
