#ifndef LOCUS_PYTHON_SRC_LAYOUT_H_
#define LOCUS_PYTHON_SRC_LAYOUT_H_

#include <string>

#include "locus/terms.h"
#include "options.h"

namespace locus::python {

inline PairLayout LayoutOf(const std::string& layout) {
  static constexpr Word<PairLayout> kLayouts[] = {
      {"interleaved", PairLayout::kInterleaved},
      {"halves", PairLayout::kHalves}};
  return WordOf("layout", layout, kLayouts);
}

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_LAYOUT_H_
