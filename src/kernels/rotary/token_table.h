// Cosines and sines of the tokens of a call.
#ifndef LOCUS_SRC_KERNELS_ROTARY_TOKEN_TABLE_H_
#define LOCUS_SRC_KERNELS_ROTARY_TOKEN_TABLE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "locus/terms.h"

namespace locus::kernels {

// Cosines and sines of tokens in float: [tokens, pairs] each. With a decay,
// they carry exp(sign * log_decay * (position - origin)).
struct RotationTable {
  RotationTable() = default;
  RotationTable(const Rotation& rotation, std::span<const int64_t> positions,
                double sign, int64_t origin, int threads = 1);

  std::vector<float> cos;
  std::vector<float> sin;
};

// Where decays of a rotation begin: they are split between query and key around
// the middle of the call, so that neither overflows float32 over a long range.
// Throws Error where that does not suffice.
int64_t DecayOrigin(const Rotation& rotation, const Shape& shape);

// Rotates x[0 .. dim) in place by token `i` of the table.
void RotateRow(const Rotation& rotation, const RotationTable& table, int64_t i,
               float* x);

}  // namespace locus::kernels

#endif  // LOCUS_SRC_KERNELS_ROTARY_TOKEN_TABLE_H_
