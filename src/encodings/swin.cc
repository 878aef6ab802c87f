// Swin: a relative bias in two dimensions.
//
//   s = scale * q.k + B[h, (dy, dx)]
//
// for tokens at (y, x) of a window. Positions are raster indices y w + x;
// respaced to y (2w - 1) + x, a single integer offset determines both dy and
// dx, so the table is indexed by an ordinary offset. BEiT adds a [CLS] token
// with three buckets of its own.
// Liu et al., "Swin Transformer" (2021); Bao et al., "BEiT" (2022).
#include "locus/encodings/swin.h"

#include "encodings/common.h"

namespace locus {

SwinBias::SwinBias(Tensor table, int64_t height, int64_t width, bool cls)
    : table_(std::move(table)),
      height_(height),
      width_(width),
      cls_(cls),
      buckets_(BucketMap::Window2D(height, width)) {
  if (cls) {
    buckets_ = buckets_.WithSpecial(/*position=*/0, /*both=*/true);
    buckets_.grid->origin = 1;
  }
  if (table_.rank() != 2 || table_.size(0) != buckets_.count ||
      table_.NumElements() == 0) {
    Fail("a {} x {} window{} needs a table [{}, heads], got {}", height, width,
         cls ? " with [CLS]" : "", buckets_.count, table_.Describe());
  }
}

Lowered SwinBias::Lower(const Shape& shape) const {
  CheckCallHeads("Swin", table_.size(1), shape);
  const int64_t last = height_ * width_ - (cls_ ? 0 : 1);
  if (shape.MinPosition() < 0 || shape.MaxPosition() > last) {
    Fail("a {} x {} window has positions 0 .. {}, but the call has position {}",
         height_, width_, last,
         shape.MinPosition() < 0 ? shape.MinPosition() : shape.MaxPosition());
  }
  Lowered lowered = LowerPlain(shape);
  lowered.terms.bias = BiasTable{table_.Transposed(0, 1), buckets_};
  return lowered;
}

std::vector<Param> SwinBias::Params() const { return {{"table", table_}}; }

std::unique_ptr<Encoding> SwinBias::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  return std::make_unique<SwinBias>(values[0], height_, width_, cls_);
}

ParamGrads SwinBias::PullBack(const Shape&, const TermGrads& grads) const {
  const Tensor& d = std::get<BiasTableGrads>(*grads.bias).values;
  return {{"table", d.Transposed(0, 1).To(DType::kF64)}};
}

namespace {

constexpr Field kClsField = {
    .name = "cls",
    .type = FieldType::kFlag,
    .fallback = "False",
    .sentence =
        "position 0 is a [CLS] token and the table has three rows more "
        "(BEiT)"};
constexpr Field kSwinFields[] = {
    {.name = "table",
     .type = FieldType::kTable,
     .shape = "(2 height - 1)(2 width - 1), heads",
     .sentence = "as checkpoints store it"},
    {.name = "height", .sentence = "of the window"},
    {.name = "width",
     .sentence = "of the window; positions are raster indices y * width + x"},
    kClsField};
constexpr Field kSwinOptions[] = {
    {.name = "height",
     .fallback = "None",
     .optional = true,
     .sentence = "of the window; unless given, about the root of the length",
     .slider = {1, 64, 1}},
    {.name = "width",
     .fallback = "None",
     .optional = true,
     .sentence = "of the window; unless given, the length over the height",
     .slider = {1, 64, 1}},
    kClsField};
constexpr std::string_view kSwinVariants[] = {"cls=true"};
constexpr ParamTraining kSwinTraining[] = {
    {.name = "table", .start = Start::kNormal, .size = 0.1, .rate = kBiasRate}};

}  // namespace

LOCUS_DESCRIPTOR(SwinBias) = {
    .name = "swin",
    .class_name = "SwinBias",
    .title = "Swin window bias",
    .formula = "s = scale q.k + B[h, (dy, dx)]",
    .summary =
        "Liu et al. (2021): s + table[(dy + height - 1)(2 width - 1) + dx + "
        "width "
        "- 1, h].",
    .paper = "Liu et al., Swin Transformer, 2021",
    .models = "Swin, BEiT",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kNo,
    .extrapolation_note = "the window is fixed",
    .picture = Picture::kBias,
    .fields = kSwinFields,
    .options = kSwinOptions,
    .variants = kSwinVariants,
    .training = kSwinTraining,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<SwinBias>(f.Table("table"), f.Int("height"),
                                        f.Int("width"), f.Flag("cls"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const SwinBias&>(encoding);
      return {{"height", e.height()}, {"width", e.width()}, {"cls", e.cls()}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      // A square window that covers the example's length as far as possible.
      CheckSize("the example's length", config.length);
      int64_t side = 1;
      while ((side + 1) * (side + 1) <= config.length) ++side;
      const int64_t height = o.IntOrNone("height").value_or(side);
      const int64_t width =
          o.IntOrNone("width").value_or((config.length + side - 1) / side);
      const bool cls = o.Flag("cls");
      CheckSize("swin option height", height);
      CheckSize("swin option width", width);
      const int64_t rows = (2 * height - 1) * (2 * width - 1) + (cls ? 3 : 0);
      return {{"table", RandomTable({rows, config.heads}, 1.0, config.seed)},
              {"height", height},
              {"width", width},
              {"cls", cls}};
    },
};

}  // namespace locus
