// Fused attention, forward and backward, against the reference.
#include <atomic>
#include <thread>

#include "kernels/compare.h"

namespace locus::testing {
namespace {

TEST(FusedAttentionTest, EverySubsetOfTermsEqualsReference) {
  OnEveryTarget([] {
    ForEverySubset(2000, [](CallConfig& config, CallMaker& draw) {
      config.q_len = draw.Draw(1, 30);
      config.k_len = draw.Draw(1, 40);
      config.head_dim = 2 * draw.Draw(2, 12);
      config.value_dim = draw.Draw(1, 24);
      config.kv_heads = draw.Flip() ? 2 : draw.Flip() ? 1 : 4;
      CallMaker maker(config);
      Call call = maker.Make();
      maker.AddOptions(call);
      call = AsFloat(call);
      ExpectForwardEqualsReference(call);
      ExpectBackwardEqualsReference(call, config.seed);
    });
  });
}

// Every encoding at consecutive positions, which use the SIMD paths.
TEST(FusedAttentionTest, EveryEncodingEqualsReference) {
  for (const EncodingInfo& info : Encodings()) {
    for (int64_t length : {1, 17, 81, 300}) {
      for (bool causal : {false, true}) {
        const ExampleConfig example{
            .heads = 4, .head_dim = 16, .length = length};
        const auto encoding = info.example(example);
        Call call;
        call.q = RandomTensor({1, 4, length, 16}, 1);
        call.k = RandomTensor({1, 2, length, 16}, 2);
        call.v = RandomTensor({1, 2, length, 16}, 3);
        call.options.causal = causal;
        for (int64_t i = 0; i < length; ++i) {
          call.q_pos.push_back(info.name == "mrope" ? PackPosition(i, i, i)
                                                    : i);
        }
        call.k_pos = call.q_pos;
        Lower(*encoding, call);
        call = AsFloat(call);
        SCOPED_TRACE(::testing::Message() << info.name << ", length " << length
                                          << ", causal " << causal);
        const auto compare = [&call] {
          ExpectForwardEqualsReference(call);
          ExpectBackwardEqualsReference(call, 5);
        };
        // The longest covers several tiles of every target.
        length == 300 && !causal ? OnEveryTarget(compare) : compare();
        if (length == 81) ExpectParamsEqualReference(call, *encoding);
      }
    }
  }
}

// A length beyond one key tile, with a window and packed sequences.
TEST(FusedAttentionTest, LongSequencesEqualReference) {
  OnEveryTarget([] {
    const int64_t length = 987;
    Call call;
    call.q = RandomTensor({1, 2, length, 20}, 1);
    call.k = RandomTensor({1, 1, length, 20}, 2);
    call.v = RandomTensor({1, 1, length, 20}, 3);
    const PackedTokens tokens = Pack(std::vector<int64_t>{600, 387});
    call.q_pos = call.k_pos = tokens.positions;
    call.q_seg = call.k_seg = tokens.segments;
    call.options.causal = true;
    call.options.window = Window{.left = 333, .right = 0};
    const BucketMap clip = BucketMap::Clip(-20, 40);
    call.terms.scale.scale = 0.2;
    call.terms.q_table =
        BucketTable{RandomTensor({2, clip.count, 20}, 4), clip};
    call.terms.v_table =
        BucketTable{RandomTensor({1, clip.count, 20}, 5), clip};
    call.terms.bias = BiasRamp{{0.01, 0.02}, {0.0, 0.0}};
    call = AsFloat(call);
    ExpectForwardEqualsReference(call);
    ExpectBackwardEqualsReference(call, 6);
  });
}

TEST(FusedAttentionTest, BitsDoNotDependOnThreads) {
  for (uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{3}}) {
    CallConfig config{.q_len = 400,
                      .k_len = 400,
                      .head_dim = 16,
                      .value_dim = 16,
                      .seed = seed};
    if (seed == 3) config.batch = config.heads = config.kv_heads = 1;
    CallMaker maker(config);
    const Call call = AsFloat(maker.Make());
    AttentionOptions options = call.Options();
    options.return_lse = true;
    options.threads = 1;
    const AttentionResult one =
        Attention(call.q, call.k, call.v, call.terms, options);
    const Tensor d_out = RandomTensor(one.out.shape(), 9).To(DType::kF32);
    const AttentionGrads grads_one = AttentionBackward(
        d_out, call.q, call.k, call.v, one, call.terms, options);
    for (int threads : {2, 3, 7}) {
      options.threads = threads;
      const AttentionResult many =
          Attention(call.q, call.k, call.v, call.terms, options);
      const AttentionGrads grads = AttentionBackward(
          d_out, call.q, call.k, call.v, many, call.terms, options);
      EXPECT_EQ(one.out.ToVector(), many.out.ToVector());
      EXPECT_EQ(one.lse.ToVector(), many.lse.ToVector());
      EXPECT_EQ(grads_one.d_q.ToVector(), grads.d_q.ToVector());
      EXPECT_EQ(grads_one.d_k.ToVector(), grads.d_k.ToVector());
      EXPECT_EQ(grads_one.d_v.ToVector(), grads.d_v.ToVector());
      const auto a = Members(grads_one.terms), b = Members(grads.terms);
      for (size_t n = 0; n < a.size(); ++n) {
        EXPECT_EQ(a[n].value.ToVector(), b[n].value.ToVector()) << a[n].name;
      }
    }
  }
}

TEST(FusedAttentionTest, ConcurrentCallsAgree) {
  CallMaker maker({.q_len = 150, .k_len = 150, .head_dim = 16, .seed = 4});
  const Call call = AsFloat(maker.Make());
  AttentionOptions options = call.Options();
  options.threads = 2;
  const std::vector<double> expected =
      Attention(call.q, call.k, call.v, call.terms, options).out.ToVector();
  std::vector<std::thread> callers;
  std::atomic<int> agree{0};
  for (int n = 0; n < 8; ++n) {
    callers.emplace_back([&] {
      const auto result =
          Attention(call.q, call.k, call.v, call.terms, options);
      agree += result.out.ToVector() == expected ? 1 : 0;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(agree, 8);
}

TEST(FusedAttentionTest, NarrowTypesAreStorageOnly) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    Call call;
    call.q = RandomTensor({1, 2, 50, 24}, 1).To(dtype);
    call.k = RandomTensor({1, 2, 50, 24}, 2).To(dtype);
    call.v = RandomTensor({1, 2, 50, 24}, 3).To(dtype);
    for (int64_t i = 0; i < 50; ++i) call.q_pos.push_back(i);
    call.k_pos = call.q_pos;
    call.terms.scale.scale = 0.2;
    const auto expected = reference::Attention(call.q, call.k, call.v,
                                               call.terms, call.Options());
    const auto actual =
        Attention(call.q, call.k, call.v, call.terms, call.Options());
    EXPECT_EQ(actual.out.dtype(), dtype);
    // One rounding to the storage type, plus float32 arithmetic.
    const double half_ulp = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
    EXPECT_LE(RelativeError(actual.out, expected.out),
              half_ulp + ForwardTolerance(call));
  }
}

TEST(FusedAttentionTest, StridedViewsEqualContiguousTensors) {
  // [B, L, H, D] in memory, seen as [B, H, L, D].
  const Tensor q = RandomTensor({2, 33, 3, 16}, 1).To(DType::kF32);
  const Tensor k = RandomTensor({2, 33, 3, 16}, 2).To(DType::kF32);
  const Tensor v = RandomTensor({2, 33, 3, 32}, 3).To(DType::kF32);
  const Terms terms;
  const auto strided = Attention(q.Transposed(1, 2), k.Transposed(1, 2),
                                 v.Transposed(1, 2), terms);
  const auto plain =
      Attention(q.Transposed(1, 2).To(DType::kF64).To(DType::kF32),
                k.Transposed(1, 2).To(DType::kF64).To(DType::kF32),
                v.Transposed(1, 2).To(DType::kF64).To(DType::kF32), terms);
  EXPECT_EQ(strided.out.ToVector(), plain.out.ToVector());
}

TEST(FusedAttentionTest, MaskedRowsAreZero) {
  const Tensor q = RandomTensor({1, 1, 20, 8}, 1).To(DType::kF32);
  const Tensor k = RandomTensor({1, 1, 20, 8}, 2).To(DType::kF32);
  AttentionOptions options;
  const std::vector<int64_t> lengths = {0};
  options.key_lengths = lengths;
  options.return_lse = true;
  const auto result = Attention(q, k, k, Terms(), options);
  for (double x : result.out.ToVector()) EXPECT_EQ(x, 0.0);
  for (double x : result.lse.ToVector()) EXPECT_EQ(x, -INFINITY);
  const auto grads = AttentionBackward(q, q, k, k, result, Terms(), options);
  for (double x : grads.d_q.ToVector()) EXPECT_EQ(x, 0.0);
}

TEST(FusedAttentionTest, EmptySidesAreDefined) {
  const Tensor none = Tensor::Zeros(DType::kF32, {1, 2, 0, 8});
  const Tensor some = RandomTensor({1, 2, 3, 8}, 1).To(DType::kF32);
  AttentionOptions options;
  options.return_lse = true;
  EXPECT_EQ(Attention(none, some, some, Terms(), options).out.NumElements(), 0);
  const auto no_keys = Attention(some, none, none, Terms(), options);
  for (double x : no_keys.out.ToVector()) EXPECT_EQ(x, 0.0);
  for (double x : no_keys.lse.ToVector()) EXPECT_EQ(x, -INFINITY);
}

TEST(FusedAttentionTest, NotANumberStaysInItsRow) {
  const int64_t length = 40;
  Tensor q =
      RandomTensor({1, 1, length, 32}, 1).To(DType::kF64).To(DType::kF32);
  const Tensor k = RandomTensor({1, 1, length, 32}, 2).To(DType::kF32);
  Tensor v =
      RandomTensor({1, 1, length, 32}, 3).To(DType::kF64).To(DType::kF32);
  q.MutableData<float>()[5 * 32 + 1] = NAN;
  v.MutableData<float>()[30 * 32 + 2] = INFINITY;  // seen from row 30 on
  AttentionOptions options;
  options.causal = true;
  const Tensor out = Attention(q, k, v, Terms(), options).out;
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t d = 0; d < 32; ++d) {
      const double x = out.At(0, 0, i, d);
      if (i == 5) {
        EXPECT_TRUE(std::isnan(x)) << i;
      } else if (i < 30 || d != 2) {
        EXPECT_TRUE(std::isfinite(x)) << i << ", " << d;
      } else {
        EXPECT_EQ(x, INFINITY) << i;
      }
    }
  }
}

// Gradients of a NaN query are NaN, and so are those of the keys it sees.
// Nothing else is affected.
TEST(FusedAttentionTest, NotANumberGoesBackToWhatIsSeen) {
  constexpr int64_t kLength = 300, kBad = 100, kDim = 24;
  enum Which { kQuery, kKey, kValue, kGrad };
  for (Which which : {kQuery, kKey, kValue, kGrad}) {
    for (float bad : {NAN, INFINITY}) {
      SCOPED_TRACE(::testing::Message() << which << ", " << bad);
      Tensor x[4];
      for (size_t n = 0; n < 4; ++n) {
        x[n] = Tensor::From({1, 1, kLength, kDim},
                            RandomTensor({kLength, kDim}, 1 + n).ToVector())
                   .To(DType::kF32);
      }
      x[which].MutableData<float>()[kBad * kDim + 3] = bad;
      AttentionOptions options;
      options.causal = true;
      options.window = Window{.left = 40, .right = 0};
      options.return_lse = true;
      const AttentionResult forward =
          Attention(x[0], x[1], x[2], Terms(), options);
      const AttentionGrads grads =
          AttentionBackward(x[3], x[0], x[1], x[2], forward, Terms(), options);
      const auto finite = [](const Tensor& t, int64_t i) {
        for (int64_t d = 0; d < kDim; ++d) {
          if (!std::isfinite(t.At(0, 0, i, d))) return false;
        }
        return true;
      };
      // Queries that see the bad token, and the keys that they see.
      const bool is_query = which == kQuery || which == kGrad;
      const int64_t q_end = is_query ? kBad + 1 : kBad + 41;
      EXPECT_FALSE(finite(grads.d_q, kBad));
      EXPECT_FALSE(finite(grads.d_v, kBad) && finite(grads.d_k, kBad));
      for (int64_t i = 0; i < kLength; ++i) {
        EXPECT_TRUE(finite(grads.d_q, i) || (i >= kBad && i < q_end)) << i;
        if (i >= kBad - 40 && i < q_end) continue;
        EXPECT_TRUE(finite(grads.d_k, i)) << i;
        EXPECT_TRUE(finite(grads.d_v, i)) << i;
      }
    }
  }
}

TEST(FusedAttentionTest, HugeLogitsDoNotOverflow) {
  const Tensor q = RandomTensor({1, 1, 30, 8}, 1).To(DType::kF32);
  const Tensor k = RandomTensor({1, 1, 30, 8}, 2).To(DType::kF32);
  const Tensor v = RandomTensor({1, 1, 30, 8}, 3).To(DType::kF32);
  for (double scale : {1e4, 1e7}) {
    AttentionOptions options;
    options.return_lse = true;
    Terms terms;
    terms.scale.scale = scale;
    const auto actual = Attention(q, k, v, terms, options);
    const auto expected = reference::Attention(q, k, v, terms, options);
    for (double x : actual.out.ToVector()) EXPECT_TRUE(std::isfinite(x));
    EXPECT_LE(RelativeError(actual.lse, expected.lse), 8 * kEps);
  }
}

TEST(FusedAttentionTest, RefusesMixedTypes) {
  const Tensor f32 = RandomTensor({1, 1, 2, 8}, 1).To(DType::kF32);
  const Tensor f64 = RandomTensor({1, 1, 2, 8}, 1);
  EXPECT_EQ(ErrorOf([&] { Attention(f64, f32, f32, Terms()); }),
            "q, k and v must be all f32, all bf16 or all f16, got f64 [1, 1, "
            "2, 8], f32 [1, 1, 2, 8] and f32 [1, 1, 2, 8]");
}

TEST(SimdTest, ForcesTargets) {
  const std::string best = SimdTarget();
  for (const std::string& target : SimdTargets()) {
    ForceSimdTarget(target);
    EXPECT_EQ(SimdTarget(), target);
  }
  ForceSimdTarget("");
  EXPECT_EQ(SimdTarget(), best);
  EXPECT_NE(ErrorOf([] { ForceSimdTarget("MMX"); }).find("'MMX'"),
            std::string::npos);
}

}  // namespace
}  // namespace locus::testing
