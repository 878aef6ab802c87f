// KERPLE: kernelised relative positions.
//
//   logarithmic:  s = scale * q.k - r1 ln(1 + r2 |m - n|)
//   power:        s = scale * q.k - r1 |m - n|^r2
//
// r1, r2 > 0 are trained per head; the power kernel needs r2 <= 2 to stay
// conditionally positive definite, and is ALiBi at r2 = 1.
// Chi et al., "KERPLE: Kernelized Relative Positional Embedding for Length
// Extrapolation" (2022).
#include "locus/encodings/kerple.h"

#include <cmath>

#include "encodings/common.h"

namespace locus {
namespace {

// The kernel and its derivatives with respect to r1 and r2, at distance x.
struct Kernel {
  double value;
  double by_r1;
  double by_r2;
};

Kernel Evaluate(KerpleKind kind, double r1, double r2, double x) {
  if (kind == KerpleKind::kLogarithmic) {
    const double log = std::log1p(r2 * x);
    return {-r1 * log, -log, -r1 * x / (1.0 + r2 * x)};
  }
  if (x == 0.0) return {0.0, 0.0, 0.0};
  const double power = std::pow(x, r2);
  return {-r1 * power, -power, -r1 * power * std::log(x)};
}

}  // namespace

Kerple::Kerple(KerpleKind kind, Tensor r1, Tensor r2)
    : kind_(kind), r1_(std::move(r1)), r2_(std::move(r2)) {
  if (r1_.rank() != 1 || r1_.shape() != r2_.shape() || r1_.size(0) < 1) {
    Fail("KERPLE needs r1 and r2 [heads], got {} and {}", r1_.Describe(),
         r2_.Describe());
  }
  for (int64_t h = 0; h < r1_.size(0); ++h) {
    CheckPositive("KERPLE's r1", r1_.At(h));
    CheckPositive("KERPLE's r2", r2_.At(h));
    if (kind == KerpleKind::kPower && r2_.At(h) > 2.0) {
      Fail("KERPLE's power kernel needs r2 <= 2, got {}", r2_.At(h));
    }
  }
}

Lowered Kerple::Lower(const Shape& shape) const {
  CheckCallHeads("KERPLE", r1_.size(0), shape);
  Lowered lowered = LowerPlain(shape);
  lowered.terms.bias = BiasByOffset(shape, [this](int64_t h, int64_t offset) {
    const double distance = std::abs(static_cast<double>(offset));
    return Evaluate(kind_, r1_.At(h), r2_.At(h), distance).value;
  });
  return lowered;
}

std::vector<Param> Kerple::Params() const { return {{"r1", r1_}, {"r2", r2_}}; }

std::unique_ptr<Encoding> Kerple::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  return std::make_unique<Kerple>(kind_, values[0], values[1]);
}

ParamGrads Kerple::PullBack(const Shape& shape, const TermGrads& grads) const {
  const Tensor& d = std::get<BiasTableGrads>(*grads.bias).values;
  const int64_t heads = r1_.size(0);
  std::vector<double> d_r1(static_cast<size_t>(heads));
  std::vector<double> d_r2(static_cast<size_t>(heads));
  for (int64_t h = 0; h < heads; ++h) {
    const size_t at = static_cast<size_t>(h);
    for (int64_t b = 0; b < d.size(1); ++b) {
      const double distance =
          std::abs(static_cast<double>(shape.min_offset + b));
      const Kernel k = Evaluate(kind_, r1_.At(h), r2_.At(h), distance);
      d_r1[at] += d.At(h, b) * k.by_r1;
      d_r2[at] += d.At(h, b) * k.by_r2;
    }
  }
  return {{"r1", Tensor::From({heads}, d_r1)},
          {"r2", Tensor::From({heads}, d_r2)}};
}

namespace {

constexpr Field kKerpleFields[] = {
    {.name = "kind",
     .type = FieldType::kChoice,
     .choices = "logarithmic|power",
     .sentence = "of the kernel"},
    {.name = "r1",
     .type = FieldType::kTable,
     .shape = "heads",
     .sentence = "the size of the bias, positive"},
    {.name = "r2",
     .type = FieldType::kTable,
     .shape = "heads",
     .sentence = "the rate or the power, positive; a power is at most 2"}};
// In the order of KerpleKind.
constexpr Field kKerpleOptions[] = {{.name = "kind",
                                     .type = FieldType::kChoice,
                                     .fallback = "log",
                                     .choices = "log|power",
                                     .sentence = "of the kernel"}};
constexpr std::string_view kKerpleVariants[] = {"kind=power"};
// The constants of the paper, which keeps them above 0.01.
constexpr ParamTraining kKerpleTraining[] = {
    {.name = "r1", .rate = kBiasRate, .lowest = 0.01},
    {.name = "r2",
     .rate = kBiasRate,
     .lowest = 0.01,
     .highest = 2.0,
     .highest_for = "kind=power"}};

}  // namespace

LOCUS_DESCRIPTOR(Kerple) = {
    .name = "kerple",
    .class_name = "Kerple",
    .title = "KERPLE kernel bias",
    .formula = "s = scale q.k - r1 ln(1 + r2 |m - n|), or - r1 |m - n|^r2",
    .summary =
        "Chi et al. (2022): s - r1 ln(1 + r2 |m - n|) (kind \"logarithmic\") "
        "or s - "
        "r1 |m - n|^r2 (\"power\").",
    .paper = "Chi et al., KERPLE, 2022",
    .models = "research",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kYes,
    .extrapolation_note = "decays slower than ALiBi, still without end",
    .picture = Picture::kBias,
    .fields = kKerpleFields,
    .options = kKerpleOptions,
    .variants = kKerpleVariants,
    .training = kKerpleTraining,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<Kerple>(f.Choice<KerpleKind>("kind"),
                                      f.Table("r1"), f.Table("r2"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const KerpleKind kind = static_cast<const Kerple&>(encoding).kind();
      return {{"kind", Enumerator(kind)}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      const bool power = o.Choice<KerpleKind>("kind") == KerpleKind::kPower;
      CheckSize("the example's heads", config.heads);
      std::vector<double> r1, r2;
      for (int64_t h = 0; h < config.heads; ++h) {
        const double share =
            static_cast<double>(h + 1) / static_cast<double>(config.heads);
        r1.push_back(power ? 0.05 + 0.2 * share : 0.5 + share);
        r2.push_back(power ? 0.5 + 0.5 * share : 2.0 * share);
      }
      return {{"kind", Enumerator(o.Choice<KerpleKind>("kind"))},
              {"r1", Tensor::From({config.heads}, r1)},
              {"r2", Tensor::From({config.heads}, r2)}};
    },
};

}  // namespace locus
