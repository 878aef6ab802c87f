// The one exception type of the library.
#ifndef LOCUS_ERROR_H_
#define LOCUS_ERROR_H_

#include <stdexcept>

#include "locus/api.h"

namespace LOCUS_API locus {

// Thrown at the API boundary for invalid input. `what()` is one sentence that
// names the offending value and says what would be valid.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace locus

#endif  // LOCUS_ERROR_H_
