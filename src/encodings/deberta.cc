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

constinit const EncodingInfo kDebertaInfo = {
    .name = "deberta",
    .class_name = "Deberta",
    .title = "DeBERTa disentangled attention",
    .formula = "s = (q.k + q.Tq[b] + k.Tk[b]) / sqrt(3d), b = bucket(m - n)",
    .paper =
        "He et al., DeBERTa: Decoding-enhanced BERT with Disentangled "
        "Attention, 2021",
    .models = "DeBERTa v1, v2, v3",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "far offsets share the last bucket",
    .picture = Picture::kScore,
    .options = "buckets, max_distance, c2p=true|false, p2c=true|false",
    .example = [](const ExampleConfig& config) -> std::unique_ptr<Encoding> {
      OptionReader options("deberta", config);
      const int64_t buckets = options.Integer("buckets", 32);
      const int64_t max_distance = options.Integer("max_distance", 128);
      const bool c2p = options.Flag("c2p", true);
      const bool p2c = options.Flag("p2c", true);
      options.Done();
      const int64_t count = BucketMap::Deberta(buckets, max_distance).count;
      const std::vector<int64_t> rows = {config.heads, count, config.head_dim};
      return std::make_unique<Deberta>(
          c2p ? RandomTable(rows, 0.5, config.seed) : Tensor(),
          p2c ? RandomTable(rows, 0.5, config.seed + 1) : Tensor(), buckets,
          max_distance);
    },
};

}  // namespace locus
