// Sines alone, and the sinusoids of the original Transformer.
//
//   sine only:   E[pos, j]      = sin(pos / base^(j / d))
//   sinusoidal:  E[pos, sin(i)] = sin(pos * w_i)
//                E[pos, cos(i)] = cos(pos * w_i)
//                w_i = base^(-2i / d), or base^(-i / (d/2 - 1)) inclusive
//
// With pairs, a shift is a rotation: (sin, cos)(pos + k) is (sin, cos)(pos)
// rotated by k * w_i, whatever pos is. With sines alone it is not linear.
// Vaswani et al., "Attention Is All You Need" (2017), section 3.5.
#include "locus/encodings/sinusoidal.h"

#include <cmath>

#include "encodings/common.h"

namespace locus {

SineOnly::SineOnly(int64_t dim, double base) : dim_(dim), base_(base) {
  CheckSize("the sine's dim", dim);
  CheckPositive("the sine's base", base);
}

Lowered SineOnly::Lower(const Shape& shape) const {
  return LowerInput(shape, dim_, /*widen=*/0,
                    [this](int64_t position, double* row) {
                      const Tensor e = Embed({&position, 1});
                      std::copy_n(e.Data<double>(), dim_, row);
                    });
}

Tensor SineOnly::Embed(std::span<const int64_t> positions) const {
  return FillRows(positions, dim_, [this](int64_t position, double* row) {
    for (int64_t j = 0; j < dim_; ++j) {
      const double exponent =
          static_cast<double>(j) / static_cast<double>(dim_);
      row[j] =
          std::sin(static_cast<double>(position) * std::pow(base_, -exponent));
    }
  });
}

Sinusoidal::Sinusoidal(int64_t dim, SinusoidalOptions options)
    : dim_(dim), options_(options) {
  CheckSize("the sinusoids' dim", dim);
  if (dim % 2 != 0) Fail("the sinusoids' dim must be even, got {}", dim);
  CheckPositive("the sinusoids' base", options.base);
  const bool inclusive = options.layout == SinusoidLayout::kHalvesInclusive;
  if (inclusive && dim < 4) {
    Fail("inclusive sinusoids need a dim of at least 4, got {}", dim);
  }
  const int64_t half = dim / 2;
  const double denominator = static_cast<double>(inclusive ? half - 1 : dim);
  for (int64_t i = 0; i < half; ++i) {
    const double numerator = static_cast<double>(inclusive ? i : 2 * i);
    frequencies_.push_back(std::pow(options.base, -numerator / denominator));
  }
}

int64_t Sinusoidal::SinAt(int64_t i) const {
  return options_.layout == SinusoidLayout::kInterleaved ? 2 * i : i;
}

int64_t Sinusoidal::CosAt(int64_t i) const {
  return options_.layout == SinusoidLayout::kInterleaved ? 2 * i + 1
                                                         : dim_ / 2 + i;
}

Tensor Sinusoidal::Embed(std::span<const int64_t> positions) const {
  return FillRows(positions, dim_, [this](int64_t position, double* row) {
    const double pos = static_cast<double>(position + options_.offset);
    for (int64_t i = 0; i < dim_ / 2; ++i) {
      const double angle = pos * frequencies_[static_cast<size_t>(i)];
      row[SinAt(i)] = std::sin(angle);
      row[CosAt(i)] = std::cos(angle);
    }
  });
}

Lowered Sinusoidal::Lower(const Shape& shape) const {
  return LowerInput(shape, dim_, /*widen=*/0,
                    [this](int64_t position, double* row) {
                      const Tensor e = Embed({&position, 1});
                      std::copy_n(e.Data<double>(), dim_, row);
                    });
}

Tensor Sinusoidal::ShiftMap(int64_t k) const {
  // sin(a + b) =  sin(a) cos(b) + cos(a) sin(b)
  // cos(a + b) = -sin(a) sin(b) + cos(a) cos(b)
  Tensor map = Tensor::Zeros(DType::kF64, {dim_, dim_});
  double* m = map.MutableData<double>();
  for (int64_t i = 0; i < dim_ / 2; ++i) {
    const double angle =
        static_cast<double>(k) * frequencies_[static_cast<size_t>(i)];
    m[SinAt(i) * dim_ + SinAt(i)] = std::cos(angle);
    m[SinAt(i) * dim_ + CosAt(i)] = std::sin(angle);
    m[CosAt(i) * dim_ + SinAt(i)] = -std::sin(angle);
    m[CosAt(i) * dim_ + CosAt(i)] = std::cos(angle);
  }
  return map;
}

namespace {

constexpr Field kSinusoidalDimField = {.name = "dim",
                                       .sentence = "channels of x [.., dim]"};
constexpr Field kSineBase = {.name = "base",
                             .type = FieldType::kReal,
                             .fallback = "10000.0",
                             .sentence = "of the frequencies base^(-j / dim)",
                             .slider = kBaseSlider};
constexpr Field kSineFields[] = {kSinusoidalDimField, kSineBase};
constexpr Field kSineOptions[] = {kSineBase};

}  // namespace

LOCUS_DESCRIPTOR(SineOnly) = {
    .name = "sine",
    .class_name = "SineOnly",
    .title = "Sines without cosines",
    .formula = "x += sin(pos / base^(j/d))",
    .summary =
        "E[pos, j] = sin(pos / base^(j / dim)): the step before sines and "
        "cosines in pairs.",
    .paper = "the step before Vaswani et al., 2017",
    .models = "none: shown failing",
    .reference = Reference::kAbsolute,
    .trainable = false,
    .extrapolates = Extrapolates::kNo,
    .extrapolation_note = "a shift is no linear map",
    .picture = Picture::kEmbedding,
    .fields = kSineFields,
    .options = kSineOptions,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<SineOnly>(f.Int("dim"), f.Real("base"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const SineOnly&>(encoding);
      return {{"dim", e.dim()}, {"base", e.base()}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      return {{"dim", config.head_dim}, {"base", o.Real("base")}};
    },
};

namespace {

constexpr Field kSinusoidalBase = BaseField("10000.0");
// In the order of SinusoidLayout.
constexpr Field kSinusoidLayout = {
    .name = "layout",
    .type = FieldType::kChoice,
    .fallback = "interleaved",
    .choices = "interleaved|halves|halves-inclusive",
    .sentence =
        "\"interleaved\" (sin at 2i, cos at 2i + 1), \"halves\" (all sines, "
        "then all cosines: RoFormer) or \"halves-inclusive\" (halves with "
        "base^(i / (dim / 2 - 1)): Whisper, M2M100)"};
constexpr Field kOffset = {.name = "offset",
                           .fallback = "0",
                           .sentence = "added to every position",
                           .slider = {-64, 64, 1}};
constexpr Field kSinusoidalFields[] = {kSinusoidalDimField, kSinusoidalBase,
                                       kSinusoidLayout, kOffset};
constexpr Field kSinusoidalOptions[] = {kSinusoidalBase, kOffset,
                                        kSinusoidLayout};
constexpr std::string_view kSinusoidalVariants[] = {"layout=halves-inclusive"};

}  // namespace

LOCUS_DESCRIPTOR(Sinusoidal) = {
    .name = "sinusoidal",
    .class_name = "Sinusoidal",
    .title = "Sinusoidal",
    .formula = "x += [sin(pos w_i), cos(pos w_i)], w_i = base^(-2i/d)",
    .summary =
        "Vaswani et al. (2017): sin and cos of (pos + offset) / base^(2i / "
        "dim).",
    .paper = "Vaswani et al., Attention Is All You Need, 2017",
    .models = "Transformer, Marian, Whisper, M2M100",
    .reference = Reference::kAbsolute,
    .trainable = false,
    .extrapolates = Extrapolates::kNo,
    .extrapolation_note = "defined at every length, but models degrade fast",
    .picture = Picture::kEmbedding,
    .fields = kSinusoidalFields,
    .options = kSinusoidalOptions,
    .variants = kSinusoidalVariants,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<Sinusoidal>(
          f.Int("dim"),
          SinusoidalOptions{.base = f.Real("base"),
                            .layout = f.Choice<SinusoidLayout>("layout"),
                            .offset = f.Int("offset")});
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const Sinusoidal&>(encoding);
      const SinusoidalOptions& options = e.options();
      return {{"dim", e.dim()},
              {"base", options.base},
              {"layout", Enumerator(options.layout)},
              {"offset", options.offset}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      return {{"dim", config.head_dim},
              {"base", o.Real("base")},
              {"layout", o.Word("layout")},
              {"offset", o.Int("offset")}};
    },
};

}  // namespace locus
