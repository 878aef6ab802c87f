// Gradients of trained frequencies.
#include "kernels/compare.h"

namespace locus::testing {
namespace {

// With one axis per pair; Mixed has both axes of a grid, after two tokens that
// do not rotate.
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

// Each of two key heads has its own frequencies.
Rotation OfHeads(Rotation r) {
  SetHeads(r, 2);
  return r;
}
std::vector<Rotation> All() {
  return {Plain(), Mixed(), OfHeads(Plain()), OfHeads(Mixed())};
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
    for (const Rotation& rotation : All()) {
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

// Far from 0, the contributions of queries and keys are large and cancel.
TEST(ThetaGradTest, KeepsPrecisionFarOut) {
  for (const Rotation& rotation : All()) {
    ExpectBackwardEqualsReference(CallWith(rotation, 100, 1'000'000), 5);
  }
}

TEST(ThetaGradTest, DecaysDoNotMatterToAngles) {
  for (Rotation r : {Plain(), OfHeads(Plain())}) {
    r.log_decay.assign(8, -0.01);
    ExpectBackwardEqualsReference(CallWith(r, 60), 5);
  }
}

// A call with frequencies of two heads equals two calls with those of one.
TEST(ThetaGradTest, HeadsAreCallsOfTheirOwn) {
  const auto heads = [](const Tensor& x, int64_t first, int64_t count) {
    std::vector<double> part;
    for (int64_t b = 0; b < x.size(0); ++b) {
      for (int64_t h = first; h < first + count; ++h) {
        for (int64_t i = 0; i < x.size(2); ++i) {
          const std::vector<double> row = RowOf(x, b, h, i);
          part.insert(part.end(), row.begin(), row.end());
        }
      }
    }
    return Tensor::From({x.size(0), count, x.size(2), x.size(3)},
                        std::move(part))
        .To(x.dtype());
  };
  const auto run = [](const Call& call) {
    AttentionOptions options = call.Options();
    options.return_lse = true;
    const AttentionResult result =
        Attention(call.q, call.k, call.v, call.terms, options);
    return AttentionBackward(result.out, call.q, call.k, call.v, result,
                             call.terms, options);
  };
  for (const Rotation& rotation : {OfHeads(Plain()), OfHeads(Mixed())}) {
    const Call call = CallWith(rotation, 70);
    const AttentionGrads both = run(call);
    std::vector<double> theta;
    for (int64_t g = 0; g < 2; ++g) {
      Call one = call;
      one.q = heads(call.q, 2 * g, 2);
      one.k = heads(call.k, g, 1);
      one.v = heads(call.v, g, 1);
      one.terms.rotate = rotation.OfHead(g);
      const AttentionGrads alone = run(one);
      EXPECT_EQ(heads(both.d_q, 2 * g, 2).ToVector(), alone.d_q.ToVector());
      EXPECT_EQ(heads(both.d_k, g, 1).ToVector(), alone.d_k.ToVector());
      EXPECT_EQ(heads(both.d_v, g, 1).ToVector(), alone.d_v.ToVector());
      const std::vector<double>& own = alone.terms.rotate->theta;
      theta.insert(theta.end(), own.begin(), own.end());
    }
    EXPECT_EQ(both.terms.rotate->theta, theta);
  }
}

TEST(ThetaGradTest, BitsDoNotDependOnThreads) {
  for (const Rotation& rotation : All()) {
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

// Training frequencies does not change the other gradients, not even by a bit.
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
