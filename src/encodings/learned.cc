// Learned absolute positions.
//
//   x_i += E[pos + offset],  E [L, model_dim] trained
//
// There is no row past L: asking for one is an error and never wraps around. A
// table can be resized explicitly with a named kernel, as vision models do.
// Gehring et al., "Convolutional Sequence to Sequence Learning" (2017); Devlin
// et al., "BERT" (2018); Dosovitskiy et al., "ViT" (2020).
#include "locus/encodings/learned.h"

#include <array>
#include <cmath>

#include "encodings/common.h"

namespace locus {
namespace {

// Up to four source rows with their weights.
struct Taps {
  std::array<int64_t, 4> row{};
  std::array<double, 4> weight{};
};

// Keys' cubic convolution kernel with a = -0.75, at distance |x|.
double Cubic(double x) {
  constexpr double a = -0.75;
  x = std::abs(x);
  if (x <= 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
  return 0.0;
}

// The source rows for output row `at` of `to`, resampled from `from` rows.
// Samples are at the centres of their cells; the edge rows are repeated beyond
// the edges.
Taps TapsOf(int64_t at, int64_t from, int64_t to, Resample kernel) {
  double source = (static_cast<double>(at) + 0.5) * static_cast<double>(from) /
                      static_cast<double>(to) -
                  0.5;
  if (kernel == Resample::kLinear) source = std::max(source, 0.0);
  const int64_t base = static_cast<int64_t>(std::floor(source));
  const double fraction = source - static_cast<double>(base);
  Taps taps;
  for (int64_t t = 0; t < 4; ++t) {
    const size_t n = static_cast<size_t>(t);
    taps.row[n] = std::clamp<int64_t>(base + t - 1, 0, from - 1);
    if (kernel == Resample::kBicubic) {
      taps.weight[n] = Cubic(fraction - static_cast<double>(t - 1));
    }
  }
  if (kernel == Resample::kLinear) taps.weight = {0, 1 - fraction, fraction, 0};
  return taps;
}

}  // namespace

Learned::Learned(Tensor table, int64_t offset)
    : table_(std::move(table)), offset_(offset) {
  if (table_.rank() != 2 || table_.NumElements() == 0) {
    Fail("learned positions need a table [L, model_dim], got {}",
         table_.Describe());
  }
  if (offset < 0 || offset >= table_.size(0)) {
    Fail("the offset of learned positions must lie in [0, {}), got {}",
         table_.size(0), offset);
  }
}

Lowered Learned::Lower(const Shape& shape) const {
  const int64_t last = table_.size(0) - 1 - offset_;
  if (shape.MinPosition() < 0 || shape.MaxPosition() > last) {
    Fail("learned positions cover 0 .. {}, but the call has position {}", last,
         shape.MinPosition() < 0 ? shape.MinPosition() : shape.MaxPosition());
  }
  Lowered lowered = LowerPlain(shape);
  lowered.terms.input_add =
      InputAdd{.table = table_, .first_position = -offset_, .widen = 0};
  return lowered;
}

std::vector<Param> Learned::Params() const { return {{"table", table_}}; }

std::unique_ptr<Encoding> Learned::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  return std::make_unique<Learned>(values[0], offset_);
}

ParamGrads Learned::PullBack(const Shape&, const TermGrads& grads) const {
  return {{"table", grads.input_add}};
}

Tensor Learned::Embed(std::span<const int64_t> positions) const {
  const int64_t rows = table_.size(0);
  return FillRows(positions, table_.size(1), [&](int64_t p, double* row) {
    if (p < 0 || p + offset_ >= rows) {
      Fail("learned positions cover 0 .. {}, got {}", rows - 1 - offset_, p);
    }
    for (int64_t d = 0; d < table_.size(1); ++d) {
      row[d] = table_.At(p + offset_, d);
    }
  });
}

Learned Learned::Resized(int64_t length, Resample kernel) const {
  return Resized2D({.height = table_.size(0) - offset_, .width = 1},
                   {.height = length, .width = 1}, kernel, offset_);
}

Learned Learned::Resized2D(Grid2D from, Grid2D to, Resample kernel,
                           int64_t prefix) const {
  const int64_t dim = table_.size(1);
  CheckSize("the new height", to.height);
  CheckSize("the new width", to.width);
  if (from.height < 1 || from.width < 1 || prefix < 0 ||
      prefix + from.height * from.width != table_.size(0)) {
    Fail("a table of {} rows is not {} rows and a raster of {} x {}",
         table_.size(0), prefix, from.height, from.width);
  }
  std::vector<double> out(
      static_cast<size_t>((prefix + to.height * to.width) * dim));
  for (int64_t r = 0; r < prefix; ++r) {
    for (int64_t d = 0; d < dim; ++d) {
      out[static_cast<size_t>(r * dim + d)] = table_.At(r, d);
    }
  }
  for (int64_t y = 0; y < to.height; ++y) {
    const Taps ty = TapsOf(y, from.height, to.height, kernel);
    for (int64_t x = 0; x < to.width; ++x) {
      const Taps tx = TapsOf(x, from.width, to.width, kernel);
      double* row = out.data() + (prefix + y * to.width + x) * dim;
      for (size_t a = 0; a < 4; ++a) {
        for (size_t b = 0; b < 4; ++b) {
          const double weight = ty.weight[a] * tx.weight[b];
          if (weight == 0.0) continue;
          const int64_t source = prefix + ty.row[a] * from.width + tx.row[b];
          for (int64_t d = 0; d < dim; ++d) {
            row[d] += weight * table_.At(source, d);
          }
        }
      }
    }
  }
  Tensor table =
      Tensor::From({prefix + to.height * to.width, dim}, std::move(out));
  return Learned(table.To(table_.dtype()), offset_);
}

namespace {

constexpr Field kLearnedFields[] = {
    {.name = "table",
     .type = FieldType::kTable,
     .shape = "L, d_model",
     .sentence = "one row per position; a position without a row is a "
                 "ValueError"},
    {.name = "offset",
     .fallback = "0",
     .sentence = "of the first position's row: 2 for OPT and BART, padding_idx "
                 "+ 1 for RoBERTa"}};
// Half the deviation of token embeddings, as in GPT-2.
constexpr ParamTraining kLearnedTraining[] = {
    {.name = "table", .start = Start::kNormal, .size = 0.5}};

}  // namespace

LOCUS_DESCRIPTOR(Learned) = {
    .name = "learned",
    .class_name = "Learned",
    .title = "Learned positions",
    .formula = "x += E[pos], E trained",
    .summary = "x + table[pos + offset], one trained row per position.",
    .paper =
        "Gehring et al., Convolutional Sequence to Sequence Learning, 2017",
    .models = "BERT, RoBERTa, GPT-2, OPT, BART, ViT",
    .reference = Reference::kAbsolute,
    .trainable = true,
    .extrapolates = Extrapolates::kNo,
    .extrapolation_note = "no row past the trained length: refused",
    .picture = Picture::kEmbedding,
    .fields = kLearnedFields,
    .training = kLearnedTraining,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<Learned>(f.Table("table"), f.Int("offset"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      return {{"offset", static_cast<const Learned&>(encoding).offset()}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& /*options*/) -> FieldValues {
      CheckSize("the example's length", config.length);
      return {{"table", RandomTable({config.length, config.head_dim}, 0.5,
                                    config.seed)}};
    },
};

}  // namespace locus
