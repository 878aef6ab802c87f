// Rotation of a whole tensor by cosines and sines from any source.
#ifndef LOCUS_SRC_KERNELS_ROTARY_ROTATE_TENSOR_H_
#define LOCUS_SRC_KERNELS_ROTARY_ROTATE_TENSOR_H_

#include <array>
#include <cstdint>
#include <span>

#include "kernels/rotary/angles.h"
#include "locus/tensor.h"
#include "locus/terms.h"

namespace locus::kernels {

// From one [B, H, L, D] array to another of the same type and sizes, or in
// place. Checked by the caller; strides are in elements.
struct RotateCall {
  const void* from = nullptr;
  void* to = nullptr;
  std::array<int64_t, 4> from_stride = {}, to_stride = {};
  DType dtype = DType::kF32;
  int64_t batch = 0, heads = 0, length = 0, dim = 0;
  PairLayout layout = PairLayout::kInterleaved;
  int64_t first_channel = 0;
  int64_t pairs = 0;
};

// Tokens [begin, end) in heads [first_head, end_head) of sequences
// [first_batch, end_batch).
struct RotateBlock {
  int64_t first_batch = 0, end_batch = 0;
  int64_t first_head = 0, end_head = 0;
  int64_t begin = 0, end = 0;
};

// The layout of the tables that rows are rotated by: [rows, pairs] as they are;
// the same in the order of RotateParts; twice as long, for RotateSwapped; or as
// they are, with non-temporal stores.
enum class TableForm : uint8_t { kPlain, kParts, kSwapped, kStreamed };

// The rotation of a pair is M = (c -s; s c). kForward: M; kInverse: M^T / (c^2
// + s^2); kTranspose: M^T.
enum class RotateDirection : uint8_t { kForward, kInverse, kTranspose };

// Rotates every token by its id, ids [L] or [B * L]. f64 is computed in
// float64, other types in float32.
void RunRotate(const RotateCall& call, const CosSinSource& source,
               std::span<const int64_t> ids, RotateDirection direction,
               int threads);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_ROTARY_ROTATE_TENSOR_H_
