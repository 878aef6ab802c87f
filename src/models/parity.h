// Scaled frequencies in the float32 arithmetic of the Hugging Face code.
#ifndef LOCUS_SRC_MODELS_PARITY_H_
#define LOCUS_SRC_MODELS_PARITY_H_

#include "locus/encodings/rope.h"

namespace locus::models {

// For AngleMode::kFloat32: replaces a scaling whose frequencies pass through
// several float32 operations (YaRN, llama3, LongRoPE) by one divisor a pair
// that leads to the very float32 numbers of that code. An angle at position
// 10^5 magnifies one rounding of its frequency to 10^-2.
void MatchFloat32(int64_t head_dim, PairLayout layout, RopeOptions& rope);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_PARITY_H_
