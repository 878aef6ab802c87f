// DeBERTa: disentangled attention.
//
//   s = scale * ( q.k + q.Tq[b] + k.Tk[b] ),   scale = 1/sqrt((1 + terms) d)
//
// content to content, content to position (Tq = projected position keys) and
// position to content (Tk = projected position queries). b is a logarithmic
// bucket of m - n. The paper writes Tk[delta(n, m)]; the published code negates
// that once more and ends at the same bucket for both, as here.
// He et al., "DeBERTa" (2021), equation 4; buckets from DeBERTa-v2.
#include "locus/encodings/deberta.h"

#include "encodings/common.h"

namespace locus {

Deberta::Deberta(Tensor c2p, Tensor p2c, int64_t position_buckets,
                 int64_t max_relative_positions)
    : c2p_(std::move(c2p)),
      p2c_(std::move(p2c)),
      position_buckets_(position_buckets),
      max_relative_positions_(max_relative_positions),
      buckets_(BucketMap::Deberta(position_buckets, max_relative_positions)) {
  if (!c2p_.defined() && !p2c_.defined()) {
    Fail("DeBERTa needs c2p, p2c or both, got neither");
  }
  const Tensor& any = c2p_.defined() ? c2p_ : p2c_;
  for (const Tensor& table : {c2p_, p2c_}) {
    if (!table.defined()) continue;
    if (table.rank() != 3 || table.size(1) != buckets_.count ||
        table.shape() != any.shape()) {
      Fail("DeBERTa's tables must be [heads, {}, D] alike, got {} and {}",
           buckets_.count, c2p_.Describe(), p2c_.Describe());
    }
  }
}

Lowered Deberta::Lower(const Shape& shape) const {
  const double terms_present =
      1.0 + (c2p_.defined() ? 1.0 : 0.0) + (p2c_.defined() ? 1.0 : 0.0);
  Lowered lowered;
  lowered.terms.scale.scale = shape.ScaleOr(/*factor=*/terms_present);
  if (c2p_.defined()) lowered.terms.q_table = BucketTable{c2p_, buckets_};
  if (p2c_.defined()) lowered.terms.k_table = BucketTable{p2c_, buckets_};
  return lowered;
}

std::vector<Param> Deberta::Params() const {
  std::vector<Param> params;
  if (c2p_.defined()) params.push_back({"c2p", c2p_});
  if (p2c_.defined()) params.push_back({"p2c", p2c_});
  return params;
}

std::unique_ptr<Encoding> Deberta::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  size_t next = 0;
  Tensor c2p = c2p_.defined() ? values[next++] : Tensor();
  Tensor p2c = p2c_.defined() ? values[next++] : Tensor();
  return std::make_unique<Deberta>(c2p, p2c, position_buckets_,
                                   max_relative_positions_);
}

ParamGrads Deberta::PullBack(const Shape&, const TermGrads& grads) const {
  ParamGrads out;
  if (c2p_.defined()) out.push_back({"c2p", grads.q_table});
  if (p2c_.defined()) out.push_back({"p2c", grads.k_table});
  return out;
}

namespace {

constexpr Field kDebertaFields[] = {
    {.name = "c2p",
     .type = FieldType::kTable,
     .shape = "heads, 2 span, D",
     .optional = true,
     .sentence = "projected position keys, or None"},
    {.name = "p2c",
     .type = FieldType::kTable,
     .shape = "heads, 2 span, D",
     .optional = true,
     .sentence = "projected position queries, or None"},
    {.name = "position_buckets",
     .sentence = "span of the tables; 0: max_relative_positions, without a "
                 "logarithm (v1)"},
    {.name = "max_relative_positions",
     .sentence = "offsets beyond it share the last bucket"}};
constexpr Field kDebertaOptions[] = {
    {.name = "buckets",
     .fallback = "32",
     .sentence = "position buckets to each side",
     .slider = {2, 512, 2, /*logarithmic=*/true},
     .tied = Tied::kHalfLength},
    {.name = "max_distance",
     .fallback = "128",
     .sentence = "offsets beyond it share the last bucket",
     .slider = {4, 4096, 2, /*logarithmic=*/true},
     .tied = Tied::kHalfLength},
    {.name = "c2p",
     .type = FieldType::kFlag,
     .fallback = "True",
     .sentence = "content to position"},
    {.name = "p2c",
     .type = FieldType::kFlag,
     .fallback = "True",
     .sentence = "position to content"}};
constexpr std::string_view kDebertaVariants[] = {"p2c=false", "c2p=false"};
constexpr ParamTraining kDebertaTraining[] = {
    {.name = "c2p", .start = Start::kXavier},
    {.name = "p2c", .start = Start::kXavier}};

}  // namespace

LOCUS_DESCRIPTOR(Deberta) = {
    .name = "deberta",
    .class_name = "Deberta",
    .title = "DeBERTa disentangled attention",
    .formula = "s = (q.k + q.Tq[b] + k.Tk[b]) / sqrt(3d), b = bucket(m - n)",
    .summary =
        "He et al. (2021): (q_i.k_j + q_i.c2p[b] + k_j.p2c[b]) / sqrt(terms * "
        "D).",
    .paper =
        "He et al., DeBERTa: Decoding-enhanced BERT with Disentangled "
        "Attention, 2021",
    .models = "DeBERTa v1, v2, v3",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "far offsets share the last bucket",
    .picture = Picture::kScore,
    .fields = kDebertaFields,
    .options = kDebertaOptions,
    .variants = kDebertaVariants,
    .training = kDebertaTraining,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<Deberta>(f.Table("c2p"), f.Table("p2c"),
                                       f.Int("position_buckets"),
                                       f.Int("max_relative_positions"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const Deberta&>(encoding);
      return {{"position_buckets", e.position_buckets()},
              {"max_relative_positions", e.max_relative_positions()}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      const int64_t buckets = o.Int("buckets");
      const int64_t max_distance = o.Int("max_distance");
      const int64_t count = BucketMap::Deberta(buckets, max_distance).count;
      const std::vector<int64_t> rows = {config.heads, count, config.head_dim};
      FieldValues values = {{"position_buckets", buckets},
                            {"max_relative_positions", max_distance}};
      if (o.Flag("c2p")) values.Set("c2p", RandomTable(rows, 0.5, config.seed));
      if (o.Flag("p2c")) {
        values.Set("p2c", RandomTable(rows, 0.5, config.seed + 1));
      }
      return values;
    },
};

}  // namespace locus
