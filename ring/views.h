// Views of some tokens of a tensor [B, H, L, D], and copies between them.
#ifndef LOCUS_RING_VIEWS_H_
#define LOCUS_RING_VIEWS_H_

#include <cstddef>

#include "locus/ring.h"
#include "locus/tensor.h"

namespace locus::ring {

// The first byte of the elements.
const std::byte* BytesOf(const Tensor& x);
std::byte* MutableBytesOf(Tensor& x);

// Tokens of x along axis 2, x [B, H, L, D] or [B, H, L]; shares its storage.
Tensor TokensOf(const Tensor& x, const Chunk& chunk);

// Copies the elements of `from` to `to`, of the same shape and type; any
// strides. Like TokensOf, for three axes or four.
void CopyTokens(const Tensor& from, Tensor to);

// A contiguous copy as float32 or back as another type; x itself where it is
// one already. One head at a time: Tensor::To passes through float64.
Tensor Convert(const Tensor& x, DType dtype);

// to += from, both f32 of one shape, with rows of adjacent elements.
void AddTo(const Tensor& from, Tensor to);

}  // namespace locus::ring

#endif  // LOCUS_RING_VIEWS_H_
