// T5 relative bias.
//
//   s = scale * q.k + B[h, bucket(m - n)]
//
// Small distances have a bucket each; larger ones share logarithmically up to
// max_distance, beyond which all are alike. T5 itself uses scale = 1.
// Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
// Text-to-Text Transformer" (2020), section 2.1.
#include "locus/encodings/t5.h"

#include "encodings/common.h"

namespace locus {

T5Bias::T5Bias(Tensor table, int64_t max_distance, bool bidirectional)
    : table_(std::move(table)),
      max_distance_(max_distance),
      bidirectional_(bidirectional) {
  if (table_.rank() != 2 || table_.NumElements() == 0) {
    Fail("T5 needs a table [buckets, heads], got {}", table_.Describe());
  }
  buckets_ = BucketMap::T5(table_.size(0), max_distance, bidirectional);
}

Lowered T5Bias::Lower(const Shape& shape) const {
  CheckCallHeads("T5", table_.size(1), shape);
  Lowered lowered = LowerPlain(shape);
  lowered.terms.bias = BiasTable{table_.Transposed(0, 1), buckets_};
  return lowered;
}

std::vector<Param> T5Bias::Params() const { return {{"table", table_}}; }

std::unique_ptr<Encoding> T5Bias::WithParams(
    std::span<const Tensor> values) const {
  CheckParamCount(*this, values);
  return std::make_unique<T5Bias>(values[0], max_distance_, bidirectional_);
}

ParamGrads T5Bias::PullBack(const Shape&, const TermGrads& grads) const {
  const Tensor& d = std::get<BiasTableGrads>(*grads.bias).values;
  return {{"table", d.Transposed(0, 1).To(DType::kF64)}};
}

constinit const EncodingInfo kT5BiasInfo = {
    .name = "t5",
    .class_name = "T5Bias",
    .title = "T5 bucketed bias",
    .formula = "s = scale q.k + B[h, bucket(m - n)]",
    .paper =
        "Raffel et al., Exploring the Limits of Transfer Learning with a "
        "Unified Text-to-Text Transformer, 2020",
    .models = "T5, mT5, UMT5, LongT5, MPNet, Switch",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "all offsets beyond max_distance share one bucket",
    .picture = Picture::kBias,
    .options = "buckets, max_distance, bidirectional=true|false",
    .example = [](const ExampleConfig& config) -> std::unique_ptr<Encoding> {
      OptionReader options("t5", config);
      const int64_t buckets = options.Integer("buckets", 32);
      const int64_t max_distance = options.Integer("max_distance", 128);
      const bool bidirectional = options.Flag("bidirectional", true);
      options.Done();
      CheckSize("t5 option buckets", buckets);
      return std::make_unique<T5Bias>(
          RandomTable({buckets, config.heads}, 1.0, config.seed), max_distance,
          bidirectional);
    },
};

}  // namespace locus
