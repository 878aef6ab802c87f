// Handles the numbers that Python's json writes and JSON does not have.
#ifndef LOCUS_SRC_MODELS_NONFINITE_H_
#define LOCUS_SRC_MODELS_NONFINITE_H_

#include <string>
#include <string_view>

namespace locus::models {

// Returns the text with quotes around every value Infinity, -Infinity and NaN,
// so that a strict parser accepts it and a reader that needs a number reports
// the key and the value. Strings and keys are unchanged.
std::string QuoteNonFinite(std::string_view json);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_NONFINITE_H_
