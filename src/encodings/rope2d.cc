// Rotary positions with several coordinates.
//
//   pair p turns by (coordinate of its axis) * w_p
//
// Axial 2-D gives the first half of the pairs to the row, the second to the
// column. M-RoPE deals the pairs of one ordinary RoPE to time, height and
// width, in chunks or interleaved. The coordinates are read off one integer
// position, so that positions stay one int64 per token everywhere; a plain
// index is a text token of M-RoPE, whose three coordinates are equal.
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
  // The even frequencies of the head are those of a head of half the width.
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

constinit const EncodingInfo kRope2DInfo = {
    .name = "rope-2d",
    .class_name = "Rope2D",
    .title = "Axial 2-D RoPE",
    .formula = "half of the pairs turn by y w_p, half by x w_p",
    .paper =
        "Heo et al., Rotary Position Embedding for Vision Transformer, "
        "2024",
    .models = "EVA-02, Pixtral, vision towers of Qwen-VL",
    .reference = Reference::kRelative,
    .trainable = false,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "as RoPE, along each axis",
    .picture = Picture::kRotation,
    .options =
        "layout=interleaved|halves, width, base, "
        "frequencies=shared|alternating",
    .example = [](const ExampleConfig& config) -> std::unique_ptr<Encoding> {
      OptionReader options("rope-2d", config);
      const PairLayout layout = LayoutOption(options);
      const int64_t width = options.Integer("width", 16);
      const double base = options.Number("base", 100.0);
      const bool alternating =
          options.Choice("frequencies", "shared", {"shared", "alternating"}) ==
          "alternating";
      options.Done();
      return std::make_unique<Rope2D>(config.head_dim, layout, width, base,
                                      alternating
                                          ? AxialFrequencies::kAlternating
                                          : AxialFrequencies::kShared);
    },
};

constinit const EncodingInfo kMRopeInfo = {
    .name = "mrope",
    .class_name = "MRope",
    .title = "M-RoPE (time, height, width)",
    .formula = "pair p turns by t w_p, h w_p or w w_p, by its section",
    .paper = "Wang et al., Qwen2-VL, 2024",
    .models = "Qwen2-VL, Qwen2.5-VL, Qwen3-VL",
    .reference = Reference::kRelative,
    .trainable = false,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "as RoPE, along each axis",
    .picture = Picture::kRotation,
    .options = "layout=interleaved|halves, dealing=chunked|interleaved, base",
    .example = [](const ExampleConfig& config) -> std::unique_ptr<Encoding> {
      OptionReader options("mrope", config);
      const PairLayout layout = LayoutOption(options);
      const bool interleaved =
          options.Choice("dealing", "chunked", {"chunked", "interleaved"}) ==
          "interleaved";
      const double base = options.Number("base", 1e6);
      options.Done();
      // A quarter of the pairs to time, as Qwen2-VL: 16, 24, 24 of 64.
      const int64_t pairs = config.head_dim / 2;
      const int64_t space = (pairs - pairs / 4) / 2;
      return std::make_unique<MRope>(
          config.head_dim, layout,
          std::array<int64_t, 3>{pairs - 2 * space, space, space},
          interleaved ? MRopeSections::kInterleaved : MRopeSections::kChunked,
          base);
    },
};

}  // namespace locus
