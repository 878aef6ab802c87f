// Scales and soft caps at the ends of the accepted range, with every driver.
#include <fmt/format.h>

#include "kernels/compare.h"
#include "locus/kv_cache.h"

namespace locus::testing {
namespace {

struct Lengths {
  int64_t queries, keys;
};

// Short, tiled and decoded.
constexpr Lengths kDrivers[] = {{20, 20}, {300, 300}, {1, 400}};

Call PlainCall(const Lengths& lengths) {
  Call call;
  call.q = RandomTensor({1, 2, lengths.queries, 16}, 1).To(DType::kF32);
  call.k = RandomTensor({1, 2, lengths.keys, 16}, 2).To(DType::kF32);
  call.v = RandomTensor({1, 2, lengths.keys, 16}, 3).To(DType::kF32);
  call.terms.scale.scale = 0.25;
  return call;
}

TEST(LimitsTest, SoftcapsOfAnySize) {
  OnEveryTarget([] {
    for (const Lengths& lengths : kDrivers) {
      for (double softcap : {1e-18, 1e-9, 1e-3, 1e3, 1e9, 1e18}) {
        SCOPED_TRACE(softcap);
        Call call = PlainCall(lengths);
        call.options.softcap = softcap;
        ExpectForwardEqualsReference(call);
        ExpectBackwardEqualsReference(call, 4);
      }
    }
  });
}

// The largest logit gets all the weight, however it is rounded.
TEST(LimitsTest, ScalesOfAnySize) {
  OnEveryTarget([] {
    for (const Lengths& lengths : kDrivers) {
      for (double scale : {0.0, 1e-300, 1e-40, 1e17, -1e18}) {
        SCOPED_TRACE(scale);
        Call call = PlainCall(lengths);
        call.terms.scale.scale = scale;
        const auto expected =
            reference::Attention(call.q, call.k, call.v, call.terms);
        const auto actual =
            Attention(call.q, call.k, call.v, call.terms, {.return_lse = true});
        EXPECT_LE(RelativeError(actual.out, expected.out), 1e-5);
        EXPECT_LE(RelativeError(actual.lse, expected.lse), 1e-5);
      }
    }
  });
}

// A finite bias remains finite however large it is: equal ones share the
// weight, and a mask with the lowest float still works for a row that sees
// nothing else.
TEST(LimitsTest, BiasesOfAnySize) {
  OnEveryTarget([] {
    for (const Lengths& lengths : kDrivers) {
      for (double bias : {-3.4e38, -2e38, -1e30, 1e30, 2e38, 3.4e38}) {
        SCOPED_TRACE(bias);
        Call keys = PlainCall(lengths);
        Call all = keys;
        std::vector<float> row(static_cast<size_t>(lengths.keys));
        for (size_t j = 0; j < row.size(); j += 2) {
          row[j] = static_cast<float>(bias);
        }
        keys.options.key_bias = Tensor::From({1, 1, lengths.keys}, row);
        all.terms.bias =
            BiasTable{.values = Tensor::From({1, 1}, std::vector<double>{bias}),
                      .buckets = BucketMap::Constant()};
        for (const Call& call : {keys, all}) {
          const auto expected = reference::Attention(call.q, call.k, call.v,
                                                     call.terms, call.options);
          const auto actual =
              Attention(call.q, call.k, call.v, call.terms, call.options);
          EXPECT_LE(RelativeError(actual.out, expected.out), 1e-5);
        }
      }
    }
  });
}

// Values that float32 cannot represent are rejected by every entry point.
TEST(LimitsTest, RefusesWhatWouldOverflow) {
  for (const Lengths& lengths : kDrivers) {
    const Call good = PlainCall(lengths);
    const AttentionResult forward =
        Attention(good.q, good.k, good.v, good.terms, {.return_lse = true});
    KvCache cache({.kv_heads = 2, .head_dim = 16});
    cache.Append(good.k, good.v, good.terms);
    const auto refusals = [&](const Terms& terms,
                              const AttentionOptions& options) {
      return std::vector<std::string>{
          ErrorOf([&] { Attention(good.q, good.k, good.v, terms, options); }),
          ErrorOf([&] {
            AttentionBackward(forward.out, good.q, good.k, good.v, forward,
                              terms, options);
          }),
          ErrorOf([&] {
            cache.Decode(good.q, terms, DecodeOptions::From(options));
          })};
    };
    Terms terms = good.terms;
    terms.scale.scale = 1e38;
    for (const std::string& refusal : refusals(terms, {})) {
      EXPECT_EQ(refusal, "the scale must lie in [-1e+18, 1e+18], got 1e+38");
    }
    for (double softcap : {1e308, 1e-300}) {
      for (const std::string& refusal :
           refusals(good.terms, {.softcap = softcap})) {
        EXPECT_EQ(refusal,
                  fmt::format("softcap must lie in [1e-18, 1e+18] or be left "
                              "out, got {}",
                              softcap));
      }
    }
  }
  // The caller's scale, with an encoding.
  const Call call = PlainCall(kDrivers[0]);
  EXPECT_EQ(ErrorOf([&] {
              Attention(call.q, call.k, call.v, NoPosition(), {.scale = 1e38});
            }),
            "the scale must lie in [-1e+18, 1e+18], got 1e+38");
}

}  // namespace
}  // namespace locus::testing
