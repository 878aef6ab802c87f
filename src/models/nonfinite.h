// Python's json writes numbers that JSON has no words for.
#ifndef LOCUS_SRC_MODELS_NONFINITE_H_
#define LOCUS_SRC_MODELS_NONFINITE_H_

#include <string>
#include <string_view>

namespace locus::models {

// The text with every value Infinity, -Infinity and NaN put in quotes, so that
// a strict parser passes over it and a reader that asks for a number names the
// key and the value. Strings and keys stay as they are.
std::string QuoteNonFinite(std::string_view json);

}  // namespace locus::models

#endif  // LOCUS_SRC_MODELS_NONFINITE_H_
