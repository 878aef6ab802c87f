// The reference's forward pass against naive attention, and its handling of
// empty, masked, huge and non-finite input.
#include "reference/random_call.h"

namespace locus::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// 1e-12 for sums of some hundred float64 products; angles add the rounding of
// position * theta, |position| * eps.
double Tolerance(const CallConfig& c) {
  return 1e-12 + 4 * 0x1p-52 * std::abs(double(c.first_position));
}

void ExpectEqualsNaive(const Call& call, const CallConfig& config) {
  const reference::Forward expected = NaiveAttention(call);
  const reference::Forward actual =
      reference::Attention(call.q, call.k, call.v, call.terms, call.Options());
  EXPECT_LE(RelativeError(actual.out, expected.out), Tolerance(config));
  EXPECT_LE(RelativeError(actual.lse, expected.lse), Tolerance(config));
  if (call.options.return_weights) {
    EXPECT_LE(RelativeError(actual.weights, expected.weights),
              Tolerance(config));
  }
}

TEST(ForwardTest, EverySubsetOfTermsEqualsNaiveAttention) {
  constexpr int64_t kFirst[] = {0, -17, 1000, 1'000'000};
  for (unsigned terms = 0; terms <= kAllTerms; ++terms) {
    for (int kind = 0; kind < ((terms & kBias) != 0 ? 3 : 1); ++kind) {
      CallConfig config;
      config.terms = terms;
      config.bias_kind = kind;
      config.seed = 1000 + 3 * terms + static_cast<unsigned>(kind);
      config.first_position = kFirst[config.seed % 4];
      CallMaker draw({.seed = config.seed + 1});
      config.batch = draw.Draw(1, 2);
      config.q_len = draw.Draw(1, 7);
      config.k_len = draw.Draw(1, 9);
      config.kv_heads = draw.Flip() ? 2 : draw.Flip() ? 1 : 4;
      CallMaker maker(config);
      Call call = maker.Make();
      maker.AddOptions(call);
      SCOPED_TRACE(::testing::Message()
                   << "terms " << terms << ", bias kind " << kind);
      ExpectEqualsNaive(call, config);
    }
  }
}

TEST(ForwardTest, OperandsOfACallEqualNaiveAttention) {
  for (unsigned which = 0; which < 1U << CallMaker::kOperands; ++which) {
    CallConfig config;
    config.terms = which % 3 == 0 ? kAllTerms : kRotate | kQTable;
    config.seed = 7000 + which;
    CallMaker draw({.seed = which});
    config.q_len = draw.Draw(1, 7);
    config.k_len = draw.Draw(1, 9);
    CallMaker maker(config);
    Call call = maker.Make();
    if (maker.Flip()) maker.AddOptions(call);
    maker.AddOperands(call, which);
    SCOPED_TRACE(::testing::Message() << "operands " << which);
    ExpectEqualsNaive(call, config);
  }
}

TEST(ForwardTest, OddLengthsEqualNaiveAttention) {
  for (int64_t q_len : {1, 17, 81}) {
    for (int64_t k_len : {1, 17, 81}) {
      const CallConfig config{.batch = 1,
                              .heads = 2,
                              .kv_heads = 1,
                              .q_len = q_len,
                              .k_len = k_len,
                              .seed = static_cast<uint64_t>(q_len + k_len)};
      CallMaker maker(config);
      Call call = maker.Make();
      maker.AddOptions(call);
      ExpectEqualsNaive(call, config);
    }
  }
}

TEST(ForwardTest, BiasesReachPositionsOfTenToTheTwelve) {
  const CallConfig config{
      .first_position = 1'000'000'000'000,
      .terms = kExtraDot | kQTable | kKTable | kBias | kVTable};
  for (int kind : {0, 1, 2}) {
    CallConfig c = config;
    c.bias_kind = kind;
    const Call call = CallMaker(c).Make();
    // Without angles, positions enter as exact integer offsets.
    EXPECT_LE(RelativeError(reference::Attention(call.q, call.k, call.v,
                                                 call.terms, call.Options())
                                .out,
                            NaiveAttention(call).out),
              1e-12);
  }
}

TEST(ForwardTest, DefaultPositionsEndWhereTheKeysEnd) {
  Call call = CallMaker({.q_len = 3, .k_len = 8}).Make();
  call.q_pos = {5, 6, 7, 5, 6, 7};
  call.k_pos = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7};
  call.options.causal = true;
  EXPECT_EQ(RelativeError(reference::Attention(call.q, call.k, call.v,
                                               call.terms, {.causal = true})
                              .out,
                          reference::Attention(call.q, call.k, call.v,
                                               call.terms, call.Options())
                              .out),
            0.0);
}

TEST(ForwardTest, EveryElementTypeIsReadAsItsValue) {
  const Call call = CallMaker({}).Make();
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Call narrow = call;
    narrow.q = call.q.To(dtype);
    narrow.k = call.k.To(dtype);
    narrow.v = call.v.To(dtype);
    narrow.terms.q_table->rows = call.terms.q_table->rows.To(dtype);
    const reference::Forward f = reference::Attention(
        narrow.q, narrow.k, narrow.v, narrow.terms, narrow.Options());
    EXPECT_EQ(f.out.dtype(), DType::kF64);
    EXPECT_EQ(f.lse.dtype(), DType::kF64);
    EXPECT_LE(RelativeError(f.out, NaiveAttention(narrow).out), 1e-12);
  }
}

TEST(ForwardTest, TransposedViewsAreReadInPlace) {
  const Call call = CallMaker({}).Make();
  // [B, L, H, D] in memory, seen as [B, H, L, D].
  const Tensor q = call.q.Transposed(1, 2).To(DType::kF64).Transposed(1, 2);
  EXPECT_FALSE(q.IsContiguous());
  EXPECT_EQ(RelativeError(reference::Attention(q, call.k, call.v, call.terms,
                                               call.Options())
                              .out,
                          reference::Attention(call.q, call.k, call.v,
                                               call.terms, call.Options())
                              .out),
            0.0);
}

TEST(ForwardTest, FullyMaskedRowsAreZero) {
  Call call = CallMaker({.batch = 1}).Make();
  call.q_seg = {0, 7, 0, 0, 0};
  call.k_seg = {0, 0, 0, 0, 0};
  const reference::Forward f =
      reference::Attention(call.q, call.k, call.v, call.terms, call.Options());
  for (int64_t h = 0; h < 4; ++h) {
    for (int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(f.lse.At(0, h, i) == -kInf, i == 1);
      for (int64_t d = 0; d < 3; ++d) {
        EXPECT_EQ(f.out.At(0, h, i, d) == 0.0, i == 1);
      }
    }
  }
}

TEST(ForwardTest, NoKeysAndNoTokensAreFine) {
  const Terms none;
  const auto run = [&](int64_t batch, int64_t q_len, int64_t k_len) {
    return reference::Attention(RandomTensor({batch, 2, q_len, 4}, 1),
                                RandomTensor({batch, 2, k_len, 4}, 2),
                                RandomTensor({batch, 2, k_len, 3}, 3), none);
  };
  const reference::Forward no_keys = run(1, 3, 0);
  EXPECT_EQ(no_keys.out.ToVector(), std::vector<double>(18, 0.0));
  EXPECT_EQ(no_keys.lse.ToVector(), std::vector<double>(6, -kInf));
  EXPECT_EQ(run(1, 0, 3).out.shape(), (std::vector<int64_t>{1, 2, 0, 3}));
  EXPECT_EQ(run(0, 3, 3).lse.shape(), (std::vector<int64_t>{0, 2, 3}));
}

TEST(ForwardTest, NanStaysInItsRow) {
  for (bool causal : {false, true}) {
    for (double poison : {double{NAN}, kInf}) {
      Call call = CallMaker({.batch = 1}).Make();
      call.q_pos = call.k_pos = {0, 1, 2, 3, 4};
      call.options.causal = causal;
      const reference::Forward clean = reference::Attention(
          call.q, call.k, call.v, call.terms, call.Options());
      // Head 2, query 1: later keys are masked if causal.
      call.q.MutableData<double>()[(2 * 5 + 1) * 6] = poison;
      const reference::Forward f = reference::Attention(
          call.q, call.k, call.v, call.terms, call.Options());
      for (int64_t h = 0; h < 4; ++h) {
        for (int64_t i = 0; i < 5; ++i) {
          if (h == 2 && i == 1) {
            EXPECT_FALSE(std::isfinite(f.out.At(0, h, i, 0)));
            EXPECT_FALSE(std::isfinite(f.lse.At(0, h, i)));
            EXPECT_NE(f.lse.At(0, h, i), -kInf);
          } else {
            EXPECT_EQ(f.out.At(0, h, i, 0), clean.out.At(0, h, i, 0));
            EXPECT_EQ(f.lse.At(0, h, i), clean.lse.At(0, h, i));
          }
        }
      }
    }
  }
}

TEST(ForwardTest, NanInAMaskedKeyIsNeverSeen) {
  Call call = CallMaker({.batch = 1}).Make();
  call.key_lengths = {3};
  const reference::Forward clean =
      reference::Attention(call.q, call.k, call.v, call.terms, call.Options());
  call.k.MutableData<double>()[4 * 6] = NAN;
  call.v.MutableData<double>()[3 * 3] = NAN;
  EXPECT_EQ(RelativeError(reference::Attention(call.q, call.k, call.v,
                                               call.terms, call.Options())
                              .out,
                          clean.out),
            0.0);
}

// Scores of 1e4 overflow exp; their softmax and logarithm do not.
TEST(ForwardTest, LogitsOfTenThousandDoNotOverflow) {
  for (double size : {1e4, -1e4}) {
    const Tensor q = Tensor::From({1, 1, 1, 1}, std::vector<double>{1.0});
    const Tensor k =
        Tensor::From({1, 1, 3, 1}, std::vector<double>{size, size, size - 1});
    const Tensor v =
        Tensor::From({1, 1, 3, 1}, std::vector<double>{1.0, 2.0, 3.0});
    const reference::Forward f = reference::Attention(q, k, v, Terms{});
    const double sum = 2.0 + std::exp(-1.0);
    EXPECT_NEAR(f.out.At(0, 0, 0, 0), (3.0 + 3.0 * std::exp(-1.0)) / sum,
                4 * 0x1p-52);
    EXPECT_NEAR(f.lse.At(0, 0, 0), size + std::log(sum), 1e4 * 0x1p-52);
  }
}

TEST(ForwardTest, ScoresAreTheLogitsBeforeTheSoftcap) {
  CallMaker maker({.seed = 9});
  Call call = maker.Make();
  call.options.causal = true;
  Call uncapped = call;
  call.options.softcap = 2.0;
  const AttentionOptions options = call.Options();
  const reference::Scorer scorer(call.q, call.k, call.terms, options);
  const Tensor scores = scorer.Of(/*b=*/1, /*h=*/3);
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 5; ++j) {
      if (NaiveVisible(call, 1, 3, i, j)) {
        EXPECT_NEAR(scores.At(i, j), NaiveScore(uncapped, 1, 3, i, j), 1e-12);
        EXPECT_EQ(scores.At(i, j), scorer.At(1, 3, i, j));
      } else {
        EXPECT_EQ(scores.At(i, j), -kInf);
      }
    }
  }
  EXPECT_EQ(ErrorOf([&] { scorer.Of(/*b=*/2, /*h=*/0); }),
            "there is no batch entry 2 with head 0 in q f64 [2, 4, 5, 6]");
}

TEST(ForwardTest, RefusesTermsThatDoNotFit) {
  Call call = CallMaker({.terms = kVTable}).Make();
  EXPECT_NE(ErrorOf([&] {
              reference::Attention(call.q, call.k, call.k, call.terms,
                                   call.Options());
            }).find("does not match v f64 [2, 2, 5, 6]"),
            std::string::npos);
  call = CallMaker({.terms = kQTable}).Make();
  EXPECT_NE(ErrorOf([&] {
              reference::Attention(call.v, call.v, call.v, call.terms,
                                   call.Options());
            }).find("the query table must be [heads, "),
            std::string::npos);
}

}  // namespace
}  // namespace locus::testing
