// TUPE: untied positional encoding.
//
//   s = 1/sqrt(2d) * ( q.k + (p_m U_q).(p_n U_k) ) + b_(m-n)
//
// Position correlates with position and content with content, but never across.
// The position part is computed by extra dimensions of the dot product. Untying
// [CLS] replaces the position part where it attends (theta_1) or is attended to
// (theta_2): its rows of the extra dimensions become zero, and its pairs get
// two bias buckets of their own.
// Ke et al., "Rethinking Positional Encoding in Language Pre-training" (2021).
#include "locus/encodings/tupe.h"

#include "encodings/common.h"

namespace locus {
namespace {

// A copy in which the row of one position is zero in every head.
Tensor WithoutRow(const Tensor& rows, int64_t position) {
  Tensor out = Tensor::From(rows.shape(), rows.ToVector());
  const int64_t length = rows.size(1), dim = rows.size(2);
  if (position < 0 || position >= length) return out;
  double* data = out.MutableData<double>();
  for (int64_t h = 0; h < rows.size(0); ++h) {
    std::fill_n(data + (h * length + position) * dim, dim, 0.0);
  }
  return out;
}

}  // namespace

Tupe::Tupe(Tensor q_pos, Tensor k_pos, TupeOptions options)
    : q_pos_(std::move(q_pos)),
      k_pos_(std::move(k_pos)),
      options_(std::move(options)) {
  if (q_pos_.rank() != 3 || q_pos_.shape() != k_pos_.shape() ||
      q_pos_.NumElements() == 0) {
    Fail("TUPE needs q_pos and k_pos [heads, L, E], got {} and {}",
         q_pos_.Describe(), k_pos_.Describe());
  }
  const int64_t heads = q_pos_.size(0);
  if (const Tensor& bias = options_.bias; bias.defined()) {
    if (bias.rank() != 2 || bias.size(0) != heads) {
      Fail("TUPE's bias must be [{}, buckets], got {}", heads, bias.Describe());
    }
    if (!options_.buckets) {
      if (bias.size(1) % 2 != 1) {
        Fail("TUPE's bias by offset must have 2M - 1 columns, got {}",
             bias.Describe());
      }
      const int64_t reach = bias.size(1) / 2;
      options_.buckets = BucketMap::Identity(-reach, reach);
    }
    if (options_.buckets->count != bias.size(1)) {
      Fail("TUPE's bias {} does not fit {} buckets", bias.Describe(),
           options_.buckets->count);
    }
  }
  if (options_.cls.defined() &&
      options_.cls.shape() != std::vector<int64_t>{heads, 2}) {
    Fail("TUPE's cls must be [{}, 2], got {}", heads, options_.cls.Describe());
  }
}

Lowered Tupe::Lower(const Shape& shape) const {
  CheckCallHeads("TUPE", q_pos_.size(0), shape);
  const int64_t last = q_pos_.size(1) - 1;
  if (shape.MinPosition() < 0 || shape.MaxPosition() > last) {
    Fail("TUPE covers positions 0 .. {}, but the call has position {}", last,
         shape.MinPosition() < 0 ? shape.MinPosition() : shape.MaxPosition());
  }
  Lowered lowered;
  Terms& terms = lowered.terms;
  terms.scale.scale = shape.ScaleOr(/*factor=*/2.0);
  terms.extra_dot = ExtraDot{.q_rows = q_pos_, .k_rows = k_pos_};
  if (options_.bias.defined()) {
    terms.bias = BiasTable{options_.bias, *options_.buckets};
  }
  if (!options_.cls.defined()) return lowered;

  terms.extra_dot->q_rows = WithoutRow(q_pos_, options_.cls_position);
  terms.extra_dot->k_rows = WithoutRow(k_pos_, options_.cls_position);
  const BucketMap plain =
      options_.bias.defined() ? *options_.buckets : BucketMap::Constant();
  const BucketMap buckets =
      plain.WithSpecial(options_.cls_position, /*both=*/false);
  const int64_t heads = q_pos_.size(0);
  Tensor values = Tensor::Zeros(DType::kF64, {heads, buckets.count});
  double* out = values.MutableData<double>();
  for (int64_t h = 0; h < heads; ++h) {
    double* row = out + h * buckets.count;
    for (int64_t b = 0; b < plain.count; ++b) {
      row[b] = options_.bias.defined() ? options_.bias.At(h, b) : 0.0;
    }
    row[plain.count] = options_.cls.At(h, 0);
    row[plain.count + 1] = options_.cls.At(h, 1);
  }
  terms.bias = BiasTable{values, buckets};
  return lowered;
}

std::vector<Param> Tupe::Params() const {
  std::vector<Param> params = {{"q_pos", q_pos_}, {"k_pos", k_pos_}};
  if (options_.bias.defined()) params.push_back({"bias", options_.bias});
  if (options_.cls.defined()) params.push_back({"cls", options_.cls});
  return params;
}

std::unique_ptr<Encoding> Tupe::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  TupeOptions options = options_;
  size_t next = 2;
  if (options.bias.defined()) options.bias = values[next++];
  if (options.cls.defined()) options.cls = values[next++];
  return std::make_unique<Tupe>(values[0], values[1], options);
}

ParamGrads Tupe::PullBack(const Shape&, const TermGrads& grads) const {
  ParamGrads out = {{"q_pos", grads.extra_dot->q_rows},
                    {"k_pos", grads.extra_dot->k_rows}};
  const bool cls = options_.cls.defined();
  if (cls) {
    // The rows of [CLS] were replaced by zeros, so their gradient is zero.
    for (Param& p : out) p.value = WithoutRow(p.value, options_.cls_position);
  }
  if (!grads.bias) return out;
  const Tensor& d = std::get<BiasTableGrads>(*grads.bias).values;
  const int64_t heads = d.size(0);
  const int64_t plain = d.size(1) - (cls ? 2 : 0);
  const auto columns = [&](int64_t first, int64_t count) {
    std::vector<double> values;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t b = 0; b < count; ++b) values.push_back(d.At(h, first + b));
    }
    return Tensor::From({heads, count}, std::move(values));
  };
  if (options_.bias.defined()) out.push_back({"bias", columns(0, plain)});
  if (cls) out.push_back({"cls", columns(plain, 2)});
  return out;
}

namespace {

constexpr Field kTupeFields[] = {
    {.name = "q_pos",
     .type = FieldType::kTable,
     .shape = "heads, L, E",
     .sentence = "projected positions p U_q of the queries"},
    {.name = "k_pos",
     .type = FieldType::kTable,
     .shape = "heads, L, E",
     .sentence = "projected positions p U_k of the keys"},
    {.name = "bias",
     .type = FieldType::kTable,
     .fallback = "None",
     .shape = "heads, 2M - 1",
     .optional = true,
     .sentence = "by offset; None is TUPE-A"},
    {.name = "cls",
     .type = FieldType::kTable,
     .fallback = "None",
     .shape = "heads, 2",
     .optional = true,
     .sentence = "resets the position part of cls_position: where it attends, "
                 "and where it is attended to"},
    {.name = "cls_position", .fallback = "0", .sentence = "of the [CLS] token"},
    {.name = "buckets",
     .type = FieldType::kObject,
     .fallback = "None",
     .optional = true,
     .by_name = true,
     .sentence = "for copies of a Tupe whose bias is not by offset"}};
constexpr Field kTupeOptions[] = {
    {.name = "bias",
     .type = FieldType::kFlag,
     .fallback = "True",
     .sentence = "a bias by bucket of the offset"},
    {.name = "cls",
     .type = FieldType::kFlag,
     .fallback = "False",
     .sentence = "position 0 is a [CLS] token"}};
constexpr std::string_view kTupeVariants[] = {"bias=false", "cls=true"};
constexpr ParamTraining kTupeTraining[] = {
    {.name = "q_pos", .start = Start::kXavier},
    {.name = "k_pos", .start = Start::kXavier},
    {.name = "bias", .start = Start::kNormal, .size = 0.1, .rate = kBiasRate},
    {.name = "cls", .start = Start::kNormal, .size = 0.1, .rate = kBiasRate}};

}  // namespace

LOCUS_DESCRIPTOR(Tupe) = {
    .name = "tupe",
    .class_name = "Tupe",
    .title = "TUPE (untied positions)",
    .formula = "s = (q.k + (p_m Uq).(p_n Uk)) / sqrt(2d) + b_(m-n)",
    .summary =
        "Ke et al. (2021): (q_i.k_j + q_pos[m].k_pos[n]) / sqrt(2D) + bias[h, "
        "m - "
        "n].",
    .paper =
        "Ke et al., Rethinking Positional Encoding in Language "
        "Pre-training, 2021",
    .models = "TUPE-A, TUPE-R",
    .reference = Reference::kAbsolute,
    .trainable = true,
    .extrapolates = Extrapolates::kNo,
    .extrapolation_note = "no row past the trained length: refused",
    .picture = Picture::kScore,
    .fields = kTupeFields,
    .options = kTupeOptions,
    .variants = kTupeVariants,
    .training = kTupeTraining,
    .shared_by_layers = true,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      TupeOptions options;
      options.bias = f.Table("bias");
      options.cls = f.Table("cls");
      options.cls_position = f.Int("cls_position");
      options.buckets = f.Other<std::optional<BucketMap>>("buckets");
      return std::make_unique<Tupe>(f.Table("q_pos"), f.Table("k_pos"),
                                    options);
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const Tupe&>(encoding);
      FieldValues values = {{"cls_position", e.options().cls_position}};
      if (e.options().buckets) {
        values.Set("buckets", Object{e.options().buckets});
      }
      return values;
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      CheckSize("the example's length", config.length);
      const std::vector<int64_t> rows = {config.heads, config.length,
                                         config.head_dim};
      FieldValues values = {{"q_pos", RandomTable(rows, 0.5, config.seed)},
                            {"k_pos", RandomTable(rows, 0.5, config.seed + 1)}};
      if (o.Flag("bias")) {
        values.Set("bias",
                   RandomTable({config.heads, 32}, 0.5, config.seed + 2));
        values.Set("buckets", Object{std::optional<BucketMap>(BucketMap::T5(
                                  32, 128, /*bidirectional=*/true))});
      }
      if (o.Flag("cls")) {
        values.Set("cls", RandomTable({config.heads, 2}, 0.5, config.seed + 3));
      }
      return values;
    },
};

}  // namespace locus
