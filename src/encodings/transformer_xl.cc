// Transformer-XL.
//
//   s = scale * ( q.k + q.R_(m-n) + u.k + v.R_(m-n) )
//
//   q.R  is a q_table of relative keys;
//   u.k  is a k_table with one bucket: the row u, whatever the offset;
//   v.R  does not touch q or k: a bias, scale * v.R_(m-n).
//
// R is computed from sinusoids of the offset or given; with 2M - 1 rows it
// covers offsets of both signs, so bidirectional attention needs no shift
// trick.
// Dai et al., "Transformer-XL" (2019); Yang et al., "XLNet" (2019).
#include "locus/encodings/transformer_xl.h"

#include "encodings/common.h"
#include "locus/encodings/sinusoidal.h"

namespace locus {

TransformerXL::TransformerXL(Tensor r, Tensor u, Tensor v)
    : r_(std::move(r)), u_(std::move(u)), v_(std::move(v)) {
  if (r_.rank() != 3 || r_.size(1) % 2 != 1 || r_.NumElements() == 0) {
    Fail("Transformer-XL needs r [heads, 2M - 1, D], got {}", r_.Describe());
  }
  const std::vector<int64_t> vector = {r_.size(0), r_.size(2)};
  if (u_.shape() != vector || v_.shape() != vector) {
    Fail("Transformer-XL needs u and v [{}, {}], got {} and {}", r_.size(0),
         r_.size(2), u_.Describe(), v_.Describe());
  }
}

Tensor TransformerXL::SinusoidalKeys(const Tensor& w_r, int64_t reach) {
  if (w_r.rank() != 3) {
    Fail("w_r must be [heads, D, model_dim], got {}", w_r.Describe());
  }
  CheckSize("reach", reach);
  const int64_t heads = w_r.size(0), dim = w_r.size(1), model = w_r.size(2);
  std::vector<int64_t> offsets;
  for (int64_t o = -reach + 1; o < reach; ++o) offsets.push_back(o);
  const int64_t rows = static_cast<int64_t>(offsets.size());
  const Tensor s =
      Sinusoidal(model, {.layout = SinusoidLayout::kHalves}).Embed(offsets);
  const Tensor w = w_r.To(DType::kF64);
  const double* weights = w.Data<double>();
  const double* sinusoids = s.Data<double>();
  Tensor r = Tensor::Zeros(DType::kF64, {heads, rows, dim});
  double* out = r.MutableData<double>();
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t o = 0; o < rows; ++o) {
      for (int64_t d = 0; d < dim; ++d) {
        double sum = 0.0;
        for (int64_t e = 0; e < model; ++e) {
          sum += weights[(h * dim + d) * model + e] * sinusoids[o * model + e];
        }
        out[(h * rows + o) * dim + d] = sum;
      }
    }
  }
  return r;
}

Lowered TransformerXL::Lower(const Shape& shape) const {
  CheckCallHeads("Transformer-XL", r_.size(0), shape);
  const int64_t heads = r_.size(0), rows = r_.size(1), dim = r_.size(2);
  Lowered lowered = LowerPlain(shape);
  Terms& terms = lowered.terms;
  const BucketMap by_offset = BucketMap::Identity(-(rows / 2), rows / 2);
  terms.q_table = BucketTable{r_, by_offset};
  terms.k_table =
      BucketTable{LikeParam(u_, Tensor::Zeros(DType::kF64, {heads, 1, dim})),
                  BucketMap::Constant()};
  Tensor v_dot_r = Tensor::Zeros(DType::kF64, {heads, rows});
  double* out = v_dot_r.MutableData<double>();
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t o = 0; o < rows; ++o) {
      double sum = 0.0;
      for (int64_t d = 0; d < dim; ++d) sum += v_.At(h, d) * r_.At(h, o, d);
      out[h * rows + o] = terms.scale.scale * sum;
    }
  }
  terms.bias = BiasTable{v_dot_r, by_offset};
  return lowered;
}

std::vector<Param> TransformerXL::Params() const {
  return {{"r", r_}, {"u", u_}, {"v", v_}};
}

std::unique_ptr<Encoding> TransformerXL::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  return std::make_unique<TransformerXL>(values[0], values[1], values[2]);
}

ParamGrads TransformerXL::PullBack(const Shape& shape,
                                   const TermGrads& grads) const {
  const int64_t heads = r_.size(0), rows = r_.size(1), dim = r_.size(2);
  const double scale = shape.ScaleOr();
  const Tensor& d_bias = std::get<BiasTableGrads>(*grads.bias).values;
  // Tq = R, and bias[o] = scale v.R[o] adds to dR and gives dv.
  Tensor d_r = LikeParam(grads.q_table, r_);
  Tensor d_v = Tensor::Zeros(DType::kF64, v_.shape());
  double* dr = d_r.MutableData<double>();
  double* dv = d_v.MutableData<double>();
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t o = 0; o < rows; ++o) {
      const double g = scale * d_bias.At(h, o);
      for (int64_t d = 0; d < dim; ++d) {
        dr[(h * rows + o) * dim + d] += g * v_.At(h, d);
        dv[h * dim + d] += g * r_.At(h, o, d);
      }
    }
  }
  // Tk[0] = u
  return {{"r", d_r}, {"u", LikeParam(grads.k_table, u_)}, {"v", d_v}};
}

namespace {

constexpr Field kTransformerXlFields[] = {
    {.name = "r",
     .type = FieldType::kTable,
     .shape = "heads, 2M - 1, D",
     .sentence = "relative keys; row (m - n) + M - 1 belongs to offset m - n"},
    {.name = "u",
     .type = FieldType::kTable,
     .shape = "heads, D",
     .sentence = "joins the query against keys"},
    {.name = "v",
     .type = FieldType::kTable,
     .shape = "heads, D",
     .sentence = "joins the query against relative keys"}};
// Models train the projection of the sinusoids that gives these rows, so there
// is a row for any offset.
constexpr ParamTraining kTransformerXlTraining[] = {
    {.name = "r", .start = Start::kXavier, .projection = "w_r"},
    {.name = "u", .start = Start::kNormal, .size = 0.02},
    {.name = "v", .start = Start::kNormal, .size = 0.02}};

}  // namespace

LOCUS_DESCRIPTOR(TransformerXL) = {
    .name = "transformer-xl",
    .class_name = "TransformerXL",
    .title = "Transformer-XL",
    .formula = "s = scale (q.k + q.R_(m-n) + u.k + v.R_(m-n))",
    .summary = "Dai et al. (2019): (q_i + u).k_j + (q_i + v).r[m - n + M - 1].",
    .paper = "Dai et al., Transformer-XL, 2019",
    .models = "Transformer-XL, XLNet",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "sinusoids of the offset go on; given tables end",
    .picture = Picture::kScore,
    .fields = kTransformerXlFields,
    .training = kTransformerXlTraining,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<TransformerXL>(f.Table("r"), f.Table("u"),
                                             f.Table("v"));
    },
    .settings = [](const Encoding& /*encoding*/) -> FieldValues { return {}; },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& /*options*/) -> FieldValues {
      CheckSize("the example's length", config.length);
      const int64_t model = 64;
      const Tensor w_r = RandomTable({config.heads, config.head_dim, model},
                                     0.125, config.seed);
      const std::vector<int64_t> vector = {config.heads, config.head_dim};
      return {{"r", TransformerXL::SinusoidalKeys(w_r, config.length)},
              {"u", RandomTable(vector, 0.5, config.seed + 1)},
              {"v", RandomTable(vector, 0.5, config.seed + 2)}};
    },
};

}  // namespace locus
