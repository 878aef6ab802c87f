// T5 relative bias.
//
//   s = scale * q.k + B[h, bucket(m - n)]
//
// Small distances have a bucket each; larger ones share buckets logarithmically
// up to max_distance, beyond which all share one. T5 itself uses scale = 1.
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

namespace {

constexpr Field kMaxDistance = {
    .name = "max_distance",
    .fallback = "128",
    .sentence = "offsets beyond it share the last bucket",
    .slider = {4, 4096, 2, /*logarithmic=*/true},
    .tied = Tied::kHalfLength};
constexpr Field kT5Fields[] = {
    {.name = "table",
     .type = FieldType::kTable,
     .shape = "buckets, heads",
     .sentence = "as checkpoints store it"},
    kMaxDistance,
    {.name = "bidirectional",
     .type = FieldType::kFlag,
     .fallback = "False",
     .sentence = "half of the buckets are for later keys"}};
constexpr Field kT5Options[] = {
    {.name = "buckets",
     .fallback = "32",
     .sentence = "rows of the table",
     .slider = {4, 256, 2, /*logarithmic=*/true},
     // Exact buckets must end before max_distance.
     .tied = Tied::kHalfShortLength},
    kMaxDistance,
    {.name = "bidirectional",
     .type = FieldType::kFlag,
     .fallback = "True",
     .sentence = "half of the buckets are for later keys",
     .tied = Tied::kBothWays}};
constexpr std::string_view kT5Variants[] = {"bidirectional=false"};
constexpr ParamTraining kT5Training[] = {
    {.name = "table", .start = Start::kNormal, .size = 0.1, .rate = kBiasRate}};

}  // namespace

LOCUS_DESCRIPTOR(T5Bias) = {
    .name = "t5",
    .class_name = "T5Bias",
    .title = "T5 bucketed bias",
    .formula = "s = scale q.k + B[h, bucket(m - n)]",
    .summary =
        "Raffel et al. (2020): s + table[bucket(n - m), h]. The scale stays 1 "
        "/ "
        "sqrt(D) unless the call gives another; T5 itself passes scale=1.",
    .paper =
        "Raffel et al., Exploring the Limits of Transfer Learning with a "
        "Unified Text-to-Text Transformer, 2020",
    .models = "T5, mT5, UMT5, LongT5, MPNet, Switch",
    .reference = Reference::kRelative,
    .trainable = true,
    .extrapolates = Extrapolates::kPartly,
    .extrapolation_note = "all offsets beyond max_distance share one bucket",
    .picture = Picture::kBias,
    .fields = kT5Fields,
    .options = kT5Options,
    .variants = kT5Variants,
    .training = kT5Training,
    .shared_by_layers = true,
    .construct = [](const FieldValues& f) -> std::unique_ptr<Encoding> {
      return std::make_unique<T5Bias>(f.Table("table"), f.Int("max_distance"),
                                      f.Flag("bidirectional"));
    },
    .settings = [](const Encoding& encoding) -> FieldValues {
      const auto& e = static_cast<const T5Bias&>(encoding);
      return {{"max_distance", e.max_distance()},
              {"bidirectional", e.bidirectional()}};
    },
    .sample = [](const ExampleConfig& config,
                 const FieldValues& o) -> FieldValues {
      const int64_t buckets = o.Int("buckets");
      CheckSize("t5 option buckets", buckets);
      return {{"table", RandomTable({buckets, config.heads}, 1.0, config.seed)},
              {"max_distance", o.Int("max_distance")},
              {"bidirectional", o.Flag("bidirectional")}};
    },
};

}  // namespace locus
