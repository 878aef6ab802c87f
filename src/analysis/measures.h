// The properties, one function each; see check.h for what they have in common.
#ifndef LOCUS_SRC_ANALYSIS_MEASURES_H_
#define LOCUS_SRC_ANALYSIS_MEASURES_H_

#include <limits>
#include <string>

#include "analysis/probe.h"
#include "locus/check.h"

namespace locus::analysis {

inline constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// A measured number as it appears in sentences. A property with a number
// repeats it, in this form, in each of its sentences, so readers see a single
// measurement.
std::string Shown(double value);

// A change relative to the size of what changes: "0.3 of their size", or "25
// times their size".
std::string RatioTo(const char* whole, double ratio);

// The tolerance for equality up to rounding. Quantities that should be zero
// measure about 1e-16 at small positions and about 1e-10 at position 10^6,
// where an angle in float64 has lost seven of its sixteen digits; those that
// should not be zero are above 1e-3.
inline constexpr double kSame = 1e-7;

// A "far" shift, if the encoding supports it.
inline constexpr int64_t kFarShift = 1000000;

// The most sites that checks of quadratic cost look at.
inline constexpr int64_t kMostSites = 256;

Property Order(const Probe& probe);
Property Direction(const Probe& probe);
Property Unique(const Probe& probe);
Property Bounded(const Probe& probe);
Property LengthInvariant(const Probe& probe);
Property Relative(const Probe& probe);
Property LinearShift(const Probe& probe);
Property Continuous(const Probe& probe);
Property Purpose(const Probe& probe);
Property NormPreserving(const Probe& probe);
Property Decays(const Probe& probe);
Property PastLength(const Probe& probe);

}  // namespace locus::analysis

#endif  // LOCUS_SRC_ANALYSIS_MEASURES_H_
