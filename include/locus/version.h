#ifndef LOCUS_VERSION_H_
#define LOCUS_VERSION_H_

#define LOCUS_VERSION_MAJOR 0
#define LOCUS_VERSION_MINOR 1
#define LOCUS_VERSION_PATCH 0

namespace locus {

// "0.1.0"
const char* Version();

}  // namespace locus

#endif  // LOCUS_VERSION_H_
