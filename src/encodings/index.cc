// The index itself, and the index over the length.
//
//   x_i += pos           or   x_i <- [x_i, pos]
//   x_i += pos / (L - 1) or   x_i <- [x_i, pos / (L - 1)]
//
// The first grows without bound and swamps x; the second is bounded, but the
// same position means something else at another length. Both are included to
// show how they fail.
#include "locus/encodings/index.h"

#include <algorithm>

#include "encodings/common.h"

namespace locus {
namespace {

// A function of the position as a row of x: in every channel, or in an extra
// one.
Lowered LowerScalar(const Shape& shape, int64_t dim, ScalarMode mode,
                    double step) {
  const bool concat = mode == ScalarMode::kConcatenate;
  const int64_t width = concat ? dim + 1 : dim;
  return LowerInput(shape, width, /*widen=*/concat ? 1 : 0,
                    [=](int64_t position, double* row) {
                      std::fill(row + (concat ? dim : 0), row + width,
                                static_cast<double>(position) * step);
                    });
}

Tensor EmbedScalar(std::span<const int64_t> positions, int64_t dim,
                   ScalarMode mode, double step) {
  const bool concat = mode == ScalarMode::kConcatenate;
  const int64_t width = concat ? dim + 1 : dim;
  return FillRows(positions, width, [=](int64_t position, double* row) {
    std::fill(row + (concat ? dim : 0), row + width,
              static_cast<double>(position) * step);
  });
}

}  // namespace

Index::Index(int64_t dim, ScalarMode mode) : dim_(dim), mode_(mode) {
  CheckSize("the index's dim", dim);
}

Lowered Index::Lower(const Shape& shape) const {
  return LowerScalar(shape, dim_, mode_, /*step=*/1.0);
}

Tensor Index::Embed(std::span<const int64_t> positions) const {
  return EmbedScalar(positions, dim_, mode_, /*step=*/1.0);
}

NormalisedIndex::NormalisedIndex(int64_t dim, ScalarMode mode,
                                 std::optional<int64_t> length)
    : dim_(dim), mode_(mode), length_(length) {
  CheckSize("the normalised index's dim", dim);
  if (length && *length < 1) {
    Fail("the normalised index's length must be positive, got {}", *length);
  }
}

double NormalisedIndex::Step(int64_t last_position) const {
  const int64_t last = length_ ? *length_ - 1 : last_position;
  return last > 0 ? 1.0 / static_cast<double>(last) : 0.0;
}

Lowered NormalisedIndex::Lower(const Shape& shape) const {
  return LowerScalar(shape, dim_, mode_, Step(shape.MaxPosition()));
}

Tensor NormalisedIndex::Embed(std::span<const int64_t> positions) const {
  const int64_t last =
      positions.empty() ? 0 : *std::ranges::max_element(positions);
  return EmbedScalar(positions, dim_, mode_, Step(last));
}

namespace {

constexpr Field kIndexDimField = {.name = "dim",
                                  .sentence = "channels of x [.., dim]"};
constexpr Field kModeField = {
    .name = "mode",
    .type = FieldType::kChoice,
    .fallback = "add",
    .choices = "add|concatenate",
    .sentence = "on every channel, or as one more (\"concatenate\")"};
constexpr Field kIndexFields[] = {kIndexDimField, kModeField};
// In the order of ScalarMode.
constexpr Field kModeOptions[] = {
    {.name = "mode",
     .type = FieldType::kChoice,
     .fallback = "add",
     .choices = "add|concat",
     .sentence = "added to every channel, or one channel more"}};
constexpr std::string_view kIndexVariants[] = {"mode=concat"};

}  // namespace

LOCUS_DESCRIPTOR(Index) = {
    .name = "index",
    .class_name = "Index",
    .title = "Bare index",
    .formula = "x += pos, or x <- [x, pos]",
    .summary =
        "E[pos] = pos, on every channel of x [.., dim] or appended as one "
        "more.",
    .paper = "folklore",
    .models = "none: shown failing",
    .reference = Reference::kAbsolute,
    .trainable = false,
    .extrapolates = Extrapolates::kNo,
    .extrapolation_note = "grows without bound",
    .picture = Picture::kEmbedding,
    .fields = kIndexFields,
    .options = kModeOptions,
    .variants = kIndexVariants,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<Index>(f.Int("dim"),
                                     f.Choice<ScalarMode>("mode"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const Index&>(encoding);
      return {{"dim", e.dim()}, {"mode", Enumerator(e.mode())}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      return {{"dim", config.head_dim},
              {"mode", Enumerator(o.Choice<ScalarMode>("mode"))}};
    },
};

namespace {

constexpr Field kNormalisedFields[] = {
    kIndexDimField,
    kModeField,
    {.name = "length",
     .fallback = "None",
     .optional = true,
     .sentence = "of the sequence; without it, the last position of the call "
                 "counts as 1"}};

}  // namespace

LOCUS_DESCRIPTOR(NormalisedIndex) = {
    .name = "normalised-index",
    .class_name = "NormalisedIndex",
    .title = "Index over length",
    .formula = "x += pos / (L - 1), or x <- [x, pos / (L - 1)]",
    .summary =
        "E[pos] = pos / (length - 1), on every channel or appended as one "
        "more.",
    .paper = "folklore",
    .models = "none: shown failing",
    .reference = Reference::kAbsolute,
    .trainable = false,
    .extrapolates = Extrapolates::kNo,
    .extrapolation_note = "the same position changes with the length",
    .picture = Picture::kEmbedding,
    .fields = kNormalisedFields,
    .options = kModeOptions,
    .variants = kIndexVariants,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<NormalisedIndex>(
          f.Int("dim"), f.Choice<ScalarMode>("mode"), f.IntOrNone("length"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const NormalisedIndex&>(encoding);
      FieldValues values = {{"dim", e.dim()}, {"mode", Enumerator(e.mode())}};
      if (e.length()) values.Set("length", *e.length());
      return values;
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      return {{"dim", config.head_dim},
              {"mode", Enumerator(o.Choice<ScalarMode>("mode"))}};
    },
};

}  // namespace locus
