// Rotary positions whose frequencies are trained.
//
//   along the sequence:  pair p rotates by m w_p exp(alpha_p),
//                        w_p = base^(-2p / r)
//   over a grid:         pair p rotates by y theta[p, 0] + x theta[p, 1]
//
// For the first, d_alpha_p = d_theta_p theta_p. The second, "RoPE-mixed", can
// represent diagonal directions, which axial pairs cannot. Frequencies are
// shared by the heads, or each key head has its own, as in the paper.
// Heo et al., "Rotary Position Embedding for Vision Transformer" (2024).
#include "locus/encodings/rope_learned.h"

#include <cmath>

#include "encodings/common.h"
#include "locus/encodings/rope.h"

namespace locus {

namespace {

// Number of heads with their own frequencies; `rank` is the rank if they are
// shared.
int64_t HeadsOf(const Tensor& frequencies, int rank) {
  return frequencies.rank() == rank ? frequencies.size(0) : 1;
}

}  // namespace

RopeLearned::RopeLearned(Tensor alpha, PairLayout layout, double base)
    : alpha_(std::move(alpha)), layout_(layout), base_(base) {
  if (alpha_.rank() < 1 || alpha_.rank() > 2 || alpha_.NumElements() == 0) {
    Fail(
        "learned RoPE needs alpha [rotary_dim / 2] or [heads, rotary_dim / 2],"
        " got {}",
        alpha_.Describe());
  }
  CheckFinite("learned RoPE's alpha", alpha_);
  CheckPositive("learned RoPE's base", base);
}

std::vector<double> RopeLearned::Theta() const {
  const std::vector<double> w = RopeFrequencies(2 * alpha_.size(-1), base_);
  std::vector<double> theta = alpha_.ToVector();
  for (size_t n = 0; n < theta.size(); ++n) {
    theta[n] = w[n % w.size()] * std::exp(theta[n]);
  }
  return theta;
}

Lowered RopeLearned::Lower(const Shape& shape) const {
  Lowered lowered = LowerPlain(shape);
  lowered.terms.rotate = Rotation{.layout = layout_,
                                  .rotary_dim = 2 * alpha_.size(-1),
                                  .theta = Theta(),
                                  .heads = HeadsOf(alpha_, 2),
                                  .trains = true};
  return lowered;
}

std::vector<Param> RopeLearned::Params() const { return {{"alpha", alpha_}}; }

std::unique_ptr<Encoding> RopeLearned::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  return std::make_unique<RopeLearned>(values[0], layout_, base_);
}

ParamGrads RopeLearned::PullBack(const Shape& /*shape*/,
                                 const TermGrads& grads) const {
  // theta = w exp(alpha)  =>  d_alpha = d_theta theta
  std::vector<double> d = grads.rotate->theta;
  const std::vector<double> theta = Theta();
  for (size_t p = 0; p < d.size(); ++p) d[p] *= theta[p];
  return {{"alpha", Tensor::From(alpha_.shape(), std::move(d))}};
}

RopeMixed::RopeMixed(Tensor theta, PairLayout layout, int64_t width,
                     RopeMixedOptions options)
    : theta_(std::move(theta)),
      layout_(layout),
      width_(width),
      options_(options) {
  if (theta_.rank() < 2 || theta_.rank() > 3 || theta_.NumElements() == 0 ||
      theta_.size(-1) != 2) {
    Fail(
        "RoPE-mixed needs theta [rotary_dim / 2, 2] or [heads, rotary_dim / 2,"
        " 2], got {}",
        theta_.Describe());
  }
  CheckFinite("RoPE-mixed's theta", theta_);
  CheckSize("RoPE-mixed's width", width);
  if (options.prefix < 0 || options.prefix > kHighestPosition) {
    Fail("RoPE-mixed's prefix must lie in [0, {}], got {}", kHighestPosition,
         options.prefix);
  }
  for (double offset : options.offsets) {
    if (!std::isfinite(offset)) {
      Fail("an offset of RoPE-mixed is not finite: {}", offset);
    }
  }
}

Lowered RopeMixed::Lower(const Shape& shape) const {
  Rotation rotation{
      .layout = layout_,
      .rotary_dim = 2 * theta_.size(-2),
      .theta = theta_.ToVector(),
      .heads = HeadsOf(theta_, 3),
      .axes = {{.divisor = width_, .modulus = 0, .offset = options_.offsets[0]},
               {.divisor = 1,
                .modulus = width_,
                .offset = options_.offsets[1]}},
      .trains = true};
  if (options_.prefix > 0) rotation.origin = options_.prefix;
  Lowered lowered = LowerPlain(shape);
  lowered.terms.rotate = std::move(rotation);
  return lowered;
}

std::vector<Param> RopeMixed::Params() const { return {{"theta", theta_}}; }

std::unique_ptr<Encoding> RopeMixed::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  return std::make_unique<RopeMixed>(values[0], layout_, width_, options_);
}

ParamGrads RopeMixed::PullBack(const Shape& /*shape*/,
                               const TermGrads& grads) const {
  return {{"theta", Tensor::From(theta_.shape(), grads.rotate->theta)}};
}

namespace {

constexpr Field kRopeLearnedBase = BaseField("10000.0");
constexpr Field kLearnedFields[] = {
    {.name = "alpha",
     .type = FieldType::kTable,
     .shape = "[heads,] rotary_dim / 2",
     .sentence = "the first rotary_dim channels rotate; zeros are ordinary "
                 "RoPE; heads are key heads"},
    kLayoutField,
    kRopeLearnedBase};
constexpr Field kPerHead = {
    .name = "per_head",
    .type = FieldType::kFlag,
    .fallback = "False",
    .sentence = "frequencies of its own for every head"};
constexpr Field kLearnedOptions[] = {kLayoutOption, kRopeLearnedBase, kPerHead};
constexpr std::string_view kLearnedVariants[] = {"per_head=true"};
constexpr ParamTraining kLearnedTraining[] = {{.name = "alpha"}};

}  // namespace

LOCUS_DESCRIPTOR(RopeLearned) = {
    .name = "rope-learned",
    .class_name = "RopeLearned",
    .title = "RoPE with learned frequencies",
    .formula = "pair p turns by m base^(-2p/r) exp(alpha_p)",
    .summary =
        "RoPE with a trained exponent per pair: pair p turns by pos * "
        "base^(-2p / "
        "rotary_dim) * exp(alpha[p]).",
    .paper = "Su et al., RoFormer, 2021, with trained frequencies",
    .models = "research",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "as RoPE, at the frequencies that it learned",
    .picture = Picture::kRotation,
    .fields = kLearnedFields,
    .options = kLearnedOptions,
    .variants = kLearnedVariants,
    .training = kLearnedTraining,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<RopeLearned>(
          f.Table("alpha"), f.Choice<PairLayout>("layout"), f.Real("base"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const RopeLearned&>(encoding);
      return {{"layout", Enumerator(e.layout())}, {"base", e.base()}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      CheckSize("the example's head_dim", config.head_dim);
      std::vector<int64_t> shape = {config.head_dim / 2};
      if (o.Flag("per_head")) {
        CheckSize("the example's heads", config.heads);
        shape.insert(shape.begin(), config.heads);
      }
      return {{"alpha", RandomTable(shape, 0.1, config.seed)},
              {"layout", o.Word("layout")},
              {"base", o.Real("base")}};
    },
};

namespace {

constexpr Field kPrefix = {
    .name = "prefix",
    .fallback = "0",
    .sentence = "tokens before the grid, such as [CLS], which are not rotated",
    .slider = {0, 16, 1}};
constexpr Field kMixedFields[] = {
    {.name = "theta",
     .type = FieldType::kTable,
     .shape = "[heads,] rotary_dim / 2, 2",
     .sentence = "radians per row and per column, shared by the heads or of "
                 "each key head: the first rotary_dim channels rotate"},
    kLayoutField,
    {.name = "width",
     .sentence = "of the grid: positions are raster indices prefix + y * width "
                 "+ x"},
    kPrefix,
    {.name = "offsets",
     .type = FieldType::kReals,
     .fallback = "(0.0, 0.0)",
     .shape = "2",
     .sentence =
         "added to y and x: (0.5 - height / 2, 0.5 - width / 2) centres "
         "the grid"}};
constexpr Field kMixedOptions[] = {kLayoutOption,
                                   {.name = "width",
                                    .fallback = "16",
                                    .sentence = "of the grid",
                                    .slider = {1, 64, 1}},
                                   BaseField("100.0"),
                                   kPrefix,
                                   kPerHead};
constexpr std::string_view kMixedVariants[] = {"per_head=true"};
constexpr ParamTraining kMixedTraining[] = {{.name = "theta"}};

}  // namespace

LOCUS_DESCRIPTOR(RopeMixed) = {
    .name = "rope-mixed",
    .class_name = "RopeMixed",
    .title = "RoPE-mixed over a 2-D grid",
    .formula = "pair p turns by y theta[p, 0] + x theta[p, 1]",
    .summary =
        "Heo et al. (2024): over a 2-D grid, pair p turns by y * theta[p, 0] + "
        "x * "
        "theta[p, 1].",
    .paper =
        "Heo et al., Rotary Position Embedding for Vision Transformer, "
        "2024",
    .models = "ViT with RoPE-mixed (timm)",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "as RoPE, along each direction",
    .picture = Picture::kRotation,
    .fields = kMixedFields,
    .options = kMixedOptions,
    .variants = kMixedVariants,
    .training = kMixedTraining,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      const std::vector<double> offsets = f.Reals("offsets");
      if (offsets.size() != 2) {
        Fail(
            "offsets must be two numbers, of the row and of the column, got {}",
            offsets.size());
      }
      return std::make_unique<RopeMixed>(
          f.Table("theta"), f.Choice<PairLayout>("layout"), f.Int("width"),
          RopeMixedOptions{.prefix = f.Int("prefix"),
                           .offsets = {offsets[0], offsets[1]}});
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const RopeMixed&>(encoding);
      const auto& [y, x] = e.options().offsets;
      return {{"layout", Enumerator(e.layout())},
              {"width", e.width()},
              {"prefix", e.options().prefix},
              {"offsets", std::vector<double>{y, x}}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      const double base = o.Real("base");
      CheckSize("the example's head_dim", config.head_dim);
      CheckPositive("the example's base", base);
      const bool per_head = o.Flag("per_head");
      if (per_head) CheckSize("the example's heads", config.heads);
      const int64_t heads = per_head ? config.heads : 1;
      // Directions are a golden angle apart, so no two pairs have the same one.
      constexpr double kGoldenAngle = 2.399963229728653;
      std::vector<double> theta;
      double direction = -kGoldenAngle;
      for (int64_t h = 0; h < heads; ++h) {
        for (double w : RopeFrequencies(config.head_dim, base)) {
          direction += kGoldenAngle;
          theta.push_back(w * std::cos(direction));
          theta.push_back(w * std::sin(direction));
        }
      }
      std::vector<int64_t> shape = {config.head_dim / 2, 2};
      if (per_head) shape.insert(shape.begin(), heads);
      return {{"theta", Tensor::From(std::move(shape), std::move(theta))},
              {"layout", o.Word("layout")},
              {"width", o.Int("width")},
              {"prefix", o.Int("prefix")}};
    },
};

}  // namespace locus
