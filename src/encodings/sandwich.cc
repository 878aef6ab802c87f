// Sandwich: sinusoidal embeddings as a bias.
//
//   s = scale * q.k + (E[m].E[n]) / (8 h / H),   h = 1 .. H
//   E[m].E[n] = sum_i cos((m - n) w_i),   w_i = base^(-2i / d)
//
// The inner product of two sinusoidal embeddings depends only on the offset and
// decays like a logarithm; without the cross terms with content, it
// extrapolates.
// Chi et al., "Dissecting Transformer Length Extrapolation via the Lens of
// Receptive Field Analysis" (2023).
#include "locus/encodings/sandwich.h"

#include <algorithm>
#include <cmath>

#include "core/threads.h"
#include "encodings/common.h"
#include "locus/encodings/rope.h"

namespace locus {
namespace {

// sum_i cos(o w_i) for every offset o in [first, last]. Offsets may be many:
// with o = a + b and few a and b, cos(o w) is cos(a w) cos(b w) - sin(a w)
// sin(b w), which is faster than a cosine.
std::vector<double> CosineSums(const std::vector<double>& frequencies,
                               int64_t first, int64_t last) {
  const int64_t steps = std::min<int64_t>(last - first + 1, 256);
  const size_t pairs = frequencies.size();
  std::vector<double> cos_b, sin_b, cos_a(pairs), sin_a(pairs), sums;
  for (int64_t b = 0; b < steps; ++b) {
    for (double w : frequencies) {
      cos_b.push_back(std::cos(static_cast<double>(b) * w));
      sin_b.push_back(std::sin(static_cast<double>(b) * w));
    }
  }
  for (int64_t a = first; a <= last; a += steps) {
    CheckInterrupt();
    for (size_t i = 0; i < pairs; ++i) {
      cos_a[i] = std::cos(static_cast<double>(a) * frequencies[i]);
      sin_a[i] = std::sin(static_cast<double>(a) * frequencies[i]);
    }
    const double* cos = cos_b.data();
    const double* sin = sin_b.data();
    for (int64_t b = 0; b < std::min(steps, last - a + 1); ++b) {
      double sum = 0.0;
      for (size_t i = 0; i < pairs; ++i) {
        sum += cos_a[i] * cos[i] - sin_a[i] * sin[i];
      }
      sums.push_back(sum);
      cos += pairs;
      sin += pairs;
    }
  }
  return sums;
}

}  // namespace

Sandwich::Sandwich(int64_t heads, int64_t dim, double base)
    : heads_(heads), dim_(dim), base_(base) {
  CheckSize("Sandwich's number of heads", heads);
  CheckSize("Sandwich's dim", dim);
  CheckPositive("Sandwich's base", base);
  if (dim % 2 != 0) Fail("Sandwich's dim must be even, got {}", dim);
  frequencies_ = RopeFrequencies(dim, base);
}

Lowered Sandwich::Lower(const Shape& shape) const {
  CheckCallHeads("Sandwich", heads_, shape);
  CheckSpan("the offsets of a bias", shape.min_offset, shape.max_offset);
  // The same for every head.
  const std::vector<double> sums =
      CosineSums(frequencies_, shape.min_offset, shape.max_offset);
  Lowered lowered = LowerPlain(shape);
  lowered.terms.bias = BiasByOffset(shape, [&](int64_t h, int64_t offset) {
    const double compression =
        8.0 * static_cast<double>(h + 1) / static_cast<double>(heads_);
    return sums[static_cast<size_t>(offset - shape.min_offset)] / compression;
  });
  return lowered;
}

namespace {

constexpr Field kDim = {.name = "dim",
                        .fallback = "128",
                        .sentence = "of the sinusoids, 128 in the paper",
                        .slider = {2, 512, 2, /*logarithmic=*/true}};
constexpr Field kSandwichBase = BaseField("10000.0");
constexpr Field kSandwichFields[] = {
    {.name = "heads", .sentence = "how many; later ones are steeper"},
    kDim,
    kSandwichBase};
constexpr Field kSandwichOptions[] = {kDim, kSandwichBase};

}  // namespace

LOCUS_DESCRIPTOR(Sandwich) = {
    .name = "sandwich",
    .class_name = "Sandwich",
    .title = "Sandwich",
    .formula = "s = scale q.k + sum_i cos((m - n) w_i) / (8 h / H)",
    .summary =
        "Chi et al. (2023): the sinusoids' own inner product as a bias, "
        "steeper "
        "for later heads.",
    .paper =
        "Chi et al., Dissecting Transformer Length Extrapolation via the "
        "Lens of Receptive Field Analysis, 2023",
    .models = "research",
    .reference = Reference::kRelative,
    .trainable = false,
    .extrapolates = Extrapolates::kYes,
    .extrapolation_note = "falls off like a logarithm",
    .picture = Picture::kBias,
    .fields = kSandwichFields,
    .options = kSandwichOptions,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<Sandwich>(f.Int("heads"), f.Int("dim"),
                                        f.Real("base"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const Sandwich&>(encoding);
      return {{"heads", e.heads()}, {"dim", e.dim()}, {"base", e.base()}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      return {{"heads", config.heads},
              {"dim", o.Int("dim")},
              {"base", o.Real("base")}};
    },
};

}  // namespace locus
