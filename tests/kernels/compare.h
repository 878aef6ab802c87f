// Compares the fused kernels with the float64 reference.
#ifndef LOCUS_TESTS_KERNELS_COMPARE_H_
#define LOCUS_TESTS_KERNELS_COMPARE_H_

#include "kernels/plan/drivers.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/run.h"
#include "locus/simd.h"
#include "reference/random_call.h"

namespace locus::testing {

inline constexpr double kEps = 0x1p-23;  // float32

// Float32 sums of D products accumulate about sqrt(D) roundings.
inline double ForwardTolerance(const Call& call) {
  return 4.0 * kEps * std::sqrt(static_cast<double>(call.q.size(3)) + 12.0);
}

// Gradients are sums over the length of products of such sums.
inline double GradTolerance(const Call& call) {
  return 4.0 * ForwardTolerance(call) *
         std::sqrt(
             static_cast<double>(std::max(call.q.size(2), call.k.size(2))));
}

// The call with its inputs as float32, so that both sides see the same numbers.
inline Call AsFloat(Call call) {
  call.q = call.q.To(DType::kF32);
  call.k = call.k.To(DType::kF32);
  call.v = call.v.To(DType::kF32);
  return call;
}

// Runs a call with the named driver, on exactly this many threads, with lse.
inline AttentionResult RunDriver(const char* driver, const Call& call,
                                 int threads, bool keys_rotated = false) {
  AttentionOptions options = call.Options();
  options.return_lse = true;
  const kernels::Plan plan(call.q, call.k, call.v, call.terms, options,
                           {.cached_keys = true,
                            .keys_rotated = keys_rotated,
                            .driver = driver,
                            .threads = threads});
  return kernels::Run(plan, kernels::Rows(call.q), kernels::Rows(call.k),
                      kernels::Rows(call.v));
}

// The name of the driver that a call is run by.
inline std::string DriverOf(const Call& call) {
  return ExplainCall(call.q, call.k, call.v, call.terms, call.Options()).driver;
}

inline void ExpectResultEqualsReference(const Call& call,
                                        const AttentionResult& actual,
                                        const reference::Forward& expected) {
  const double tolerance = ForwardTolerance(call);
  EXPECT_LE(RelativeError(actual.out, expected.out), tolerance);
  EXPECT_LE(RelativeError(actual.lse, expected.lse), tolerance);
  if (!expected.weights.defined()) return;
  EXPECT_LE(RelativeError(actual.weights, expected.weights), tolerance);
}

// Runs the named drivers, even if the call would not choose them.
inline void ExpectDriversEqualReference(
    const Call& call, std::initializer_list<const char*> drivers) {
  const reference::Forward expected =
      reference::Attention(call.q, call.k, call.v, call.terms, call.Options());
  for (const char* driver : drivers) {
    SCOPED_TRACE(driver);
    ExpectResultEqualsReference(call, RunDriver(driver, call, /*threads=*/2),
                                expected);
  }
}

// Attention, and also the tiled kernel, which it would not use for few queries.
inline void ExpectForwardEqualsReference(const Call& call) {
  AttentionOptions options = call.Options();
  options.return_lse = true;
  const reference::Forward expected =
      reference::Attention(call.q, call.k, call.v, call.terms, options);
  ExpectResultEqualsReference(
      call, Attention(call.q, call.k, call.v, call.terms, options), expected);
  ExpectResultEqualsReference(call, RunDriver("tiled", call, /*threads=*/2),
                              expected);
}

// Bitwise equal on one, two and seven threads.
inline void ExpectSameBitsOnAnyThreads(const char* driver, const Call& call) {
  const AttentionResult one = RunDriver(driver, call, 1);
  for (int threads : {2, 7}) {
    SCOPED_TRACE(::testing::Message() << driver << ", threads " << threads);
    const AttentionResult many = RunDriver(driver, call, threads);
    EXPECT_EQ(many.out.ToVector(), one.out.ToVector());
    EXPECT_EQ(many.lse.ToVector(), one.lse.ToVector());
    if (!one.weights.defined()) continue;
    EXPECT_EQ(many.weights.ToVector(), one.weights.ToVector());
  }
}

inline std::vector<Param> Members(const OperandGrads& g) {
  std::vector<Param> out;
  if (g.sinks.defined()) out.push_back({"sinks", g.sinks});
  if (g.key_bias.defined()) out.push_back({"key_bias", g.key_bias});
  if (g.pair_bias.defined()) out.push_back({"pair_bias", g.pair_bias});
  if (g.table_queries.defined()) {
    out.push_back({"table_queries", g.table_queries});
  }
  return out;
}

// Every tensor of the gradients, with its name.
inline std::vector<Param> Members(const TermGrads& g) {
  std::vector<Param> out;
  if (g.scale.defined()) out.push_back({"scale", g.scale});
  if (g.rotate) {
    out.push_back(
        {"theta", Tensor::From({static_cast<int64_t>(g.rotate->theta.size())},
                               g.rotate->theta)});
  }
  if (g.q_table.defined()) out.push_back({"q_table", g.q_table});
  if (g.k_table.defined()) out.push_back({"k_table", g.k_table});
  if (g.v_table.defined()) out.push_back({"v_table", g.v_table});
  if (g.extra_dot) {
    out.push_back({"q_rows", g.extra_dot->q_rows});
    out.push_back({"k_rows", g.extra_dot->k_rows});
  }
  if (!g.bias) return out;
  if (const auto* table = std::get_if<BiasTableGrads>(&*g.bias)) {
    out.push_back({"bias", table->values});
  } else if (const auto* ramp = std::get_if<BiasRampGrads>(&*g.bias)) {
    std::vector<double> slopes = ramp->past;
    slopes.insert(slopes.end(), ramp->future.begin(), ramp->future.end());
    const auto count = static_cast<int64_t>(slopes.size());
    out.push_back({"slopes", Tensor::From({count}, std::move(slopes))});
  } else if (const auto* p = std::get_if<BiasProfileGrads>(&*g.bias)) {
    out.push_back({"base", p->base});
    out.push_back({"slope", p->slope});
    out.push_back(
        {"distance", Tensor::From({static_cast<int64_t>(p->distance.size())},
                                  p->distance)});
    out.push_back(
        {"row_gain", Tensor::From({static_cast<int64_t>(p->row_gain.size())},
                                  p->row_gain)});
  }
  return out;
}

inline void ExpectBackwardEqualsReference(const Call& call, uint64_t seed) {
  AttentionOptions options = call.Options();
  options.return_lse = true;
  const AttentionResult forward =
      Attention(call.q, call.k, call.v, call.terms, options);
  const Tensor d_out = RandomTensor(forward.out.shape(), seed).To(DType::kF32);
  const BackwardOptions backward{
      .d_lse = seed % 2 == 0 ? Tensor()
                             : RandomTensor(forward.lse.shape(), seed + 1),
      .pair_bias = options.pair_bias.defined()};
  const reference::Backward expected = reference::AttentionBackward(
      d_out, call.q, call.k, call.v, call.terms, options, backward);
  const AttentionGrads actual = AttentionBackward(
      d_out, call.q, call.k, call.v, forward, call.terms, options, backward);
  const double tolerance = GradTolerance(call);
  EXPECT_LE(RelativeError(actual.d_q, expected.d_q), tolerance);
  EXPECT_LE(RelativeError(actual.d_k, expected.d_k), tolerance);
  EXPECT_LE(RelativeError(actual.d_v, expected.d_v), tolerance);
  std::vector<Param> a = Members(actual.terms);
  std::vector<Param> b = Members(expected.terms);
  for (Param& param : Members(actual.operands)) a.push_back(std::move(param));
  for (Param& param : Members(expected.operands)) b.push_back(std::move(param));
  ASSERT_EQ(a.size(), b.size());
  for (size_t n = 0; n < a.size(); ++n) {
    // ds of a row sums to zero. Weighted by distance and summed to a single
    // number, most of it cancels: two more bits are lost.
    const double factor = a[n].name == "slopes" ? 4.0 : 1.0;
    EXPECT_LE(RelativeError(a[n].value, b[n].value), factor * tolerance)
        << a[n].name;
  }
}

// The gradients of an encoding's own parameters.
inline void ExpectParamsEqualReference(const Call& call,
                                       const Encoding& encoding) {
  AttentionOptions options = call.Options();
  options.return_lse = true;
  const AttentionResult forward =
      Attention(call.q, call.k, call.v, encoding, options);
  const Tensor d_out = RandomTensor(forward.out.shape(), 7).To(DType::kF32);
  const ParamGrads actual = AttentionBackward(d_out, call.q, call.k, call.v,
                                              forward, encoding, options)
                                .params;
  const ParamGrads expected =
      reference::AttentionBackward(d_out, call.q, call.k, call.v, encoding,
                                   options)
          .params;
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t n = 0; n < actual.size(); ++n) {
    EXPECT_EQ(actual[n].name, expected[n].name);
    EXPECT_LE(RelativeError(actual[n].value, expected[n].value),
              GradTolerance(call))
        << actual[n].name;
  }
}

// Calls f(config, draw) for every subset of the terms and kind of bias; f draws
// the sizes from `draw`.
template <typename F>
void ForEverySubset(uint64_t seed, const F& f) {
  for (unsigned terms = 0; terms <= kAllTerms; ++terms) {
    for (int kind = 0; kind < ((terms & kBias) != 0 ? 3 : 1); ++kind) {
      CallConfig config;
      config.terms = terms;
      config.bias_kind = kind;
      config.seed = seed + 3 * terms + static_cast<unsigned>(kind);
      config.first_position = terms % 2 == 0 ? 0 : 1000;
      CallMaker draw({.seed = config.seed + 1});
      config.batch = draw.Draw(1, 2);
      SCOPED_TRACE(::testing::Message()
                   << "terms " << terms << ", bias kind " << kind);
      f(config, draw);
    }
  }
}

// The terms of an encoding for a call.
inline void Lower(const Encoding& encoding, Call& call) {
  const AttentionOptions options = call.Options();
  call.terms = encoding.Lower(CallShape(call.q, call.k, call.v, options)).terms;
}

// Runs `f` with every SIMD target of this machine.
template <typename F>
void OnEveryTarget(const F& f) {
  for (const std::string& target : SimdTargets()) {
    SCOPED_TRACE(target);
    ForceSimdTarget(target);
    f();
  }
  ForceSimdTarget("");
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_KERNELS_COMPARE_H_
