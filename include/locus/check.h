// What an encoding can and cannot do, measured: `locus check`.
//
// Each property is a question with a measured number, a threshold and the
// verdict that follows. Nothing is looked up: an encoding is lowered, run on
// random tokens, and judged by what comes out.
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
  double value = 0.0;         // measured; NaN where nothing could be
  std::string measure = {};   // what `value` is, and in which unit
  double threshold = 0.0;     // what `value` was compared with; NaN if nothing
  std::string sentence = {};  // the finding, in words
};

// The call that the encoding is made for, and where to look.
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

// Lengths must be at least 8; throws Error if the encoding cannot serve
// `options.length` positions.
CheckReport Check(const Encoding& encoding, const CheckOptions& options = {});

// The same for a row of the list, with its example built from `config`.
CheckReport Check(const EncodingInfo& info, const ExampleConfig& config = {});

}  // namespace locus

#endif  // LOCUS_CHECK_H_
