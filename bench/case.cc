#include "bench/case.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "bench/measure.h"
#include "locus/reference.h"
#include "locus/rotary.h"

namespace locus::bench {
namespace {

// The tensors of gradients: of q, k and v, of operands, and of the tables that
// are trained. Rows of numbers become tensors.
template <typename Grads>
std::vector<Tensor> TensorsOf(const Grads& grads) {
  const TermGrads& terms = grads.terms;
  const OperandGrads& operands = grads.operands;
  std::vector<Tensor> all = {
      grads.d_q,          grads.d_k,      grads.d_v,   operands.key_bias,
      operands.pair_bias, operands.sinks, terms.scale, terms.q_table,
      terms.k_table,      terms.v_table};
  const auto add = [&](const std::vector<double>& row) {
    all.push_back(Tensor::From({static_cast<int64_t>(row.size())}, row));
  };
  if (terms.rotate) add(terms.rotate->theta);
  if (terms.extra_dot) {
    all.push_back(terms.extra_dot->q_rows);
    all.push_back(terms.extra_dot->k_rows);
  }
  if (terms.bias) {
    if (const auto* table = std::get_if<BiasTableGrads>(&*terms.bias)) {
      all.push_back(table->values);
    } else if (const auto* ramp = std::get_if<BiasRampGrads>(&*terms.bias)) {
      add(ramp->past);
      add(ramp->future);
    } else {
      const auto& profile = std::get<BiasProfileGrads>(*terms.bias);
      all.push_back(profile.base);
      all.push_back(profile.slope);
      add(profile.distance);
      add(profile.row_gain);
    }
  }
  std::erase_if(all, [](const Tensor& t) { return !t.defined(); });
  return all;
}

int64_t BytesOf(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& t : tensors) {
    bytes += t.NumElements() * DTypeBytes(t.dtype());
  }
  return bytes;
}

}  // namespace

std::unique_ptr<Encoding> MakeEncoding(const std::string& name, int64_t heads,
                                       int64_t dim, int64_t length) {
  ExampleConfig config{.heads = heads, .head_dim = dim, .length = length};
  if (name == "shaw") config.options["clip"] = "128";
  if (name == "deberta") {
    config.options = {{"buckets", "256"}, {"max_distance", "512"}};
  }
  return FindEncoding(name).example(config);
}

std::vector<int64_t> PositionsFor(const std::string& name, int64_t length) {
  std::vector<int64_t> positions;
  if (name != "mrope") return positions;
  for (int64_t i = 0; i < length; ++i) {
    positions.push_back(PackPosition(i, i, i));
  }
  return positions;
}

double RelativeError(const Tensor& exact, const Tensor& fused) {
  const std::vector<double> a = exact.ToVector(), b = fused.ToVector();
  double worst = 0.0, largest = 1e-30;
  for (size_t n = 0; n < a.size(); ++n) {
    worst = std::max(worst, std::abs(a[n] - b[n]));
    largest = std::max(largest, std::abs(a[n]));
  }
  return worst / largest;
}

Tensor RandomInput(DType dtype, std::vector<int64_t> shape, uint64_t seed) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t state = seed;
  for (float& value : values) {
    // The sum of four uniform numbers: near enough to a normal variable.
    state = state * 6364136223846793005U + 1442695040888963407U;
    const uint64_t mixed = state ^ (state >> 29);
    const uint64_t sum = (mixed & 0xFFFF) + (mixed >> 16 & 0xFFFF) +
                         (mixed >> 32 & 0xFFFF) + (mixed >> 48);
    value = 1.7F * (static_cast<float>(sum) * 0x1p-16F - 2.0F);
  }
  return Tensor::From(std::move(shape), std::move(values)).To(dtype);
}

double CallSpec::Operations(Direction direction) const {
  const double n = static_cast<double>(length);
  return (direction == Direction::kForward ? 4.0 : 10.0) * n * n *
         static_cast<double>(dim * heads) / (causal ? 2.0 : 1.0);
}

Case::Case(const CallSpec& spec) : spec_(spec) {
  const auto encoding =
      MakeEncoding(spec.encoding, spec.heads, spec.dim, spec.length);
  const std::vector<int64_t> shape = {1, spec.heads, spec.length, spec.dim};
  q_ = RandomInput(spec.dtype, shape, 1);
  k_ = RandomInput(spec.dtype, shape, 2);
  v_ = RandomInput(spec.dtype, shape, 3);
  d_out_ = RandomInput(spec.dtype, shape, 4);
  options_.causal = spec.causal;
  options_.threads = spec.threads;
  options_.return_lse = true;
  positions_ = PositionsFor(spec.encoding, spec.length);
  options_.q_positions = options_.k_positions = positions_;
  terms_ = encoding->Lower(CallShape(q_, k_, v_, options_)).terms;
  operands_.Add(spec.operand, spec.heads, spec.length, spec.dim, options_,
                terms_, backward_);
}

const AttentionResult& Case::Forward() {
  if (!forward_) forward_ = Attention(q_, k_, v_, terms_, options_);
  return *forward_;
}

void Case::MakeUpForward() {
  // Equal weights for every key: log of a sum of `length` ones.
  const std::vector<int64_t> shape = {1, spec_.heads, spec_.length};
  const std::vector<float> lse(static_cast<size_t>(spec_.heads * spec_.length),
                               std::log(static_cast<float>(spec_.length)));
  forward_ = AttentionResult{.out = d_out_, .lse = Tensor::From(shape, lse)};
}

double Case::Time(Direction direction) {
  if (direction == Direction::kBackward) Forward();
  const double start = Seconds();
  if (direction == Direction::kForward) {
    Attention(q_, k_, v_, terms_, options_);
  } else {
    AttentionBackward(d_out_, q_, k_, v_, *forward_, terms_, options_,
                      backward_);
  }
  return Seconds() - start;
}

int64_t Case::OutputBytes(Direction direction) {
  if (direction == Direction::kForward) {
    const AttentionResult result = Attention(q_, k_, v_, terms_, options_);
    return BytesOf({result.out, result.lse});
  }
  const AttentionGrads grads = AttentionBackward(d_out_, q_, k_, v_, Forward(),
                                                 terms_, options_, backward_);
  return BytesOf(TensorsOf(grads));
}

double Case::Error(Direction direction) {
  if (direction == Direction::kForward) {
    const Tensor exact = reference::Attention(q_, k_, v_, terms_, options_).out;
    return RelativeError(exact, Forward().out);
  }
  const AttentionGrads fused = AttentionBackward(d_out_, q_, k_, v_, Forward(),
                                                 terms_, options_, backward_);
  const reference::Backward exact = reference::AttentionBackward(
      d_out_, q_, k_, v_, terms_, options_, backward_);
  const auto a = TensorsOf(exact);
  const auto b = TensorsOf(fused);
  double worst = 0.0;
  for (size_t n = 0; n < a.size(); ++n) {
    worst = std::max(worst, RelativeError(a[n], b[n]));
  }
  return worst;
}

std::vector<std::string> AttentionEncodings() {
  constexpr int64_t kHeads = 2, kDim = 8, kLength = 16;
  const ExampleConfig config{
      .heads = kHeads, .head_dim = kDim, .length = kLength};
  std::vector<std::string> names;
  for (const EncodingInfo& info : Encodings()) {
    const auto example = info.example(config);
    const Shape shape = Shape::SelfAttention(kHeads, kDim, /*length=*/1);
    if (!example->Lower(shape).terms.input_add) names.emplace_back(info.name);
  }
  return names;
}

int64_t ShortLength(int64_t length) { return std::min<int64_t>(length, 147); }

double ShortError(CallSpec spec, Direction direction) {
  spec.length = ShortLength(spec.length);
  return Case(spec).Error(direction);
}

}  // namespace locus::bench
