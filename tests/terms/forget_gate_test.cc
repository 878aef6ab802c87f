// Forget gates: a bias per key against F_i - F_j for every pair.
#include "locus/locus.h"
#include "support/tensors.h"

namespace locus::testing {
namespace {

// log sigmoid of normal numbers, [B, H, L]: half of the gates forget at least
// half.
Tensor LogGates(std::vector<int64_t> shape, uint64_t seed) {
  Tensor gates = RandomTensor(std::move(shape), seed);
  double* x = gates.MutableData<double>();
  for (int64_t n = 0; n < gates.NumElements(); ++n) {
    x[n] = -std::log1p(std::exp(-x[n]));
  }
  return gates;
}

// M[b, h, i, j] = sum of the log gates after key j, up to query i.
Tensor PairBias(const Tensor& log_gates) {
  const int64_t heads = log_gates.size(1), length = log_gates.size(2);
  Tensor bias =
      Tensor::Zeros(DType::kF64, {log_gates.size(0), heads, length, length});
  double* out = bias.MutableData<double>();
  for (int64_t n = 0; n < log_gates.size(0) * heads; ++n) {
    for (int64_t i = 0; i < length; ++i) {
      double sum = 0.0;
      for (int64_t j = i; j >= 0; --j) {
        out[(n * length + i) * length + j] = sum;
        sum += log_gates.At(n / heads, n % heads, j);
      }
    }
  }
  return bias;
}

struct Inputs {
  explicit Inputs(int64_t length)
      : q(RandomTensor({2, 4, length, 16}, 1).To(DType::kF32)),
        k(RandomTensor({2, 2, length, 16}, 2).To(DType::kF32)),
        v(RandomTensor({2, 2, length, 8}, 3).To(DType::kF32)),
        log_gates(LogGates({2, 4, length}, 4)) {
    terms.scale.scale = 0.25;
  }

  Tensor q, k, v, log_gates;
  Terms terms;
};

double Largest(const Tensor& x) {
  double largest = 0.0;
  for (double value : x.ToVector()) {
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// The error that the header promises, plus that of float32 sums of this length.
double Tolerance(const Tensor& key_bias) {
  return 0x1p-23 * Largest(key_bias) + 1e-5;
}

TEST(ForgetGateTest, MatchesTheFormula) {
  for (int64_t length : {1, 17, 200, 600}) {
    SCOPED_TRACE(length);
    const Inputs in(length);
    AttentionOptions options{.causal = true, .return_lse = true};
    options.pair_bias = PairBias(in.log_gates);
    const reference::Forward expected =
        reference::Attention(in.q, in.k, in.v, in.terms, options);
    options.pair_bias = {};
    const Tensor sums = ForgetGateSums(in.log_gates);
    options.key_bias = ForgetGateBias(sums);
    const AttentionResult actual =
        Attention(in.q, in.k, in.v, in.terms, options);
    EXPECT_LE(RelativeError(actual.out, expected.out),
              Tolerance(options.key_bias));
    // lse is higher by F_last - F_i.
    for (int64_t i = 0; i < length; ++i) {
      const double shift = sums.At(1, 3, length - 1) - sums.At(1, 3, i);
      EXPECT_NEAR(actual.lse.At(1, 3, i), expected.lse.At(1, 3, i) + shift,
                  Tolerance(options.key_bias));
    }
  }
}

TEST(ForgetGateTest, GradientIsThatOfTheFormula) {
  const int64_t length = 90;
  const Inputs in(length);
  const Tensor d_out = RandomTensor({2, 4, length, 8}, 5).To(DType::kF32);
  AttentionOptions options{.causal = true, .return_lse = true};
  options.pair_bias = PairBias(in.log_gates);
  const Tensor d_pairs =
      reference::AttentionBackward(d_out, in.q, in.k, in.v, in.terms, options,
                                   {.d_lse = {}, .pair_bias = true})
          .operands.pair_bias;
  // F_i - F_j has the gates j < l <= i.
  Tensor expected = Tensor::Zeros(DType::kF64, {2, 4, length});
  for (int64_t n = 0; n < 8; ++n) {
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        for (int64_t l = j + 1; l <= i; ++l) {
          expected.MutableData<double>()[n * length + l] +=
              d_pairs.At(n / 4, n % 4, i, j);
        }
      }
    }
  }
  options.pair_bias = {};
  options.key_bias = ForgetGateBias(ForgetGateSums(in.log_gates));
  const AttentionResult forward =
      Attention(in.q, in.k, in.v, in.terms, options);
  const Tensor d_key_bias =
      AttentionBackward(d_out, in.q, in.k, in.v, forward, in.terms, options)
          .operands.key_bias;
  const Tensor actual = ForgetGatePullBack(d_key_bias);
  EXPECT_EQ(actual.dtype(), DType::kF32);
  EXPECT_LE(RelativeError(actual, expected), 1e-4);
  EXPECT_EQ(ForgetGatePullBack(d_key_bias.To(DType::kF64)).dtype(),
            DType::kF64);
}

// Keys appended to a cache continue from the last sum, to the bit.
TEST(ForgetGateTest, SumsGoOnFromACache) {
  const Tensor all = LogGates({2, 3, 50}, 6);
  const auto part = [&](int64_t begin, int64_t end) {
    return Tensor::Borrow(DType::kF64, {2, 3, end - begin}, all.strides(),
                          all.Data<double>() + begin);
  };
  const Tensor whole = ForgetGateSums(all);
  const Tensor first = ForgetGateSums(part(0, 31));
  const Tensor last =
      Tensor::Borrow(DType::kF64, {2, 3}, {93, 31}, first.Data<double>() + 30);
  const Tensor second = ForgetGateSums(part(31, 50), last);
  for (int64_t n = 0; n < 6; ++n) {
    for (int64_t l = 0; l < 50; ++l) {
      EXPECT_EQ(
          whole.At(n / 3, n % 3, l),
          l < 31 ? first.At(n / 3, n % 3, l) : second.At(n / 3, n % 3, l - 31));
    }
  }
  // A view of a larger buffer gives the biases of its own elements.
  const Tensor view = Tensor::Borrow(DType::kF64, {2, 3, 31}, whole.strides(),
                                     whole.Data<double>());
  EXPECT_EQ(ForgetGateBias(view).ToVector(), ForgetGateBias(first).ToVector());
  EXPECT_EQ(ForgetGateBias(first).At(1, 2, 30), 0.0);
}

// Contributions of earlier segments cancel, whether sums start over or not.
TEST(ForgetGateTest, PackedSequencesNeedNothing) {
  const int64_t lengths[] = {40, 60};
  const PackedTokens tokens = Pack(lengths);
  const Inputs in(100);
  AttentionOptions options{.causal = true};
  options.q_positions = options.k_positions = tokens.positions;
  options.q_segments = options.k_segments = tokens.segments;
  options.pair_bias = PairBias(in.log_gates);
  const reference::Forward expected =
      reference::Attention(in.q, in.k, in.v, in.terms, options);
  options.pair_bias = {};
  options.key_bias = ForgetGateBias(ForgetGateSums(in.log_gates));
  const AttentionResult actual = Attention(in.q, in.k, in.v, in.terms, options);
  EXPECT_LE(RelativeError(actual.out, expected.out),
            Tolerance(options.key_bias));
}

// Gates of 1 / e over 30000 tokens: K is rounded once, however large it is.
TEST(ForgetGateTest, RoundsOnce) {
  const int64_t length = 30000;
  Tensor gates = LogGates({1, 1, length}, 7);
  const Tensor bias = ForgetGateBias(ForgetGateSums(gates.To(DType::kF32)));
  long double sum = 0.0L;
  for (int64_t j = length - 1; j >= 0; --j) {
    EXPECT_NEAR(bias.At(0, 0, j), static_cast<double>(sum),
                0x1.001p-24 * std::abs(static_cast<double>(sum)));
    sum += static_cast<float>(gates.At(0, 0, j));
  }
}

TEST(ForgetGateTest, RefusesWhatItCannotSay) {
  const auto said = [](const auto& f) { return ErrorOf(f); };
  EXPECT_EQ(said([] {
              ForgetGateSums(Tensor::Zeros(DType::kF32, {2, 3}));
            }),
            "log_gates must be [batch, heads, length], got f32 [2, 3]");
  EXPECT_EQ(said([] {
              ForgetGateSums(Tensor::Zeros(DType::kF32, {2, 3, 4}),
                             Tensor::Zeros(DType::kF64, {2, 4}));
            }),
            "before must be [2, 3], as the log gates are, got f64 [2, 4]");
  EXPECT_EQ(
      said([] {
        ForgetGateSums(
            Tensor::From({1, 2, 2}, std::vector<double>{0, -1, -INFINITY, 0}));
      }),
      "a log gate must be finite, got -inf in sequence 0, head 1, token 0");
  EXPECT_EQ(said([] {
              ForgetGateSums(Tensor::Zeros(DType::kF32, {1, 1, 4}),
                             Tensor::From({1, 1}, std::vector<double>{NAN}));
            }),
            "before must be finite, got nan in sequence 0, head 0");
  EXPECT_EQ(said([] { ForgetGateBias(Tensor()); }),
            "sums must be [batch, heads, length], got none");
  EXPECT_EQ(ForgetGateBias(Tensor::Zeros(DType::kF64, {2, 3, 0})).NumElements(),
            0);
}

}  // namespace
}  // namespace locus::testing
