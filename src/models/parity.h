// Scaled frequencies in the float32 arithmetic of the Hugging Face code.
#ifndef LOCUS_SRC_MODELS_PARITY_H_
#define LOCUS_SRC_MODELS_PARITY_H_

#include "locus/encodings/rope.h"

namespace locus::models {

// For AngleMode::kFloat32: replaces a scaling whose frequencies go through
// several float32 operations (YaRN, llama3, LongRoPE) by one divisor per pair
// that yields exactly the float32 numbers of that code. At position 10^5, one
// rounding of a frequency changes the angle by 10^-2.
void MatchFloat32(int64_t head_dim, PairLayout layout, RopeOptions& rope);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_PARITY_H_
