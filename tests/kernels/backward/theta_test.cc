// Gradients of frequencies that train.
#include "kernels/compare.h"

namespace locus::testing {
namespace {

// One axis per pair; both axes of a grid, after two tokens that do not rotate.
Rotation Plain() {
  Rotation r{.layout = PairLayout::kHalves, .rotary_dim = 16, .trains = true};
  r.theta = {1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.001};
  return r;
}
Rotation Mixed() {
  Rotation r{.rotary_dim = 12, .first_channel = 3, .trains = true};
  r.theta = RandomTensor({12}, 9).ToVector();
  r.axes = {{.divisor = 17, .offset = 0.5},
            {.divisor = 1, .modulus = 17, .offset = -8.0}};
  r.origin = 2;
  r.gain = 1.2;
  return r;
}

Call CallWith(const Rotation& rotation, int64_t length, int64_t first = 0) {
  Call call;
  call.q = RandomTensor({2, 4, length, 18}, 1);
  call.k = RandomTensor({2, 2, length, 18}, 2);
  call.v = RandomTensor({2, 2, length, 11}, 3);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t i = 0; i < length; ++i) call.q_pos.push_back(first + i);
  }
  call.k_pos = call.q_pos;
  call.terms.scale.scale = 0.3;
  call.terms.rotate = rotation;
  return AsFloat(call);
}

TEST(ThetaGradTest, EqualsReference) {
  OnEveryTarget([] {
    for (const Rotation& rotation : {Plain(), Mixed()}) {
      for (int64_t length : {1, 17, 300}) {
        SCOPED_TRACE(length);
        Call call = CallWith(rotation, length);
        ExpectBackwardEqualsReference(call, 5);
        call.options.causal = true;
        call.options.window = Window{.left = 100, .right = 0};
        ExpectBackwardEqualsReference(call, 6);
      }
    }
  });
}

// Far from 0 the parts of queries and keys are large and cancel.
TEST(ThetaGradTest, KeepsPrecisionFarOut) {
  for (const Rotation& rotation : {Plain(), Mixed()}) {
    ExpectBackwardEqualsReference(CallWith(rotation, 100, 1'000'000), 5);
  }
}

TEST(ThetaGradTest, DecaysDoNotMatterToAngles) {
  Rotation r = Plain();
  r.log_decay.assign(8, -0.01);
  ExpectBackwardEqualsReference(CallWith(r, 60), 5);
}

TEST(ThetaGradTest, BitsDoNotDependOnThreads) {
  for (const Rotation& rotation : {Plain(), Mixed()}) {
    const Call call = CallWith(rotation, 400);
    AttentionOptions options = call.Options();
    options.return_lse = true;
    const auto run = [&](int threads) {
      options.threads = threads;
      const AttentionResult result =
          Attention(call.q, call.k, call.v, call.terms, options);
      return AttentionBackward(result.out, call.q, call.k, call.v, result,
                               call.terms, options)
          .terms.rotate->theta;
    };
    const std::vector<double> one = run(1);
    EXPECT_EQ(run(2), one);
    EXPECT_EQ(run(7), one);
  }
}

// Training costs the other gradients nothing, not even a bit.
TEST(ThetaGradTest, IsThereOnlyWhereItTrains) {
  Call call = CallWith(Plain(), 90);
  AttentionOptions options = call.Options();
  options.return_lse = true;
  const AttentionResult result =
      Attention(call.q, call.k, call.v, call.terms, options);
  const auto run = [&] {
    return AttentionBackward(result.out, call.q, call.k, call.v, result,
                             call.terms, options);
  };
  const AttentionGrads with = run();
  EXPECT_EQ(with.terms.rotate->theta.size(), 8U);
  call.terms.rotate->trains = false;
  const AttentionGrads without = run();
  EXPECT_FALSE(without.terms.rotate);
  EXPECT_EQ(with.d_q.ToVector(), without.d_q.ToVector());
  EXPECT_EQ(with.d_k.ToVector(), without.d_k.ToVector());
}

}  // namespace
}  // namespace locus::testing
