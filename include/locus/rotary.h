// Rotary embedding alone, for engines with their own attention.
//
// Tensors are x [B, H, L, D] with any strides ([B, L, H, D] memory is a
// transposed view of it). f32, bf16 and f16 are rotated in float32 with SIMD,
// f64 in float64. Channels outside the rotation are copied unchanged. Results
// are new tensors with the memory order of x: contiguous [B, H, L, D], or the
// transposed view of a contiguous [B, L, H, D].
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
// rotation, gain included. Throws Error for rotations with a decay (xPos),
// which act on pairs of tokens. threads = 0: UsableCpus(); the result has the
// same bits for any number of threads.
Tensor Rotate(const Tensor& x, const Rotation& rotation,
              std::span<const int64_t> positions = {}, bool inverse = false,
              int threads = 0);

// Overwrites x, and with it every tensor that shares its storage.
void RotateInPlace(Tensor& x, const Rotation& rotation,
                   std::span<const int64_t> positions = {},
                   bool inverse = false, int threads = 0);

// The gradient of Rotate with respect to x: the transposed rotation, which is
// the inverse except for the gain.
Tensor RotateBackward(const Tensor& d_out, const Rotation& rotation,
                      std::span<const int64_t> positions = {}, int threads = 0);

// -------------------------------- by a table, computed once for all layers

// Cosines and sines in float32, one row per position. Copies share the storage.
class RotaryTable {
 public:
  // Row r is for positions[r]. Angles are evaluated in float64 (see AngleMode)
  // and rounded; a row depends only on its position.
  RotaryTable(const Rotation& rotation, std::span<const int64_t> positions,
              int threads = 0);
  // Positions 0 .. length - 1.
  static RotaryTable UpTo(const Rotation& rotation, int64_t length,
                          int threads = 0);
  // From tables cos and sin [rows, rotary_dim / 2], or [rows, rotary_dim] with
  // each value stored for both channels of its pair, as in Hugging Face's code:
  // columns p and p + rotary_dim / 2 for halves, 2p and 2p + 1 for interleaved.
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
  // The table row of each token: [L] or [B * L].
  std::span<const int64_t> rows = {};
  // Without `rows`: token i of every sequence uses row first_row + i. Without
  // either, the table must have one row per token: L or B * L.
  std::optional<int64_t> first_row = {};
  // Undoes the rotation. Where cos and sin are both 0 there is no inverse, and
  // the pair becomes NaN.
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

// ------------------------------------------------- by the caller's own tables

struct RotateWithOptions {
  int64_t rotary_dim = 0;  // the first channels rotate; 0: all of them
  // The table row of each token: [L] or [B * L]; empty for 0 .. L - 1.
  std::span<const int64_t> positions = {};
  bool inverse = false;
  int threads = 0;
};

// cos and sin in the shapes that RotaryTable takes, of any element type. Only
// the rows in use are read, so a long table does not slow down a short call.
// f64 tables rotate an f64 tensor in float64; otherwise tables are rounded to
// float32.
Tensor RotateWith(const Tensor& x, const Tensor& cos, const Tensor& sin,
                  PairLayout layout, const RotateWithOptions& options = {});

// ------------------------------------------------------------------ positions

// Packs the three coordinates of an M-RoPE token (time, row, column) into one
// int64 position: 2^60 + t 2^40 + h 2^20 + w, each below 2^20. The largest
// packed position is the largest position that attention accepts.
//
// A text token has t = h = w, and its plain index p means the same as
// PackPosition(p, p, p), so a call without images needs no packing.
//
// Packed positions compare by time, then row, then column. Where text and
// images alternate, that is the order of the tokens, and causal masks may use
// it. It is not where text follows a long video or where only some positions
// are packed, and the difference of packed positions is no distance. Causal
// masks in these cases, and windows always, need AttentionOptions::by_index;
// without it they are refused.
inline constexpr int64_t kPackedAxis = int64_t{1} << 20;
inline constexpr int64_t kPackedFrom = kPackedAxis * kPackedAxis * kPackedAxis;
// Plain text positions are below this; those from here up to kPackedFrom are
// invalid.
inline constexpr int64_t kPlainBelow = kPackedAxis * kPackedAxis;
int64_t PackPosition(int64_t t, int64_t h, int64_t w);

}  // namespace locus

#endif  // LOCUS_ROTARY_H_
