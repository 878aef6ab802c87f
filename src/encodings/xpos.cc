// xPos: an extrapolatable position embedding.
//
//   s = scale * sum_p zeta_p^((m - n) / scale_base) (R_m q)_p.(R_n k)_p
//   zeta_p = (2p / d + gamma) / (1 + gamma)
//
// RoPE's score oscillates with the offset; multiplying pair p of q by
// zeta^(m/b) and of k by zeta^(-n/b) damps fast pairs sooner, so scores decay
// smoothly. Designed for causal attention, where m >= n.
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

namespace {

constexpr Field kXposBase = BaseField("10000.0");
constexpr Field kScaleBase = {.name = "scale_base",
                              .type = FieldType::kReal,
                              .fallback = "512.0",
                              .sentence = "offsets over which pairs fade",
                              .slider = {2, 8192, 2, /*logarithmic=*/true},
                              .tied = Tied::kHalfLength};
constexpr Field kGamma = {.name = "gamma",
                          .type = FieldType::kReal,
                          .fallback = "0.4",
                          .sentence = "how evenly pairs fade",
                          .slider = {0, 2, 0.1}};
constexpr Field kXposFields[] = {
    {.name = "head_dim", .sentence = "channels of a head"},
    kLayoutField,
    kXposBase,
    kScaleBase,
    kGamma};
constexpr Field kXposOptions[] = {kLayoutOption, kXposBase, kScaleBase, kGamma};

}  // namespace

LOCUS_DESCRIPTOR(XPos) = {
    .name = "xpos",
    .class_name = "XPos",
    .title = "xPos (rotation with decay)",
    .formula = "s = scale sum_p zeta_p^((m-n)/b) (R_m q)_p.(R_n k)_p",
    .summary =
        "Sun et al. (2022): RoPE whose pairs also decay with the offset, ((2i "
        "/ D "
        "+ gamma) / (1 + gamma))^((m - n) / scale_base).",
    .paper = "Sun et al., A Length-Extrapolatable Transformer, 2022",
    .models = "RetNet, TorchScale",
    .reference = Reference::kRelative,
    .trainable = false,
    .extrapolates = Extrapolates::kYes,
    .extrapolation_note = "fast pairs fade with the offset",
    .picture = Picture::kRotation,
    .fields = kXposFields,
    .options = kXposOptions,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<XPos>(
          f.Int("head_dim"), f.Choice<PairLayout>("layout"),
          XPosOptions{.base = f.Real("base"),
                      .scale_base = f.Real("scale_base"),
                      .gamma = f.Real("gamma")});
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const XPos&>(encoding);
      const XPosOptions& options = e.options();
      return {{"head_dim", e.head_dim()},
              {"layout", Enumerator(e.layout())},
              {"base", options.base},
              {"scale_base", options.scale_base},
              {"gamma", options.gamma}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      return {{"head_dim", config.head_dim},
              {"layout", o.Word("layout")},
              {"base", o.Real("base")},
              {"scale_base", o.Real("scale_base")},
              {"gamma", o.Real("gamma")}};
    },
};

}  // namespace locus
