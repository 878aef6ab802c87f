#ifndef LOCUS_PYTHON_SRC_LAYOUT_H_
#define LOCUS_PYTHON_SRC_LAYOUT_H_

#include "locus/terms.h"
#include "words.h"

namespace locus::python {

inline constexpr Word<PairLayout> kLayouts[] = {
    {"interleaved", PairLayout::kInterleaved}, {"halves", PairLayout::kHalves}};
inline constexpr Word<AngleMode> kAngles[] = {{"exact", AngleMode::kExact},
                                              {"float32", AngleMode::kFloat32}};

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_LAYOUT_H_
