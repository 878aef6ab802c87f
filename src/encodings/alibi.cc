// ALiBi: attention with linear biases.
//
//   s = scale * q.k - slope_h * |m - n|
//
// slope_h = 2^(-bias_max h / H), h = 1 .. H, if H is a power of two. Otherwise
// the slopes of the power of two below, then every other slope of the one
// above. Causal models see one side only; the symmetric form penalises both
// sides alike, and the asymmetric form has separate slopes for later keys.
// Press et al., "Train Short, Test Long" (2022).
#include "locus/encodings/alibi.h"

#include <bit>
#include <cmath>

#include "encodings/common.h"

namespace locus {

std::vector<double> Alibi::Slopes(int64_t heads, double bias_max) {
  CheckSize("ALiBi's number of heads", heads);
  CheckPositive("ALiBi's bias_max", bias_max);
  const int64_t below =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<double> slopes;
  for (int64_t j = 1; j <= below; ++j) {
    slopes.push_back(std::exp2(-bias_max * static_cast<double>(j) /
                               static_cast<double>(below)));
  }
  for (int64_t j = 1; static_cast<int64_t>(slopes.size()) < heads; j += 2) {
    slopes.push_back(std::exp2(-bias_max * static_cast<double>(j) /
                               static_cast<double>(2 * below)));
  }
  return slopes;
}

Alibi::Alibi(int64_t heads, AlibiOptions options) {
  CheckSize("ALiBi's number of heads", heads);
  ramp_.past = options.slopes.empty() ? Slopes(heads, options.bias_max)
                                      : std::move(options.slopes);
  ramp_.future = options.future_slopes.empty()
                     ? ramp_.past
                     : std::move(options.future_slopes);
  for (const auto* slopes : {&ramp_.past, &ramp_.future}) {
    if (static_cast<int64_t>(slopes->size()) != heads) {
      Fail("ALiBi for {} heads needs {} slopes, got {}", heads, heads,
           slopes->size());
    }
    for (double slope : *slopes) {
      if (!std::isfinite(slope))
        Fail("an ALiBi slope is not finite: {}", slope);
    }
  }
}

Lowered Alibi::Lower(const Shape& shape) const {
  CheckCallHeads("ALiBi", static_cast<int64_t>(ramp_.past.size()), shape);
  Lowered lowered = LowerPlain(shape);
  lowered.terms.bias = ramp_;
  return lowered;
}

namespace {

constexpr Field kBiasMax = {
    .name = "bias_max",
    .type = FieldType::kReal,
    .fallback = "8.0",
    .sentence = "the geometric slopes are 2^(-bias_max j / heads)",
    .slider = {0.5, 32, 0.5}};
constexpr Field kAlibiFields[] = {
    {.name = "heads", .sentence = "how many"},
    kBiasMax,
    {.name = "slopes",
     .type = FieldType::kReals,
     .fallback = "None",
     .shape = "heads",
     .optional = true,
     .sentence = "instead of the geometric ones"},
    {.name = "future_slopes",
     .type = FieldType::kReals,
     .fallback = "None",
     .shape = "heads",
     .optional = true,
     .sentence = "those towards later keys; None: the same"}};
constexpr Field kAlibiOptions[] = {kBiasMax};
constexpr std::string_view kAlibiVariants[] = {"bias_max=4"};

}  // namespace

LOCUS_DESCRIPTOR(Alibi) = {
    .name = "alibi",
    .class_name = "Alibi",
    .title = "ALiBi linear bias",
    .formula = "s = scale q.k - slope_h |m - n|",
    .summary = "Press et al. (2022): s - slope_h |m - n|.",
    .paper = "Press et al., Train Short, Test Long, 2022",
    .models = "BLOOM, MPT, Falcon-RW, Baichuan-13B",
    .reference = Reference::kRelative,
    .trainable = false,
    .extrapolates = Extrapolates::kYes,
    .extrapolation_note = "far keys fade; loss stays flat past the length",
    .picture = Picture::kBias,
    .fields = kAlibiFields,
    .options = kAlibiOptions,
    .variants = kAlibiVariants,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<Alibi>(
          f.Int("heads"),
          AlibiOptions{.bias_max = f.Real("bias_max"),
                       .slopes = f.Reals("slopes"),
                       .future_slopes = f.Reals("future_slopes")});
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const BiasRamp& ramp = static_cast<const Alibi&>(encoding).ramp();
      return {{"heads", static_cast<int64_t>(ramp.past.size())},
              {"slopes", ramp.past},
              {"future_slopes", ramp.future}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      return {{"heads", config.heads}, {"bias_max", o.Real("bias_max")}};
    },
};

}  // namespace locus
