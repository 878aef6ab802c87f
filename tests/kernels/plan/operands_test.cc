// Operands of a call besides the terms: sinks, biases per key and per pair,
// masks, prefixes, chunks, dropout, weights.
#include "kernels/compare.h"
#include "kernels/plan/pair_bits.h"

namespace locus::testing {
namespace {

// Sizes that span several tiles, with features [first] and [second] of
// CallMaker.
Call MakeCall(unsigned which, uint64_t seed, unsigned terms) {
  CallConfig config;
  config.terms = terms;
  config.bias_kind = static_cast<int>(seed % 3);
  config.seed = seed;
  CallMaker draw({.seed = seed + 1});
  config.batch = draw.Draw(1, 2);
  config.q_len = draw.Draw(1, 40);
  config.k_len = draw.Draw(1, 70);
  config.head_dim = 2 * draw.Draw(2, 12);
  config.value_dim = draw.Draw(1, 24);
  CallMaker maker(config);
  Call call = maker.Make();
  // Positions are in order half of the time, which uses the SIMD paths.
  if (maker.Flip()) {
    std::ranges::sort(call.q_pos);
    std::ranges::sort(call.k_pos);
  }
  if (maker.Flip()) maker.AddOptions(call);
  maker.AddOperands(call, which);
  return AsFloat(call);
}

// A call that the short driver accepts: consecutive positions, no segments, and
// no tables.
Call MakeShortCall(unsigned which, uint64_t seed) {
  constexpr unsigned kTerms[] = {0,
                                 kBias,
                                 kRotate,
                                 kBias,
                                 kRotateValues,
                                 kExtraDot | kRotate | kBias,
                                 kRotate,
                                 kRotateValues | kRotate};
  CallConfig config{.terms = kTerms[seed % std::size(kTerms)],
                    .bias_kind = static_cast<int>(seed % 3),
                    .seed = seed};
  CallMaker draw({.seed = seed + 1});
  config.batch = draw.Draw(1, 2);
  config.q_len = draw.Draw(1, kReach);
  config.k_len = draw.Draw(1, kReach);
  config.head_dim = draw.Flip() ? 16 : 2 * draw.Draw(2, 12);
  config.value_dim = draw.Flip() ? 16 : draw.Draw(2, 24);
  CallMaker maker(config);
  Call call = maker.Make();
  if (maker.Flip()) maker.AddOptions(call);
  maker.AddOperands(call, which);
  call.q_seg.clear();
  call.k_seg.clear();
  const auto count = [&](int64_t length, std::vector<int64_t>& positions) {
    const int64_t first = maker.Draw(0, kReach - length);
    positions.clear();
    for (int64_t n = 0; n < config.batch * length; ++n) {
      positions.push_back(first + n % length);
    }
  };
  count(config.q_len, call.q_pos);
  count(config.k_len, call.k_pos);
  call = AsFloat(call);
  EXPECT_EQ(DriverOf(call), "short");
  return call;
}

// Calls f(which, seed) for all features, alone and in pairs.
template <typename F>
void ForEveryPair(const F& f) {
  for (unsigned first = 0; first < CallMaker::kOperands; ++first) {
    for (unsigned second = first; second < CallMaker::kOperands; ++second) {
      SCOPED_TRACE(::testing::Message() << first << " and " << second);
      f(1U << first | 1U << second, uint64_t{31 * first + second});
    }
  }
}

TEST(OperandsTest, EveryPairEqualsReference) {
  OnEveryTarget([] {
    ForEveryPair([](unsigned which, uint64_t seed) {
      const Call call =
          MakeCall(which, seed, seed % 2 == 0 ? kAllTerms : kRotate | kQTable);
      ExpectDriversEqualReference(call, {"tiled", "decode"});
      ExpectBackwardEqualsReference(call, seed);
    });
  });
}

TEST(OperandsTest, EveryPairInShortCallsEqualsReference) {
  constexpr unsigned kAll = (1U << CallMaker::kOperands) - 1;
  OnEveryTarget([] {
    ForEveryPair([](unsigned which, uint64_t seed) {
      ExpectDriversEqualReference(MakeShortCall(which, seed), {"short"});
    });
    for (uint64_t seed = 700; seed < 724; ++seed) {
      SCOPED_TRACE(seed);
      ExpectDriversEqualReference(MakeShortCall(kAll, seed), {"short"});
    }
  });
}

TEST(OperandsTest, EveryTermMeetsAllOfThem) {
  constexpr unsigned kAll = (1U << CallMaker::kOperands) - 1;
  for (unsigned terms = 0; terms <= kAllTerms; ++terms) {
    SCOPED_TRACE(terms);
    const Call call = MakeCall(kAll, 900 + terms, terms);
    ExpectDriversEqualReference(call, {"tiled", "decode"});
    ExpectBackwardEqualsReference(call, terms);
  }
}

TEST(OperandsTest, SameBitsOnAnyNumberOfThreads) {
  for (unsigned bit = 0; bit < CallMaker::kOperands; ++bit) {
    SCOPED_TRACE(bit);
    Call call = MakeCall(1U << bit | 1U, 50 + bit, kRotate | kBias | kQTable);
    call.options.return_weights = true;
    ExpectSameBitsOnAnyThreads("decode", call);
    Call shorter = MakeShortCall(1U << bit | 1U, 80 + bit);
    shorter.options.return_weights = true;
    ExpectSameBitsOnAnyThreads("short", shorter);
    AttentionOptions options = call.Options();
    options.return_lse = true;
    std::optional<AttentionResult> first;
    std::optional<AttentionGrads> grads;
    for (int threads : {1, 2, 7}) {
      const auto run = [&](Pass pass) {
        return kernels::PlanRequest{
            .pass = pass, .driver = "tiled", .threads = threads};
      };
      const kernels::Plan forward(call.q, call.k, call.v, call.terms, options,
                                  run(Pass::kForward));
      const AttentionResult result =
          kernels::Run(forward, kernels::Rows(call.q), kernels::Rows(call.k),
                       kernels::Rows(call.v));
      const kernels::Plan backward(call.q, call.k, call.v, call.terms, options,
                                   run(Pass::kBackward));
      const AttentionGrads g = kernels::RunBackward(
          backward, result.out, call.q, call.k, call.v, result,
          {.d_lse = {}, .pair_bias = options.pair_bias.defined()});
      if (!first) {
        first = result;
        grads = g;
        continue;
      }
      EXPECT_EQ(result.out.ToVector(), first->out.ToVector());
      EXPECT_EQ(result.lse.ToVector(), first->lse.ToVector());
      EXPECT_EQ(g.d_q.ToVector(), grads->d_q.ToVector());
      EXPECT_EQ(g.d_k.ToVector(), grads->d_k.ToVector());
      EXPECT_EQ(g.d_v.ToVector(), grads->d_v.ToVector());
      const std::vector<Param> a = Members(g.operands);
      const std::vector<Param> b = Members(grads->operands);
      ASSERT_EQ(a.size(), b.size());
      for (size_t n = 0; n < a.size(); ++n) {
        EXPECT_EQ(a[n].value.ToVector(), b[n].value.ToVector()) << a[n].name;
      }
    }
  }
}

TEST(OperandsTest, NarrowTypesEqualReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    Call call = MakeCall(0x3FF, 5, kRotate | kQTable);
    for (Tensor* t : {&call.q, &call.k, &call.v, &call.options.pair_bias,
                      &call.options.key_bias, &call.options.sinks,
                      &call.options.table_queries}) {
      *t = t->To(dtype);
    }
    AttentionOptions options = call.Options();
    options.return_lse = true;
    const auto expected =
        reference::Attention(call.q, call.k, call.v, call.terms, options);
    const auto actual = Attention(call.q, call.k, call.v, call.terms, options);
    const double rounding = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
    EXPECT_LE(RelativeError(actual.out, expected.out), rounding);
    EXPECT_LE(RelativeError(actual.weights, expected.weights), 1e-5);
  }
}

// Long enough for several tiles of keys, some of which a mask hides entirely.
TEST(OperandsTest, MasksThatHideWholeTiles) {
  const int64_t length = 700;
  Call call;
  call.q = RandomTensor({1, 2, length, 8}, 1).To(DType::kF32);
  call.k = RandomTensor({1, 2, length, 8}, 2).To(DType::kF32);
  call.v = RandomTensor({1, 2, length, 8}, 3).To(DType::kF32);
  call.terms.scale.scale = 0.3;
  call.options.mask.shape = {1, 1, length, length};
  call.options.mask.strides = {0, 0, length, 1};
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t j = 0; j < length; ++j) {
      // Documents of 150 tokens, and every 97th key.
      call.pairs.push_back(i / 150 == j / 150 || j % 97 == 5 ? 1 : 0);
    }
  }
  OnEveryTarget([&] {
    ExpectForwardEqualsReference(call);
    ExpectBackwardEqualsReference(call, 3);
  });
}

// A causal mask given as bytes is bitwise equal to the option: its intervals
// are detected.
TEST(OperandsTest, ACausalMaskIsTheCausalOption) {
  const int64_t length = 300;
  Call call;
  call.q = RandomTensor({1, 2, length, 16}, 1).To(DType::kF32);
  call.k = RandomTensor({1, 2, length, 16}, 2).To(DType::kF32);
  call.v = RandomTensor({1, 2, length, 16}, 3).To(DType::kF32);
  call.terms.scale.scale = 0.25;
  Call causal = call;
  causal.options.causal = true;
  call.options.mask.shape = {1, 1, length, length};
  call.options.mask.strides = {0, 0, length, 1};
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t j = 0; j < length; ++j) call.pairs.push_back(j <= i ? 1 : 0);
  }
  const AttentionResult a = RunDriver("tiled", call, 2);
  const AttentionResult b = RunDriver("tiled", causal, 2);
  EXPECT_EQ(a.out.ToVector(), b.out.ToVector());
  EXPECT_EQ(a.lse.ToVector(), b.lse.ToVector());
}

// Nothing that a query does not see affects it, not even a NaN.
TEST(OperandsTest, HiddenKeysMayHoldAnything) {
  for (const char* driver : {"tiled", "decode", "short"}) {
    SCOPED_TRACE(driver);
    const int64_t length = 70;
    Call call;
    call.q = RandomTensor({1, 1, 5, 16}, 1).To(DType::kF32);
    call.k = RandomTensor({1, 1, length, 16}, 2).To(DType::kF32);
    call.v = RandomTensor({1, 1, length, 16}, 3).To(DType::kF32);
    call.terms.scale.scale = 0.25;
    call.options.mask.shape = {1, 1, 1, length};
    call.options.mask.strides = {0, 0, 0, 1};
    for (int64_t j = 0; j < length; ++j) call.pairs.push_back(j % 3 != 1);
    const AttentionResult clean = RunDriver(driver, call, 2);
    for (int64_t j = 1; j < length; j += 3) {
      call.k.MutableData<float>()[j * 16 + 3] = NAN;
      call.v.MutableData<float>()[j * 16 + 5] = INFINITY;
    }
    const AttentionResult spoiled = RunDriver(driver, call, 2);
    EXPECT_EQ(clean.out.ToVector(), spoiled.out.ToVector());
    EXPECT_EQ(clean.lse.ToVector(), spoiled.lse.ToVector());
    if (driver != std::string("tiled")) continue;
    const AttentionOptions options = call.Options();
    const AttentionGrads g = AttentionBackward(
        clean.out, call.q, call.k, call.v, spoiled, call.terms, options);
    for (double x : g.d_q.ToVector()) EXPECT_TRUE(std::isfinite(x));
    for (double x : g.d_v.ToVector()) EXPECT_TRUE(std::isfinite(x));
  }
}

// A bias of -inf on every key hides a row without a mask: its gradients are
// zeros, whatever the memory held that they were given.
TEST(OperandsTest, RowsHiddenByABiasHaveNoGradient) {
  const int64_t queries = 257;
  for (int64_t keys : {1, 3}) {
    const std::vector<int64_t> shape = {1, 2, queries, keys};
    const Tensor q = RandomTensor({1, 2, queries, 8}, 1).To(DType::kF32);
    const Tensor k = RandomTensor({1, 2, keys, 8}, 2).To(DType::kF32);
    AttentionOptions options{.return_lse = true};
    options.pair_bias = RandomTensor(shape, 3).To(DType::kF32);
    std::fill_n(options.pair_bias.MutableData<float>() + 5 * keys, 9 * keys,
                -INFINITY);
    const AttentionResult forward = Attention(q, k, k, Terms{}, options);
    for (int round = 0; round < 4; ++round) {
      // Freed memory of the same sizes is likely to be used next.
      std::vector<Tensor> spoiled;
      for (int n = 0; n < 8; ++n) {
        spoiled.push_back(Tensor::Empty(DType::kF32, shape));
        std::fill_n(spoiled.back().MutableData<float>(),
                    spoiled.back().NumElements(), 7.0F);
      }
      spoiled.clear();
      const AttentionGrads g = AttentionBackward(
          forward.out, q, k, k, forward, Terms{}, options, {.pair_bias = true});
      const std::vector<double> d = g.operands.pair_bias.ToVector();
      for (int64_t n = 5 * keys; n < 14 * keys; ++n) {
        EXPECT_EQ(d[static_cast<size_t>(n)], 0.0) << n;
      }
    }
  }
}

// A dropped value has no effect, whatever it is; one that is kept does.
TEST(OperandsTest, DroppedValuesMayBeAnything) {
  const int64_t length = 70;
  Call call;
  call.q = RandomTensor({1, 2, 12, 16}, 1).To(DType::kF32);
  call.k = RandomTensor({1, 1, length, 16}, 2).To(DType::kF32);
  call.v = RandomTensor({1, 1, length, 16}, 3).To(DType::kF32);
  call.v.MutableData<float>()[33 * 16 + 5] = INFINITY;
  call.v.MutableData<float>()[69 * 16 + 7] = NAN;
  call.terms.scale.scale = 0.25;
  call.options.dropout = {.rate = 0.5, .seed = 3};
  call.options.return_weights = true;
  const reference::Forward expected =
      reference::Attention(call.q, call.k, call.v, call.terms, call.Options());
  const std::vector<double> e = expected.out.ToVector();
  OnEveryTarget([&] {
    for (const char* driver : {"tiled", "decode", "short"}) {
      SCOPED_TRACE(driver);
      const AttentionResult actual = RunDriver(driver, call, 2);
      EXPECT_LE(RelativeError(actual.weights, expected.weights),
                ForwardTolerance(call));
      const std::vector<double> a = actual.out.ToVector();
      for (size_t n = 0; n < e.size(); ++n) {
        if (std::isfinite(e[n])) {
          EXPECT_NEAR(a[n], e[n], ForwardTolerance(call)) << n;
        } else {
          EXPECT_FALSE(std::isfinite(a[n])) << n;
        }
      }
    }
  });
}

// Several chunks of keys, whose weights are relative to their own references,
// in order and scattered.
TEST(OperandsTest, WeightsOfManyKeysEqualReference) {
  for (const bool scattered : {false, true}) {
    Call call;
    call.q = RandomTensor({2, 4, 2, 8}, 1).To(DType::kF32);
    call.k = RandomTensor({2, 2, 1100, 8}, 2).To(DType::kF32);
    call.v = RandomTensor({2, 2, 1100, 8}, 3).To(DType::kF32);
    for (int64_t j = 0; j < 1100; ++j) {
      call.k_pos.push_back(scattered ? j * 7 % 1100 : j);
    }
    call.q_pos = {500, 1099};
    call.key_lengths = {1100, 300};
    call.options.causal = true;
    call.options.dropout = {.rate = 0.2, .seed = 5};
    call.options.sinks = RandomTensor({4}, 4);
    call.options.return_weights = true;
    // Logits that increase along the keys change the reference from tile to
    // tile.
    call.terms.scale.scale = 0.5;
    call.terms.bias = BiasRamp{{0.01, 0.005, 0.0, -0.005}, {0, 0, 0, 0}};
    ASSERT_EQ(DriverOf(call), "decode");
    ExpectDriversEqualReference(call, {"tiled", "decode"});
    ExpectSameBitsOnAnyThreads("decode", call);
  }
}

// Sinks join exactly once, however the keys are split.
TEST(OperandsTest, SinksJoinAfterMerge) {
  Call call;
  call.q = RandomTensor({1, 2, 6, 8}, 1).To(DType::kF32);
  call.k = RandomTensor({1, 2, 20, 8}, 2).To(DType::kF32);
  call.v = RandomTensor({1, 2, 20, 8}, 3).To(DType::kF32);
  call.terms.scale.scale = 0.3;
  const Tensor sinks = RandomTensor({2}, 4);
  AttentionOptions options{.return_lse = true};
  const auto part = [&](int64_t begin, int64_t end) {
    const auto view = [&](const Tensor& x) {
      return Tensor::Borrow(x.dtype(), {1, 2, end - begin, 8}, x.strides(),
                            x.Data<float>() + begin * 8);
    };
    return Attention(call.q, view(call.k), view(call.v), call.terms, options);
  };
  const AttentionResult joined =
      AddSinks(Merge(part(0, 7), part(7, 20)), sinks);
  options.sinks = sinks;
  const auto expected =
      reference::Attention(call.q, call.k, call.v, call.terms, options);
  EXPECT_LE(RelativeError(joined.out, expected.out), ForwardTolerance(call));
  EXPECT_LE(RelativeError(joined.lse, expected.lse), ForwardTolerance(call));
}

// A rate of 0.3 drops 0.3 of many weights, and another seed drops others.
TEST(OperandsTest, DropoutDropsItsShare) {
  const int64_t length = 200;
  const Tensor q = Tensor::Zeros(DType::kF32, {2, 3, length, 4});
  AttentionOptions options{.dropout = {.rate = 0.3, .seed = 7},
                           .return_weights = true};
  const auto weights = [&] {
    return Attention(q, q, q, Terms(), options).weights.ToVector();
  };
  const std::vector<double> first = weights();
  double dropped = 0.0;
  for (double w : first) {
    if (w == 0.0) {
      dropped += 1.0;
    } else {
      EXPECT_NEAR(w, 1.0 / 200.0 / 0.7, 1e-8);
    }
  }
  const double count = static_cast<double>(first.size());
  // Five standard deviations.
  EXPECT_NEAR(dropped / count, 0.3, 5.0 * std::sqrt(0.21 / count));
  options.dropout.seed = 8;
  const std::vector<double> second = weights();
  double both = 0.0;
  for (size_t n = 0; n < first.size(); ++n) {
    if (first[n] == 0.0 && second[n] == 0.0) both += 1.0;
  }
  EXPECT_NEAR(both / count, 0.09, 5.0 * std::sqrt(0.0819 / count));
}

// Every third query from the second on, over every fifth key from the fourth
// on, drops the same pairs as in the whole sequence.
TEST(OperandsTest, PartsDropWhatTheWholeDrops) {
  const int64_t length = 100;
  const Tensor x = Tensor::Zeros(DType::kF32, {2, 3, length, 4});
  AttentionOptions options{.dropout = {.rate = 0.5, .seed = 7},
                           .return_weights = true};
  const Tensor whole = Attention(x, x, x, Terms(), options).weights;
  const int64_t queries = 33, keys = 20;
  const Tensor q = Tensor::Zeros(DType::kF32, {2, 3, queries, 4});
  const Tensor k = Tensor::Zeros(DType::kF32, {2, 3, keys, 4});
  options.dropout.first_query = 1;
  options.dropout.query_stride = 3;
  options.dropout.first_key = 3;
  options.dropout.key_stride = 5;
  OnEveryTarget([&] {
    const Tensor part = Attention(q, k, k, Terms(), options).weights;
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t h = 0; h < 3; ++h) {
        for (int64_t i = 0; i < queries; ++i) {
          for (int64_t j = 0; j < keys; ++j) {
            ASSERT_EQ(part.At(b, h, i, j) == 0.0,
                      whole.At(b, h, 1 + 3 * i, 3 + 5 * j) == 0.0);
          }
        }
      }
    }
  });
}

TEST(PairBitsTest, FindsWhatIsSeen) {
  const uint64_t words[] = {0x00F0, 0, 0x1, 0};
  const kernels::BitRow row{words};
  EXPECT_EQ(row.First(0, 192, /*seen=*/true), 4);
  EXPECT_EQ(row.First(4, 192, /*seen=*/false), 8);
  EXPECT_EQ(row.First(8, 192, /*seen=*/true), 128);
  EXPECT_EQ(row.First(8, 100, /*seen=*/true), 100);
  EXPECT_EQ(row.AfterLast(0, 192), 129);
  EXPECT_EQ(row.AfterLast(0, 128), 8);
  EXPECT_EQ(row.AfterLast(10, 128), 10);
}

}  // namespace
}  // namespace locus::testing
