// Backward passes over so many keys that they are processed in several spans.
#include "kernels/compare.h"

namespace locus::testing {
namespace {

// At 256 channels a span has at most 1638 keys.
constexpr int64_t kDim = 256;
constexpr int64_t kKeys = 1800;

Call LongCall(int64_t queries) {
  Call call;
  call.q = RandomTensor({1, 1, queries, kDim}, 1);
  call.k = RandomTensor({1, 1, kKeys, kDim}, 2);
  call.v = RandomTensor({1, 1, kKeys, kDim}, 3);
  return call;
}

void ExpectGradsEqualReference(const std::string& name, Call call) {
  SCOPED_TRACE(name);
  Lower(*FindEncoding(name).example(
            {.heads = 1, .head_dim = kDim, .length = kKeys + 200}),
        call);
  ExpectBackwardEqualsReference(AsFloat(call), 4);
}

// Every way in which gradients of terms are accumulated.
constexpr const char* kNames[] = {
    "none", "rope-learned", "rope",           "alibi", "t5",
    "fire", "shaw",         "transformer-xl", "tupe",  "deberta"};

TEST(SpansTest, GradientsEqualReference) {
  for (const char* name : kNames) {
    Call call = LongCall(110);
    ExpectGradsEqualReference(name, call);
    call.options.causal = true;
    ExpectGradsEqualReference(name, call);
  }
}

// The first queries see only the first span, some see two spans, and the last
// of 110 queries see no key.
TEST(SpansTest, WindowsReachSomeSpans) {
  for (const char* name : kNames) {
    Call call = LongCall(110);
    for (int64_t i = 0; i < 110; ++i) {
      call.q_pos.push_back(i < 96 ? 18 * i : kKeys + 60 + i);
    }
    for (int64_t j = 0; j < kKeys; ++j) call.k_pos.push_back(j);
    call.options.window = Window{.left = 60, .right = 30};
    ExpectGradsEqualReference(name, call);
  }
}

TEST(SpansTest, EveryTarget) {
  OnEveryTarget([] { ExpectGradsEqualReference("t5", LongCall(30)); });
}

// Gradients in narrow types are not accumulated in place. The output, from
// which they are computed, is rounded as well.
TEST(SpansTest, NarrowGradientsAreRoundedOnce) {
  const Call call = AsFloat(LongCall(30));
  AttentionOptions options;
  options.return_lse = true;
  const auto grads = [&](DType dtype) {
    const Tensor q = call.q.To(DType::kBF16).To(dtype),
                 k = call.k.To(DType::kBF16).To(dtype),
                 v = call.v.To(DType::kBF16).To(dtype);
    const AttentionResult forward = Attention(q, k, v, Terms(), options);
    const Tensor d_out =
        RandomTensor(forward.out.shape(), 4).To(DType::kBF16).To(dtype);
    return AttentionBackward(d_out, q, k, v, forward, Terms(), options);
  };
  EXPECT_LE(RelativeError(grads(DType::kBF16).d_q, grads(DType::kF32).d_q),
            0x1p-6);
}

TEST(SpansTest, BitsDoNotDependOnThreads) {
  const Call call = AsFloat(LongCall(200));
  AttentionOptions options;
  options.return_lse = true;
  const auto d_q = [&](int threads) {
    options.threads = threads;
    const AttentionResult forward =
        Attention(call.q, call.k, call.v, call.terms, options);
    return AttentionBackward(forward.out, call.q, call.k, call.v, forward,
                             call.terms, options)
        .d_q.ToVector();
  };
  EXPECT_EQ(d_q(1), d_q(3));
}

}  // namespace
}  // namespace locus::testing
