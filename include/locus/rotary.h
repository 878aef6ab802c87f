// Rotation alone: for engines that keep their own attention.
//
// Tensors are x [B, H, L, D] with any strides ([B, L, H, D] memory is a
// transposed view of it). f32, bf16 and f16 are rotated in float32 by SIMD
// code, f64 in float64. Channels that do not rotate pass through unchanged. A
// result lies in memory as x does, tokens inside heads or heads inside tokens:
// contiguous, or the transposed view of a contiguous [B, L, H, D].
#ifndef LOCUS_ROTARY_H_
#define LOCUS_ROTARY_H_

#include <cstdint>
#include <optional>
#include <span>

#include "locus/api.h"
#include "locus/tensor.h"
#include "locus/terms.h"

namespace LOCUS_API locus {

// ------------------------------------------------ by a rotation, in one call

// Positions are [L] or [B * L], empty for 0 .. L - 1. `inverse` undoes the
// rotation (gain included). Rotations with a decay (xPos) depend on pairs, not
// tokens, and are refused. threads = 0: all of the machine's; the bits of the
// result do not depend on it.
Tensor Rotate(const Tensor& x, const Rotation& rotation,
              std::span<const int64_t> positions = {}, bool inverse = false,
              int threads = 0);

// Writes through every tensor that shares the storage of x.
void RotateInPlace(Tensor& x, const Rotation& rotation,
                   std::span<const int64_t> positions = {},
                   bool inverse = false, int threads = 0);

// Gradient of Rotate with respect to x: the transpose of the rotation, which is
// its inverse but for the gain.
Tensor RotateBackward(const Tensor& d_out, const Rotation& rotation,
                      std::span<const int64_t> positions = {}, int threads = 0);

// ------------------------------------- by a table, made once for every layer

// Cosines and sines in float32, one row per position. Copies share the storage.
class RotaryTable {
 public:
  // Row r belongs to positions[r]. Angles are evaluated in float64 (see
  // AngleMode) and rounded; a row depends on nothing but its position.
  RotaryTable(const Rotation& rotation, std::span<const int64_t> positions,
              int threads = 0);
  // Positions 0 .. length - 1.
  static RotaryTable UpTo(const Rotation& rotation, int64_t length,
                          int threads = 0);
  // From given tables [rows, rotary_dim / 2], or [rows, rotary_dim] where both
  // channels of a pair repeat its value, as Hugging Face keeps them: columns p
  // and p + rotary_dim / 2 for halves, 2p and 2p + 1 for interleaved.
  RotaryTable(const Tensor& cos, const Tensor& sin, PairLayout layout,
              int64_t rotary_dim, int64_t first_channel = 0);

  int64_t NumRows() const { return cos_.size(0); }
  int64_t NumPairs() const { return cos_.size(1); }
  PairLayout layout() const { return layout_; }
  int64_t first_channel() const { return first_channel_; }
  const Tensor& cos() const { return cos_; }  // f32 [rows, pairs], contiguous
  const Tensor& sin() const { return sin_; }

 private:
  PairLayout layout_;
  int64_t first_channel_;
  Tensor cos_, sin_;
};

struct RotateOptions {
  // The row of each token: [L] or [B * L].
  std::span<const int64_t> rows = {};
  // Without `rows`: token i takes row first_row + i in every sequence. Without
  // either, the table must have a row for each token: L or B * L.
  std::optional<int64_t> first_row = {};
  // Undoes the rotation. A pair whose cos and sin are both 0 cannot be undone
  // and becomes NaN.
  bool inverse = false;
  int threads = 0;
};

Tensor Rotate(const Tensor& x, const RotaryTable& table,
              const RotateOptions& options = {});
void RotateInPlace(Tensor& x, const RotaryTable& table,
                   const RotateOptions& options = {});
// The transpose of Rotate; `inverse` must be false.
Tensor RotateBackward(const Tensor& d_out, const RotaryTable& table,
                      const RotateOptions& options = {});

// ------------------------------------------- by tables of the caller's, as is

struct RotateWithOptions {
  int64_t rotary_dim = 0;  // the first channels rotate; 0: all of them
  // The row of each token: [L] or [B * L]; empty for 0 .. L - 1.
  std::span<const int64_t> positions = {};
  bool inverse = false;
  int threads = 0;
};

// cos and sin as RotaryTable takes them, of any element type. Reads only the
// rows that occur, so a long table costs a short call nothing. f64 tables
// rotate an f64 tensor in float64; otherwise they are rounded to float32.
Tensor RotateWith(const Tensor& x, const Tensor& cos, const Tensor& sin,
                  PairLayout layout, const RotateWithOptions& options = {});

// ------------------------------------------------------------------ positions

// Several coordinates in one int64 position, for M-RoPE, where a token has a
// time, a row and a column: 2^60 + t 2^40 + h 2^20 + w, each below 2^20. The
// largest is the largest position that attention accepts.
//
// A text token has t = h = w, and its plain index p means the same as
// PackPosition(p, p, p): a call without images needs no packing.
//
// Packed positions compare by time, then row, then column. That is the order of
// the tokens where text and images alternate, and causal attention may go by
// it; it is not where text follows a long video, or where only some positions
// are packed, and a packed position has no distance from another. Then masks go
// by index (AttentionOptions::by_index), and are refused otherwise.
inline constexpr int64_t kPackedAxis = int64_t{1} << 20;
inline constexpr int64_t kPackedFrom = kPackedAxis * kPackedAxis * kPackedAxis;
// Plain positions of text lie below this: what lies between is neither.
inline constexpr int64_t kPlainBelow = kPackedAxis * kPackedAxis;
int64_t PackPosition(int64_t t, int64_t h, int64_t w);

}  // namespace locus

#endif  // LOCUS_ROTARY_H_
