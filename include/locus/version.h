// The version number, defined only here: CMake, the Python package and the
// documents read it from this file.
#ifndef LOCUS_VERSION_H_
#define LOCUS_VERSION_H_

#include "locus/api.h"

#define LOCUS_VERSION_MAJOR 0
#define LOCUS_VERSION_MINOR 2
#define LOCUS_VERSION_PATCH 0

namespace LOCUS_API locus {

// "0.2.0"
const char* Version();

}  // namespace locus

#endif  // LOCUS_VERSION_H_
