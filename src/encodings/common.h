// Shared code of the encodings: parameter checks, example tables, fields.
#ifndef LOCUS_SRC_ENCODINGS_COMMON_H_
#define LOCUS_SRC_ENCODINGS_COMMON_H_

#include <functional>
#include <string_view>

#include "core/fail.h"
#include "locus/descriptor.h"

namespace locus {

// The descriptor of a class; registry.cc finds it by this name:
//   LOCUS_DESCRIPTOR(Alibi) = {.name = "alibi", ...};
#define LOCUS_DESCRIPTOR(Class)             \
  extern const EncodingInfo k##Class##Info; \
  constinit const EncodingInfo k##Class##Info

// The layout of rotary pairs. Constructors have no default for it, since
// confusing the two layouts fails silently.
inline constexpr Field kLayoutField = {
    .name = "layout",
    .type = FieldType::kChoice,
    .choices = "interleaved|halves",
    .sentence =
        "which channels make a pair: \"interleaved\" (2i, 2i + 1) or "
        "\"halves\" (i, i + rotary_dim / 2)"};
inline constexpr Field kLayoutOption = {.name = "layout",
                                        .type = FieldType::kChoice,
                                        .fallback = "interleaved",
                                        .choices = kLayoutField.choices,
                                        .sentence = kLayoutField.sentence};
inline constexpr Slider kBaseSlider = {
    .lowest = 10.0, .highest = 1e7, .step = 10.0, .logarithmic = true};
// The base of frequencies base^(-2i / dim).
constexpr Field BaseField(std::string_view fallback) {
  return {.name = "base",
          .type = FieldType::kReal,
          .fallback = fallback,
          .sentence = "of the frequencies base^(-2i / dim)",
          .slider = kBaseSlider};
}

// An enumerator as a value of an encoding's settings.
template <typename Enum>
int64_t Enumerator(Enum value) {
  return static_cast<int64_t>(value);
}

// Fails unless `value`, a number of heads or channels, is in [1, 2^24].
void CheckSize(const char* what, int64_t value);
// Fails unless `value` is finite and positive.
void CheckPositive(const char* what, double value);
// Fails unless every element is finite.
void CheckFinite(const char* what, const Tensor& tensor);
// Fails unless the call has this many query heads or channels.
void CheckCallHeads(const char* encoding, int64_t heads, const Shape& shape);
void CheckCallDim(const char* encoding, int64_t dim, const Shape& shape);

// Fails unless WithParams was given as many tensors as there are parameters.
void CheckParamCount(const Encoding& encoding, std::span<const Tensor> values);

// A [rows, dim] or [heads, rows, dim] table as [heads or 1, rows, dim].
Tensor WithHeadAxis(const Tensor& table);
// A gradient [heads or 1, rows, dim] reshaped like `like`.
Tensor LikeParam(const Tensor& grad, const Tensor& like);

// f64 [positions, dim], each row filled by fill(position, row).
using RowFiller = std::function<void(int64_t position, double* row)>;
Tensor FillRows(std::span<const int64_t> positions, int64_t dim,
                const RowFiller& fill);
// The input_add term of a shape: a row for every position in its range.
Lowered LowerInput(const Shape& shape, int64_t dim, int64_t widen,
                   const RowFiller& fill);
// Terms with only the default scale.
Lowered LowerPlain(const Shape& shape);

// Fails if lo .. hi are too many numbers for a row of a table, which happens if
// a call mixes far-apart positions.
void CheckSpan(const char* what, int64_t lo, int64_t hi);

// A bias given by a formula, as a table with one bucket per offset of the
// shape: value(h, offset).
BiasTable BiasByOffset(const Shape& shape,
                       const std::function<double(int64_t, int64_t)>& value);

// Normally distributed f64 values with the given standard deviation, from a
// seed: the same on every platform.
Tensor RandomTable(std::vector<int64_t> shape, double deviation, uint64_t seed);

}  // namespace locus

#endif  // LOCUS_SRC_ENCODINGS_COMMON_H_
