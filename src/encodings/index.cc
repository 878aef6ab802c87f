// The index itself, and the index over the length.
//
//   x_i += pos           or   x_i <- [x_i, pos]
//   x_i += pos / (L - 1) or   x_i <- [x_i, pos / (L - 1)]
//
// The first grows without bound and swamps x; the second is bounded, but the
// same position means something else at another length. Both are here to be
// seen failing.
#include "locus/encodings/index.h"

#include <algorithm>

#include "encodings/common.h"

namespace locus {
namespace {

// A scalar of the position as a row of x: in every channel, or in one more.
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

ScalarMode ModeOption(OptionReader& options) {
  return options.Choice("mode", "add", {"add", "concat"}) == "concat"
             ? ScalarMode::kConcatenate
             : ScalarMode::kAdd;
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

constinit const EncodingInfo kIndexInfo = {
    .name = "index",
    .class_name = "Index",
    .title = "Bare index",
    .formula = "x += pos, or x <- [x, pos]",
    .paper = "folklore",
    .models = "none: shown failing",
    .reference = Reference::kAbsolute,
    .trainable = false,
    .extrapolates = Extrapolates::kNo,
    .extrapolation_note = "grows without bound",
    .picture = Picture::kEmbedding,
    .options = "mode=add|concat",
    .example = [](const ExampleConfig& config) -> std::unique_ptr<Encoding> {
      OptionReader options("index", config);
      const ScalarMode mode = ModeOption(options);
      options.Done();
      return std::make_unique<Index>(config.head_dim, mode);
    },
};

constinit const EncodingInfo kNormalisedIndexInfo = {
    .name = "normalised-index",
    .class_name = "NormalisedIndex",
    .title = "Index over length",
    .formula = "x += pos / (L - 1), or x <- [x, pos / (L - 1)]",
    .paper = "folklore",
    .models = "none: shown failing",
    .reference = Reference::kAbsolute,
    .trainable = false,
    .extrapolates = Extrapolates::kNo,
    .extrapolation_note = "the same position changes with the length",
    .picture = Picture::kEmbedding,
    .options = "mode=add|concat",
    .example = [](const ExampleConfig& config) -> std::unique_ptr<Encoding> {
      OptionReader options("normalised-index", config);
      const ScalarMode mode = ModeOption(options);
      options.Done();
      return std::make_unique<NormalisedIndex>(config.head_dim, mode);
    },
};

}  // namespace locus
