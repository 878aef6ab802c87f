// Rotation alone: for engines that keep their own attention.
#ifndef LOCUS_ROTARY_H_
#define LOCUS_ROTARY_H_

#include <cstdint>
#include <span>

#include "locus/tensor.h"
#include "locus/terms.h"

namespace locus {

// x [B, H, L, D] rotated token by token; positions are [L] or [B * L], empty
// for 0 .. L - 1. `inverse` undoes it (gain included). The result is a new
// tensor of the type of x; f64 inside. Rotations with a decay (xPos) depend on
// pairs, not tokens, and are refused.
Tensor Rotate(const Tensor& x, const Rotation& rotation,
              std::span<const int64_t> positions = {}, bool inverse = false);

// Gradient of Rotate with respect to x: the transpose of the rotation, which is
// its inverse but for the gain.
Tensor RotateBackward(const Tensor& d_out, const Rotation& rotation,
                      std::span<const int64_t> positions = {});

// Several coordinates in one int64 position, 20 bits each: for M-RoPE, where a
// token has a time, a row and a column. Text tokens have t = h = w. With 20
// bits the largest packed position is one that attention accepts (below 2^61).
inline constexpr int64_t kPackedAxis = int64_t{1} << 20;
int64_t PackPosition(int64_t t, int64_t h, int64_t w);

}  // namespace locus

#endif  // LOCUS_ROTARY_H_
