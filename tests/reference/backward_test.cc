// The reference's backward pass against central differences of its forward.
#include "reference/random_call.h"

namespace locus::testing {
namespace {

using reference::Backward;

// A step of 1e-5 has an error of 1e-10 times a third derivative, and of eps /
// 1e-5 = 2e-11 times the loss: both are below 1e-7 for sums of some dozen
// numbers, of which lse may reach tens.
constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-7;
// Frequencies and slopes are multiplied by distances up to 40, and the third
// derivative has their cube, 6e4: a step of 3e-7 has an error of 1e-13 times
// that, and 4e-10 times the loss.
constexpr double kFarStep = 3e-7;

// One input array and its gradient from Backward.
struct Slot {
  const char* name;
  double* values;
  std::vector<double> gradient;
  double step = kStep;
};

void AddSlot(std::vector<Slot>& slots, const char* name, Tensor& input,
             const Tensor& gradient) {
  EXPECT_EQ(input.shape(), gradient.shape()) << name;
  slots.push_back({name, input.MutableData<double>(), gradient.ToVector()});
}

void AddSlot(std::vector<Slot>& slots, const char* name,
             std::vector<double>& input, const std::vector<double>& gradient) {
  EXPECT_EQ(input.size(), gradient.size()) << name;
  slots.push_back({name, input.data(), gradient});
}

// Every number that attention depends on.
std::vector<Slot> SlotsOf(Call& call, const Backward& g) {
  std::vector<Slot> slots;
  AddSlot(slots, "q", call.q, g.d_q);
  AddSlot(slots, "k", call.k, g.d_k);
  AddSlot(slots, "v", call.v, g.d_v);
  AttentionOptions& o = call.options;
  const OperandGrads& d = g.operands;
  if (o.sinks.defined()) AddSlot(slots, "z", o.sinks, d.sinks);
  if (o.key_bias.defined()) AddSlot(slots, "K", o.key_bias, d.key_bias);
  if (o.pair_bias.defined()) AddSlot(slots, "M", o.pair_bias, d.pair_bias);
  if (o.table_queries.defined()) {
    AddSlot(slots, "r", o.table_queries, d.table_queries);
  }
  Terms& t = call.terms;
  if (t.scale.rows.defined()) {
    AddSlot(slots, "g", t.scale.rows, g.terms.scale);
  }
  if (t.rotate && t.rotate->trains) {
    AddSlot(slots, "theta", t.rotate->theta, g.terms.rotate->theta);
    slots.back().step = kFarStep;
  }
  if (t.extra_dot) {
    AddSlot(slots, "a", t.extra_dot->q_rows, g.terms.extra_dot->q_rows);
    AddSlot(slots, "c", t.extra_dot->k_rows, g.terms.extra_dot->k_rows);
  }
  if (t.q_table) AddSlot(slots, "Tq", t.q_table->rows, g.terms.q_table);
  if (t.k_table) AddSlot(slots, "Tk", t.k_table->rows, g.terms.k_table);
  if (t.v_table) AddSlot(slots, "Tv", t.v_table->rows, g.terms.v_table);
  if (!t.bias) return slots;
  if (auto* table = std::get_if<BiasTable>(&*t.bias)) {
    const auto& d = std::get<BiasTableGrads>(*g.terms.bias);
    AddSlot(slots, "B", table->values, d.values);
  } else if (auto* ramp = std::get_if<BiasRamp>(&*t.bias)) {
    const auto& d = std::get<BiasRampGrads>(*g.terms.bias);
    AddSlot(slots, "past", ramp->past, d.past);
    slots.back().step = kFarStep;
    AddSlot(slots, "future", ramp->future, d.future);
    slots.back().step = kFarStep;
  } else {
    auto& profile = std::get<BiasProfile>(*t.bias);
    const auto& d = std::get<BiasProfileGrads>(*g.terms.bias);
    AddSlot(slots, "distance", profile.distance, d.distance);
    AddSlot(slots, "row_gain", profile.row_gain, d.row_gain);
    AddSlot(slots, "base", profile.base, d.base);
    AddSlot(slots, "slope", profile.slope, d.slope);
  }
  return slots;
}

// sum(d_out * out) + sum(d_lse * lse), over rows that see some key.
double Loss(const Call& call, const Tensor& d_out, const Tensor& d_lse) {
  const reference::Forward forward =
      reference::Attention(call.q, call.k, call.v, call.terms, call.Options());
  const auto dot = [](const Tensor& x, const Tensor& y) {
    const std::vector<double> a = x.ToVector(), b = y.ToVector();
    double sum = 0.0;
    for (size_t n = 0; n < a.size(); ++n) {
      if (std::isfinite(b[n])) sum += a[n] * b[n];
    }
    return sum;
  };
  return dot(d_out, forward.out) + dot(d_lse, forward.lse);
}

void ExpectDifferencesAgree(Call& call) {
  const Tensor d_out = RandomTensor(
      {call.q.size(0), call.q.size(1), call.q.size(2), call.v.size(3)}, 99);
  const Tensor d_lse =
      RandomTensor({call.q.size(0), call.q.size(1), call.q.size(2)}, 98);
  const Backward g = reference::AttentionBackward(
      d_out, call.q, call.k, call.v, call.terms, call.Options(),
      {.d_lse = d_lse, .pair_bias = call.options.pair_bias.defined()});
  for (const Slot& slot : SlotsOf(call, g)) {
    double scale = 1.0;
    for (double value : slot.gradient) scale = std::max(scale, std::abs(value));
    for (size_t n = 0; n < slot.gradient.size(); ++n) {
      double& x = slot.values[n];
      const double kept = x;
      x = kept + slot.step;
      const double above = Loss(call, d_out, d_lse);
      x = kept - slot.step;
      const double below = Loss(call, d_out, d_lse);
      x = kept;
      EXPECT_NEAR(slot.gradient[n], (above - below) / (2 * slot.step),
                  kTolerance * scale)
          << slot.name << " [" << n << "]";
    }
  }
}

CallConfig SmallConfig(unsigned terms, int bias_kind) {
  return {.batch = 1,
          .heads = 2,
          .kv_heads = 1,
          .q_len = 3,
          .k_len = 4,
          .head_dim = 4,
          .value_dim = 3,
          .terms = terms,
          .bias_kind = bias_kind,
          .seed = 500 + 3 * terms + static_cast<unsigned>(bias_kind)};
}

TEST(BackwardTest, EverySubsetOfTermsWithRandomOptions) {
  // input_add acts before attention: it has no gradient here.
  for (unsigned terms = 0; terms <= kAllTerms; terms += 2) {
    for (int kind = 0; kind < ((terms & kBias) != 0 ? 3 : 1); ++kind) {
      SCOPED_TRACE(::testing::Message()
                   << "terms " << terms << ", bias kind " << kind);
      CallMaker maker(SmallConfig(terms, kind));
      Call call = maker.Make();
      maker.AddOptions(call);
      ExpectDifferencesAgree(call);
    }
  }
}

TEST(BackwardTest, EveryPairOfOperands) {
  for (unsigned first = 0; first < CallMaker::kOperands; ++first) {
    for (unsigned second = first; second < CallMaker::kOperands; ++second) {
      SCOPED_TRACE(::testing::Message() << first << " and " << second);
      CallConfig config = SmallConfig(kAllTerms, 0);
      config.seed += 100 * first + second;
      CallMaker maker(config);
      Call call = maker.Make();
      if (maker.Flip()) maker.AddOptions(call);
      maker.AddOperands(call, 1U << first | 1U << second);
      ExpectDifferencesAgree(call);
    }
  }
}

// Nothing masked, so that no gradient is zero by accident.
TEST(BackwardTest, AllTermsAtOnceUnmasked) {
  for (int kind : {0, 1, 2}) {
    Call call = CallMaker(SmallConfig(kAllTerms, kind)).Make();
    ExpectDifferencesAgree(call);
  }
}

TEST(BackwardTest, EachOptionAlone) {
  const auto make = [] { return CallMaker(SmallConfig(kAllTerms, 0)).Make(); };
  Call causal = make();
  causal.options.causal = true;
  ExpectDifferencesAgree(causal);
  Call window = make();
  window.options.window = Window{.left = 12, .right = 9};
  ExpectDifferencesAgree(window);
  Call capped = make();
  capped.options.softcap = 1.5;
  ExpectDifferencesAgree(capped);
  Call padded = make();
  padded.key_lengths = {2};
  ExpectDifferencesAgree(padded);
  Call packed = make();
  packed.q_seg = {0, 0, 1};
  packed.k_seg = {0, 1, 1, 1};
  ExpectDifferencesAgree(packed);
  Call warm = make();
  warm.terms.scale.rows = RandomTensor({1, kReach}, 4);
  ExpectDifferencesAgree(warm);
}

TEST(BackwardTest, FullyMaskedRowsGiveNoGradient) {
  Call call = CallMaker({.batch = 1}).Make();
  call.q_seg = {0, 7, 0, 0, 0};
  call.k_seg = {0, 0, 0, 0, 0};
  const Tensor d_out = RandomTensor({1, 4, 5, 3}, 1);
  const Backward g = reference::AttentionBackward(d_out, call.q, call.k, call.v,
                                                  call.terms, call.Options());
  for (int64_t h = 0; h < 4; ++h) {
    for (int64_t d = 0; d < 6; ++d) {
      EXPECT_EQ(g.d_q.At(0, h, 1, d), 0.0);
      EXPECT_NE(g.d_q.At(0, h, 2, d), 0.0);
    }
  }
  // All rows masked: everything is zero, nothing is NaN.
  call.q_seg = {7, 7, 7, 7, 7};
  const Backward zero = reference::AttentionBackward(
      d_out, call.q, call.k, call.v, call.terms, call.Options());
  for (const Slot& slot : SlotsOf(call, zero)) {
    for (double value : slot.gradient) EXPECT_EQ(value, 0.0) << slot.name;
  }
}

TEST(BackwardTest, NoKeysAndNoTokensAreFine) {
  const auto run = [](int64_t batch, int64_t q_len, int64_t k_len) {
    return reference::AttentionBackward(RandomTensor({batch, 2, q_len, 3}, 4),
                                        RandomTensor({batch, 2, q_len, 4}, 1),
                                        RandomTensor({batch, 2, k_len, 4}, 2),
                                        RandomTensor({batch, 2, k_len, 3}, 3),
                                        Terms{});
  };
  EXPECT_EQ(run(1, 3, 0).d_q.ToVector(), std::vector<double>(24, 0.0));
  EXPECT_EQ(run(1, 3, 0).d_k.shape(), (std::vector<int64_t>{1, 2, 0, 4}));
  EXPECT_EQ(run(1, 0, 2).d_v.ToVector(), std::vector<double>(12, 0.0));
  EXPECT_EQ(run(0, 3, 2).d_q.shape(), (std::vector<int64_t>{0, 2, 3, 4}));
}

TEST(BackwardTest, ReturnsAtOnceWithoutQueries) {
  const Tensor q = Tensor::Zeros(DType::kF64, {2, int64_t{1} << 40, 0, 4});
  const Tensor k = Tensor::Zeros(DType::kF64, {2, 1, 3, 4});
  EXPECT_EQ(reference::Attention(q, k, k, Terms{}).out.shape(), q.shape());
  const Backward grads = reference::AttentionBackward(q, q, k, k, Terms{});
  EXPECT_EQ(grads.d_q.shape(), q.shape());
  EXPECT_EQ(grads.d_k.ToVector(), std::vector<double>(24, 0.0));
}

TEST(BackwardTest, NanStaysInItsRowOfQ) {
  Call call = CallMaker({.batch = 1}).Make();
  call.q_pos = call.k_pos = {0, 1, 2, 3, 4};
  call.options.causal = true;
  const Tensor d_out = RandomTensor({1, 4, 5, 3}, 1);
  const Backward clean = reference::AttentionBackward(
      d_out, call.q, call.k, call.v, call.terms, call.Options());
  call.q.MutableData<double>()[(2 * 5 + 1) * 6] = NAN;
  const Backward g = reference::AttentionBackward(d_out, call.q, call.k, call.v,
                                                  call.terms, call.Options());
  for (int64_t h = 0; h < 4; ++h) {
    for (int64_t i = 0; i < 5; ++i) {
      if (h == 2 && i == 1) {
        EXPECT_TRUE(std::isnan(g.d_q.At(0, h, i, 0)));
      } else {
        EXPECT_EQ(g.d_q.At(0, h, i, 0), clean.d_q.At(0, h, i, 0));
      }
    }
  }
  // Keys 2 .. 4 come after query 1, which does not see them.
  for (int64_t j = 2; j < 5; ++j) {
    EXPECT_EQ(g.d_k.At(0, 1, j, 0), clean.d_k.At(0, 1, j, 0));
    EXPECT_EQ(g.d_v.At(0, 1, j, 0), clean.d_v.At(0, 1, j, 0));
  }
}

TEST(BackwardTest, RefusesAGradientOfTheWrongShape) {
  const Call call = CallMaker({}).Make();
  EXPECT_EQ(ErrorOf([&] {
              reference::AttentionBackward(RandomTensor({2, 4, 5, 6}, 1),
                                           call.q, call.k, call.v, call.terms,
                                           call.Options());
            }),
            "d_out must be [2, 4, 5, 3], got f64 [2, 4, 5, 6]");
}

}  // namespace
}  // namespace locus::testing
