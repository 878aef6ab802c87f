#include "locus/version.h"

#define LOCUS_TEXT_OF(x) #x
#define LOCUS_TEXT(x) LOCUS_TEXT_OF(x)

namespace locus {

const char* Version() {
  return LOCUS_TEXT(LOCUS_VERSION_MAJOR) "." LOCUS_TEXT(
      LOCUS_VERSION_MINOR) "." LOCUS_TEXT(LOCUS_VERSION_PATCH);
}

}  // namespace locus
