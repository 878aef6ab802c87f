// Rotation of a whole tensor: what its blocks are given.
#ifndef LOCUS_SRC_KERNELS_ROTARY_ROTATE_TENSOR_H_
#define LOCUS_SRC_KERNELS_ROTARY_ROTATE_TENSOR_H_

#include <array>
#include <cstdint>
#include <span>

#include "locus/tensor.h"
#include "locus/terms.h"

namespace locus::kernels {

// From one [B, H, L, D] array to another of the same type and sizes, or to
// itself. Checked by the caller; strides count elements.
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

// Rows of cosines and sines, [tokens, pairs] each; none: nullptr.
struct RotateTables {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// The tables that a layout wants in a type: [rows, pairs] as they are, or in
// the order of parts; or twice as long, for SwapSpan.
enum class TableForm : uint8_t { kPlain, kParts, kSwapped };
constexpr TableForm FormOf(DType dtype, PairLayout layout) {
  const bool halves = layout == PairLayout::kHalves;
  if (dtype == DType::kBF16) {
    return halves ? TableForm::kParts : TableForm::kPlain;
  }
  return halves ? TableForm::kPlain : TableForm::kSwapped;
}
// The same where tables are too long for the first level of cache: no longer
// than they must be. Swapped f16 has no such form.
constexpr TableForm LongFormOf(DType dtype, PairLayout layout) {
  const TableForm form = FormOf(dtype, layout);
  return form == TableForm::kSwapped && dtype == DType::kF32 ? TableForm::kPlain
                                                             : form;
}

// Where cosines and sines come from, by the id of a token: a position, or a row
// of a table. Called from many threads at once.
class CosSinSource {
 public:
  virtual ~CosSinSource() = default;
  // [ids, pairs] each.
  virtual void Floats(std::span<const int64_t> ids, float* cos,
                      float* sin) const = 0;
  // The same rows where they lie one after another in memory, else false.
  virtual bool Direct(std::span<const int64_t> /*ids*/, const float** /*cos*/,
                      const float** /*sin*/) const {
    return false;
  }
  // [pairs] each.
  virtual void Doubles(int64_t id, double* cos, double* sin) const = 0;
};

// The block of a pair is M = (c -s; s c): M itself, its inverse
// M^T / (c^2 + s^2), or its transpose.
enum class Turn : uint8_t { kForward, kInverse, kTranspose };

// Rotates every token by its id, [L] or [B * L]. f64 in float64, others in
// float32.
void RunRotate(const RotateCall& call, const CosSinSource& source,
               std::span<const int64_t> ids, Turn turn, int threads);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_ROTARY_ROTATE_TENSOR_H_
