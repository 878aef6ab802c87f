// Which driver runs which call, how it is reported, and plans that are kept.
#include "locus/plan.h"

#include "kernels/compare.h"
#include "locus/encodings/alibi.h"
#include "locus/encodings/rope.h"
#include "locus/encodings/shaw.h"
#include "locus/encodings/t5.h"

namespace locus::testing {
namespace {

Tensor Input(int64_t heads, int64_t length, uint64_t seed, int64_t dim = 64) {
  return RandomTensor({1, heads, length, dim}, seed).To(DType::kF32);
}

struct Choice {
  int64_t q_heads, kv_heads, q_len, k_len, dim;
  const char* encoding;  // "", "rope", "shaw"
  const char* driver;
  const char* not_short;   // the reason; nullptr if it is accepted
  const char* not_decode;  // the reason; nullptr if accepted or not tried
};

constexpr const char* kLong = "more than 256 tokens";
constexpr const char* kManyRows = "more than 32 rows of queries per key head";
constexpr Choice kChoices[] = {
    {8, 8, 16, 16, 64, "", "short", nullptr, nullptr},
    {8, 8, 256, 256, 64, "rope", "short", nullptr, nullptr},
    {8, 8, 257, 257, 64, "", "tiled", kLong, kManyRows},
    {8, 8, 512, 512, 128, "rope", "tiled", kLong, kManyRows},
    {8, 8, 16, 16, 320, "", "decode", "heads wider than 256 channels", nullptr},
    {8, 8, 1, 4096, 64, "rope", "decode", kLong, nullptr},
    {8, 2, 8, 4096, 64, "", "decode", kLong, nullptr},
    {8, 2, 9, 4096, 64, "", "tiled", kLong, kManyRows},
    {8, 8, 1, 200, 64, "", "decode", "few queries over many keys", nullptr},
    {8, 8, 64, 64, 64, "shaw", "tiled", "it has a table of vectors",
     "more than 16 rows of queries per key head, with tables"},
    {8, 8, 16, 64, 64, "shaw", "decode", "it has a table of vectors", nullptr},
    {8, 8, 300, 0, 64, "", "tiled", "it is empty", "there are no keys"},
};

Terms TermsFor(const Choice& c, const Tensor& q, const Tensor& k) {
  if (c.encoding == std::string("rope")) {
    return Rope(c.dim, PairLayout::kHalves).Lower(CallShape(q, k, k)).terms;
  }
  if (c.encoding == std::string("shaw")) {
    return Shaw(RandomTensor({33, c.dim}, 5), RandomTensor({33, c.dim}, 6), -16,
                16)
        .Lower(CallShape(q, k, k))
        .terms;
  }
  return {};
}

TEST(PlanTest, TheFirstDriverThatAcceptsTakesTheCall) {
  for (const Choice& c : kChoices) {
    SCOPED_TRACE(::testing::Message()
                 << c.encoding << " " << c.q_heads << "/" << c.kv_heads << " "
                 << c.q_len << "x" << c.k_len << " " << c.dim);
    const Tensor q = Input(c.q_heads, c.q_len, 1, c.dim);
    const Tensor k = Input(c.kv_heads, c.k_len, 2, c.dim);
    const CallReport report = ExplainCall(q, k, k, TermsFor(c, q, k));
    EXPECT_EQ(report.driver, c.driver);
    std::map<std::string, std::string> refusals;
    for (const auto& refusal : report.refusals) {
      refusals[refusal.driver] = refusal.reason;
    }
    std::map<std::string, std::string> expected;
    if (c.not_short != nullptr) expected["short"] = c.not_short;
    if (c.not_decode != nullptr) expected["decode"] = c.not_decode;
    EXPECT_EQ(refusals, expected);
  }
}

// Operands of a call do not change the choice: every forward driver accepts
// them.
TEST(PlanTest, OperandsDoNotChangeTheDriver) {
  for (const Choice& c : kChoices) {
    const Tensor q = Input(c.q_heads, c.q_len, 1, c.dim);
    const Tensor k = Input(c.kv_heads, c.k_len, 2, c.dim);
    const std::vector<uint8_t> bytes(static_cast<size_t>(c.k_len + 1), 1);
    const int64_t prefix[] = {0};
    AttentionOptions options{.chunk = 100,
                             .prefix_lengths = prefix,
                             .mask = {.data = bytes.data(),
                                      .shape = {1, 1, 1, c.k_len},
                                      .strides = {0, 0, 0, 1}},
                             .key_bias = RandomTensor({1, 1, c.k_len}, 3),
                             .pair_bias = RandomTensor({1, 1, 1, c.k_len}, 4),
                             .sinks = RandomTensor({c.q_heads}, 5),
                             .dropout = {.rate = 0.1},
                             .return_weights = true};
    EXPECT_EQ(ExplainCall(q, k, k, TermsFor(c, q, k), options).driver,
              c.driver);
  }
}

TEST(PlanTest, ReportsSizesMaskAndTerms) {
  const Tensor q = Input(4, 300, 1), k = Input(2, 310, 2);
  const Alibi alibi(4);
  AttentionOptions options{.causal = true, .threads = 2};
  options.window = Window{.left = 127, .right = 0};
  const CallReport report = ExplainCall(q, k, k, alibi, options);
  EXPECT_EQ(report.driver, "tiled");
  EXPECT_EQ(report.threads, 2);
  EXPECT_EQ(report.simd_target, SimdTarget());
  EXPECT_EQ(report.mask, "causal, window 127 back 0 ahead");
  EXPECT_EQ(report.terms, std::vector<std::string>{"bias"});
  EXPECT_EQ(report.Line(),
            "forward tiled f32 batch 1, heads 4/2, lengths 300x310, dims "
            "64/64, causal, window 127 back 0 ahead, bias, 2 threads, " +
                SimdTarget() +
                "; not short: more than 256 tokens; not decode: more than 32 "
                "rows of queries per key head");
  EXPECT_EQ(ExplainCall(q, k, k, alibi, options, Pass::kBackward).driver,
            "tiled");
}

TEST(PlanTest, ExplainingChecksTheCall) {
  const Tensor q = Input(3, 8, 1), k = Input(2, 8, 2);
  EXPECT_EQ(ErrorOf([&] { ExplainCall(q, k, k, Terms()); }),
            "3 query heads cannot share 2 key heads");
}

// The scale of the terms and that of the options must not contradict each
// other.
TEST(PlanTest, TermsKeepTheirScale) {
  const Tensor q = Input(2, 8, 1);
  Terms terms;
  terms.scale.scale = 0.5;
  const AttentionOptions other{.scale = 0.25}, same{.scale = 0.5};
  EXPECT_EQ(ErrorOf([&] { Attention(q, q, q, terms, other); }),
            "the terms carry scale 0.5, but the options ask for 0.25: set the "
            "scale of the terms");
  EXPECT_EQ(ErrorOf([&] { reference::Attention(q, q, q, terms, other); }),
            "the terms carry scale 0.5, but the options ask for 0.25: set the "
            "scale of the terms");
  EXPECT_EQ(Attention(q, q, q, terms, same).out.ToVector(),
            Attention(q, q, q, terms).out.ToVector());
}

TEST(PlanTest, AttentionIntoTakesAnEncoding) {
  const Tensor q = Input(4, 300, 1);
  const Rope rope(64, PairLayout::kInterleaved);
  const AttentionOptions options{.causal = true, .return_lse = true};
  const AttentionResult expected = Attention(q, q, q, rope, options);
  AttentionResult result{.out = Tensor::Zeros(DType::kF32, {1, 4, 300, 64}),
                         .lse = Tensor::Zeros(DType::kF32, {1, 4, 300})};
  AttentionInto(q, q, q, rope, options, result);
  EXPECT_EQ(result.out.ToVector(), expected.out.ToVector());
  EXPECT_EQ(result.lse.ToVector(), expected.lse.ToVector());
}

// A plan gives results bitwise equal to a call, forward and backward, on other
// tensors and after everything that it was made from has been destroyed.
TEST(AttentionPlanTest, RunsManyTimes) {
  for (int64_t length : {40, 300}) {
    std::vector<int64_t> positions(static_cast<size_t>(length));
    for (size_t i = 0; i < positions.size(); ++i) {
      positions[i] = static_cast<int64_t>(2 * i + 5);
    }
    AttentionOptions options{.causal = true, .return_lse = true};
    options.q_positions = options.k_positions = positions;
    auto t5 = std::make_unique<T5Bias>(RandomTensor({32, 4}, 4));
    const Tensor q = Input(4, length, 1), k = Input(2, length, 2),
                 v = Input(2, length, 3);
    std::vector<AttentionResult> expected;
    std::vector<std::vector<double>> grads;
    for (uint64_t n = 0; n < 2; ++n) {
      const Tensor x = Input(4, length, 10 + n);
      expected.push_back(Attention(x, k, v, *t5, options));
      grads.push_back(
          AttentionBackward(x, x, k, v, expected.back(), *t5, options)
              .d_q.ToVector());
    }
    AttentionPlan plan(q, k, v, *t5, options);
    t5.reset();
    std::fill(positions.begin(), positions.end(), 0);
    for (uint64_t n = 0; n < 2; ++n) {
      const Tensor x = Input(4, length, 10 + n);
      const AttentionResult result = plan.Run(x, k, v);
      EXPECT_EQ(result.out.ToVector(), expected[n].out.ToVector());
      EXPECT_EQ(result.lse.ToVector(), expected[n].lse.ToVector());
      EXPECT_EQ(plan.RunBackward(x, x, k, v, result).d_q.ToVector(), grads[n]);
    }
    EXPECT_EQ(plan.Report().q_len, length);
  }
}

TEST(AttentionPlanTest, RefusesOtherShapesAndTypes) {
  const Tensor q = Input(2, 8, 1);
  const AttentionPlan plan(q, q, q, Terms());
  const Tensor longer = Input(2, 9, 1);
  EXPECT_EQ(ErrorOf([&] { plan.Run(longer, q, q); }),
            "the plan is for f32 q [1, 2, 8, 64], k [1, 2, 8, 64] and v [1, 2, "
            "8, 64], got f32 [1, 2, 9, 64], f32 [1, 2, 8, 64] and f32 [1, 2, "
            "8, 64]");
  EXPECT_EQ(ErrorOf([&] { plan.Run(q.To(DType::kBF16), q, q); }),
            "the plan is for f32 q [1, 2, 8, 64], k [1, 2, 8, 64] and v [1, 2, "
            "8, 64], got bf16 [1, 2, 8, 64], f32 [1, 2, 8, 64] and f32 [1, 2, "
            "8, 64]");
  EXPECT_EQ(ErrorOf([&] { plan.RunBackward(q, q, q, q, {}); }),
            "the plan was made without return_lse, which the backward pass "
            "needs");
}

}  // namespace
}  // namespace locus::testing
