// xPos: an extrapolatable position embedding.
//
//   s = scale * sum_p zeta_p^((m - n) / scale_base) (R_m q)_p.(R_n k)_p
//   zeta_p = (2p / d + gamma) / (1 + gamma)
//
// RoPE's score oscillates with the offset; multiplying pair p of q by
// zeta^(m/b) and of k by zeta^(-n/b) damps fast pairs sooner, so that scores
// fall off smoothly. Made for causal attention, where m >= n.
// Sun et al., "A Length-Extrapolatable Transformer" (2022).
#include "locus/encodings/xpos.h"

#include <cmath>

#include "encodings/common.h"
#include "locus/encodings/rope.h"

namespace locus {

XPos::XPos(int64_t head_dim, PairLayout layout, XPosOptions options)
    : head_dim_(head_dim), options_(options) {
  CheckSize("xPos' head_dim", head_dim);
  if (head_dim % 2 != 0) Fail("xPos' head_dim must be even, got {}", head_dim);
  CheckPositive("xPos' base", options.base);
  CheckPositive("xPos' scale_base", options.scale_base);
  CheckPositive("xPos' gamma", options.gamma);
  rotation_.layout = layout;
  rotation_.rotary_dim = head_dim;
  rotation_.theta = RopeFrequencies(head_dim, options.base);
  for (int64_t p = 0; p < head_dim / 2; ++p) {
    const double share =
        static_cast<double>(2 * p) / static_cast<double>(head_dim);
    const double zeta = (share + options.gamma) / (1.0 + options.gamma);
    rotation_.log_decay.push_back(std::log(zeta) / options.scale_base);
  }
}

Lowered XPos::Lower(const Shape& shape) const {
  CheckCallDim("xPos", head_dim_, shape);
  Lowered lowered = LowerPlain(shape);
  lowered.terms.rotate = rotation_;
  return lowered;
}

constinit const EncodingInfo kXPosInfo = {
    .name = "xpos",
    .class_name = "XPos",
    .title = "xPos (rotation with decay)",
    .formula = "s = scale sum_p zeta_p^((m-n)/b) (R_m q)_p.(R_n k)_p",
    .paper = "Sun et al., A Length-Extrapolatable Transformer, 2022",
    .models = "RetNet, TorchScale",
    .reference = Reference::kRelative,
    .trainable = false,
    .extrapolates = Extrapolates::kYes,
    .extrapolation_note = "fast pairs fade with the offset",
    .picture = Picture::kRotation,
    .options = "layout=interleaved|halves, base, scale_base, gamma",
    .example = [](const ExampleConfig& config) -> std::unique_ptr<Encoding> {
      OptionReader options("xpos", config);
      const PairLayout layout = LayoutOption(options);
      XPosOptions o;
      o.base = options.Number("base", 10000.0);
      o.scale_base = options.Number("scale_base", 512.0);
      o.gamma = options.Number("gamma", 0.4);
      options.Done();
      return std::make_unique<XPos>(config.head_dim, layout, o);
    },
};

}  // namespace locus
