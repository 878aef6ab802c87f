// The arguments that make an encoding again: how it is copied and pickled.
#ifndef LOCUS_PYTHON_SRC_SETTINGS_H_
#define LOCUS_PYTHON_SRC_SETTINGS_H_

#include <nanobind/nanobind.h>

#include "locus/locus.h"
#include "signature.h"
#include "words.h"

namespace locus::python {

inline constexpr Word<ScalarMode> kModes[] = {
    {"add", ScalarMode::kAdd}, {"concatenate", ScalarMode::kConcatenate}};
inline constexpr Word<SinusoidLayout> kSinusoids[] = {
    {"interleaved", SinusoidLayout::kInterleaved},
    {"halves", SinusoidLayout::kHalves},
    {"halves-inclusive", SinusoidLayout::kHalvesInclusive}};
inline constexpr Word<KerpleKind> kKernels[] = {
    {"logarithmic", KerpleKind::kLogarithmic}, {"power", KerpleKind::kPower}};
inline constexpr Word<RotaryPlace> kPlaces[] = {
    {"leading", RotaryPlace::kLeading}, {"trailing", RotaryPlace::kTrailing}};
inline constexpr Word<AxialFrequencies> kAxialFrequencies[] = {
    {"shared", AxialFrequencies::kShared},
    {"alternating", AxialFrequencies::kAlternating}};
inline constexpr Word<MRopeSections> kDealings[] = {
    {"chunked", MRopeSections::kChunked},
    {"interleaved", MRopeSections::kInterleaved}};

// How the offsets of a Tupe find their column of the bias. Opaque to Python,
// which meets it only inside pickles: a map of its own could lead anywhere.
struct Buckets {
  BucketMap map;
};
void BindBuckets(nb::module_& m);

// What the constructor takes beside the tables, which are the encoding's
// parameters under their own names.
nb::dict SettingsOf(const NoPosition& encoding);
nb::dict SettingsOf(const Index& encoding);
nb::dict SettingsOf(const NormalisedIndex& encoding);
nb::dict SettingsOf(const Binary& encoding);
nb::dict SettingsOf(const SineOnly& encoding);
nb::dict SettingsOf(const Sinusoidal& encoding);
nb::dict SettingsOf(const Learned& encoding);
nb::dict SettingsOf(const Shaw& encoding);
nb::dict SettingsOf(const KeyOffset& encoding);
nb::dict SettingsOf(const TransformerXL& encoding);
nb::dict SettingsOf(const Deberta& encoding);
nb::dict SettingsOf(const Tupe& encoding);
nb::dict SettingsOf(const T5Bias& encoding);
nb::dict SettingsOf(const Alibi& encoding);
nb::dict SettingsOf(const Kerple& encoding);
nb::dict SettingsOf(const Fire& encoding);
nb::dict SettingsOf(const Sandwich& encoding);
nb::dict SettingsOf(const SwinBias& encoding);
nb::dict SettingsOf(const Rope& encoding);
nb::dict SettingsOf(const Rope2D& encoding);
nb::dict SettingsOf(const MRope& encoding);
nb::dict SettingsOf(const XPos& encoding);

// name -> array, shared.
nb::dict ParamsOf(const Encoding& encoding);

// (rebuild of locus._copies, (the class bound here, the object's own, the
// arguments), what a subclass put into the object).
nb::tuple Reduced(nb::handle self, nb::handle native, const nb::dict& params,
                  const nb::dict& settings);

// A class of encodings, which can be copied and pickled.
template <typename T>
nb::class_<T, Encoding> EncodingClass(nb::module_& m, const char* name,
                                      const char* doc) {
  nb::class_<T, Encoding> type(m, name, doc);
  type.def(
      "__reduce__",
      [](nb::handle_t<T> self) {
        const T& encoding = nb::cast<const T&>(self);
        return Reduced(self, nb::type<T>(), ParamsOf(encoding),
                       SettingsOf(encoding));
      },
      nb::sig("def __reduce__(self) -> tuple"));
  return type;
}

}  // namespace locus::python

#endif  // LOCUS_PYTHON_SRC_SETTINGS_H_
