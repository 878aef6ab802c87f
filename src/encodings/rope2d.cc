// Rotary positions with several coordinates.
//
//   pair p rotates by (coordinate of its axis) * w_p
//
// Axial 2-D assigns the first half of the pairs to the row, the second to the
// column. M-RoPE assigns the pairs of one ordinary RoPE to time, height and
// width, in chunks or interleaved. The coordinates are decoded from a single
// integer, so positions stay one int64 per token everywhere; a plain index is a
// text token of M-RoPE, whose three coordinates are equal.
// Heo et al., "Rotary Position Embedding for Vision Transformer" (2024);
// Wang et al., "Qwen2-VL" (2024); Qwen3-VL (2025).
#include "locus/encodings/rope2d.h"

#include "encodings/common.h"
#include "locus/encodings/rope.h"
#include "locus/rotary.h"

namespace locus {

Rope2D::Rope2D(int64_t head_dim, PairLayout layout, int64_t width, double base,
               AxialFrequencies frequencies)
    : head_dim_(head_dim), base_(base), frequencies_(frequencies) {
  CheckSize("2-D RoPE's head_dim", head_dim);
  if (head_dim % 4 != 0) {
    Fail("2-D RoPE needs a head_dim divisible by 4, got {}", head_dim);
  }
  CheckSize("2-D RoPE's width", width);
  CheckPositive("2-D RoPE's base", base);
  rotation_.layout = layout;
  rotation_.rotary_dim = head_dim;
  rotation_.axes = {{.divisor = width, .modulus = 0},
                    {.divisor = 1, .modulus = width}};
  // Even-numbered frequencies of the head are those of a head of half the size.
  const std::vector<double> theta = RopeFrequencies(head_dim, base);
  for (int32_t axis : {0, 1}) {
    const bool odd = axis == 1 && frequencies == AxialFrequencies::kAlternating;
    for (size_t p = odd ? 1 : 0; p < theta.size(); p += 2) {
      rotation_.theta.push_back(theta[p]);
      rotation_.axis.push_back(axis);
    }
  }
}

Lowered Rope2D::Lower(const Shape& shape) const {
  CheckCallDim("2-D RoPE", head_dim_, shape);
  Lowered lowered = LowerPlain(shape);
  lowered.terms.rotate = rotation_;
  return lowered;
}

MRope::MRope(int64_t head_dim, PairLayout layout,
             std::array<int64_t, 3> sections, MRopeSections dealing,
             double base)
    : head_dim_(head_dim), sections_(sections), dealing_(dealing), base_(base) {
  CheckSize("M-RoPE's head_dim", head_dim);
  CheckPositive("M-RoPE's base", base);
  const auto [t, h, w] = sections;
  if (t < 0 || h < 0 || w < 0 || head_dim % 2 != 0 ||
      t + h + w != head_dim / 2) {
    Fail("M-RoPE's sections must sum to head_dim / 2 = {}, got [{}, {}, {}]",
         head_dim / 2, t, h, w);
  }
  rotation_.layout = layout;
  rotation_.rotary_dim = head_dim;
  rotation_.theta = RopeFrequencies(head_dim, base);
  rotation_.packed_from = kPackedFrom;
  rotation_.axes = {
      {.divisor = kPackedAxis * kPackedAxis, .modulus = kPackedAxis},
      {.divisor = kPackedAxis, .modulus = kPackedAxis},
      {.divisor = 1, .modulus = kPackedAxis}};
  for (int64_t p = 0; p < head_dim / 2; ++p) {
    int32_t axis = 0;
    if (dealing == MRopeSections::kChunked) {
      axis = p < t ? 0 : p < t + h ? 1 : 2;
    } else if (p % 3 == 1 && p < 3 * h) {
      axis = 1;
    } else if (p % 3 == 2 && p < 3 * w) {
      axis = 2;
    }
    rotation_.axis.push_back(axis);
  }
}

Lowered MRope::Lower(const Shape& shape) const {
  CheckCallDim("M-RoPE", head_dim_, shape);
  Lowered lowered = LowerPlain(shape);
  lowered.terms.rotate = rotation_;
  return lowered;
}

namespace {

constexpr Field kHeadDim = {.name = "head_dim",
                            .sentence = "channels of a head"};
// In the order of AxialFrequencies.
constexpr Field kFrequencies = {
    .name = "frequencies",
    .type = FieldType::kChoice,
    .fallback = "shared",
    .choices = "shared|alternating",
    .sentence =
        "\"shared\" by rows and columns (EVA-02, Qwen-VL) or "
        "\"alternating\", rows the even and columns the odd ones "
        "(Pixtral)"};
constexpr Field kAxialFields[] = {
    kHeadDim,
    kLayoutField,
    {.name = "width",
     .sentence = "of the grid: positions are raster indices y * width + x"},
    BaseField("10000.0"),
    kFrequencies};
constexpr Field kAxialOptions[] = {kLayoutOption,
                                   {.name = "width",
                                    .fallback = "16",
                                    .sentence = "of the grid",
                                    .slider = {1, 64, 1}},
                                   BaseField("100.0"),
                                   kFrequencies};
constexpr std::string_view kAxialVariants[] = {"frequencies=alternating"};

}  // namespace

LOCUS_DESCRIPTOR(Rope2D) = {
    .name = "rope-2d",
    .class_name = "Rope2D",
    .title = "Axial 2-D RoPE",
    .formula = "half of the pairs rotate by y w_p, half by x w_p",
    .summary =
        "Axial 2-D RoPE: the first half of the pairs rotates by the row, the "
        "second by the column.",
    .paper =
        "Heo et al., Rotary Position Embedding for Vision Transformer, "
        "2024",
    .models = "EVA-02, Pixtral, vision towers of Qwen-VL",
    .reference = Reference::kRelative,
    .trainable = false,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "as RoPE, along each axis",
    .picture = Picture::kRotation,
    .fields = kAxialFields,
    .options = kAxialOptions,
    .variants = kAxialVariants,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<Rope2D>(
          f.Int("head_dim"), f.Choice<PairLayout>("layout"), f.Int("width"),
          f.Real("base"), f.Choice<AxialFrequencies>("frequencies"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const Rope2D&>(encoding);
      return {{"head_dim", e.head_dim()},
              {"layout", Enumerator(e.layout())},
              {"width", e.width()},
              {"base", e.base()},
              {"frequencies", Enumerator(e.frequencies())}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      return {{"head_dim", config.head_dim},
              {"layout", o.Word("layout")},
              {"width", o.Int("width")},
              {"base", o.Real("base")},
              {"frequencies", o.Word("frequencies")}};
    },
};

namespace {

// In the order of MRopeSections.
constexpr Field kDealing = {
    .name = "dealing",
    .type = FieldType::kChoice,
    .fallback = "chunked",
    .choices = "chunked|interleaved",
    .sentence =
        "of pairs to time, height and width: \"chunked\" (Qwen2-VL) or "
        "\"interleaved\" (Qwen3-VL)"};
constexpr Field kMRopeFields[] = {
    kHeadDim,
    kLayoutField,
    {.name = "sections",
     .type = FieldType::kInts,
     .shape = "3",
     .sentence = "pairs of time, height and width, head_dim / 2 in all"},
    kDealing,
    BaseField("1000000.0")};
constexpr Field kMRopeOptions[] = {kLayoutOption, kDealing,
                                   BaseField("1000000.0")};
constexpr std::string_view kMRopeVariants[] = {"dealing=interleaved"};

}  // namespace

LOCUS_DESCRIPTOR(MRope) = {
    .name = "mrope",
    .class_name = "MRope",
    .title = "M-RoPE (time, height, width)",
    .formula = "pair p rotates by t w_p, h w_p or w w_p, by its section",
    .summary =
        "M-RoPE: pairs dealt to time, height and width. Plain positions are "
        "text "
        "and rotate as those of Rope; tokens of images and videos are at "
        "pack_position(t, h, w).",
    .paper = "Wang et al., Qwen2-VL, 2024",
    .models = "Qwen2-VL, Qwen2.5-VL, Qwen3-VL",
    .reference = Reference::kRelative,
    .trainable = false,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "as RoPE, along each axis",
    .picture = Picture::kRotation,
    .fields = kMRopeFields,
    .options = kMRopeOptions,
    .variants = kMRopeVariants,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      const std::vector<int64_t> sections = f.Ints("sections");
      if (sections.size() != 3) {
        Fail("sections must be three numbers, got {}", sections.size());
      }
      return std::make_unique<MRope>(
          f.Int("head_dim"), f.Choice<PairLayout>("layout"),
          std::array<int64_t, 3>{sections[0], sections[1], sections[2]},
          f.Choice<MRopeSections>("dealing"), f.Real("base"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const MRope&>(encoding);
      const auto& [t, h, w] = e.sections();
      return {{"head_dim", e.head_dim()},
              {"layout", Enumerator(e.layout())},
              {"sections", std::vector<int64_t>{t, h, w}},
              {"dealing", Enumerator(e.dealing())},
              {"base", e.base()}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      // A quarter of the pairs for time, as in Qwen2-VL: 16, 24, 24 of 64.
      const int64_t pairs = config.head_dim / 2;
      const int64_t space = (pairs - pairs / 4) / 2;
      return {
          {"head_dim", config.head_dim},
          {"layout", o.Word("layout")},
          {"sections", std::vector<int64_t>{pairs - 2 * space, space, space}},
          {"dealing", o.Word("dealing")},
          {"base", o.Real("base")}};
    },
};

}  // namespace locus
