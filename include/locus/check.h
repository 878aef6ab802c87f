// Measures the properties of an encoding: `locus check`.
//
// Each property is a question with a measured number, a threshold and the
// resulting verdict. Nothing is looked up: the encoding is lowered and run on
// random tokens, and the verdicts follow from its output.
#ifndef LOCUS_CHECK_H_
#define LOCUS_CHECK_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "locus/api.h"
#include "locus/descriptor.h"

namespace LOCUS_API locus {

enum class Verdict : uint8_t { kYes, kNo, kDoesNotApply };

// "yes", "no" or "does not apply".
std::string_view VerdictName(Verdict verdict);

struct Property {
  std::string name = {};      // "relative"
  std::string question = {};  // "does a score depend on m - n only?"
  Verdict verdict = Verdict::kDoesNotApply;
  double value = 0.0;         // measured; NaN where it does not apply
  std::string measure = {};   // what `value` is, and its unit
  double threshold = 0.0;     // what `value` was compared with; NaN if nothing
  std::string sentence = {};  // the finding, in words
};

// The sizes of the call that an encoding is checked with.
struct CheckOptions {
  int64_t heads = 8;
  int64_t head_dim = 64;
  int64_t length = 128;  // the trained length
  uint64_t seed = 1;     // of the random tokens and projections
};

struct CheckReport {
  std::string encoding = {};
  // In this order: order, direction, unique, bounded, length-invariant,
  // relative, linear-shift, continuous, purpose, norm-preserving, decays,
  // past-length.
  std::vector<Property> properties = {};

  // Throws Error with the known names if there is no such property.
  const Property& Find(std::string_view name) const;
};

// Checks an encoding. Throws Error if the length is below 8 or if the encoding
// does not support `options.length` positions.
CheckReport Check(const Encoding& encoding, const CheckOptions& options = {});

// Checks the example of a descriptor, built from `config`.
CheckReport Check(const EncodingInfo& info, const ExampleConfig& config = {});

}  // namespace locus

#endif  // LOCUS_CHECK_H_
