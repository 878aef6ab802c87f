// Short calls: those that the kernel of whole rows accepts, with every option
// that it supports, against the reference.
#include "kernels/compare.h"

namespace locus::testing {
namespace {

bool GoesShort(const Call& call) { return DriverOf(call) == "short"; }

// Consecutive positions from q_first and k_first on, the same in all sequences.
void Count(Call& call, int64_t q_first, int64_t k_first) {
  call.q_pos.clear();
  call.k_pos.clear();
  for (int64_t b = 0; b < call.q.size(0); ++b) {
    for (int64_t i = 0; i < call.q.size(2); ++i) {
      call.q_pos.push_back(q_first + i);
    }
    for (int64_t j = 0; j < call.k.size(2); ++j) {
      call.k_pos.push_back(k_first + j);
    }
  }
}

Call Plain(int64_t length, int64_t dim = 32, int64_t heads = 1) {
  Call call;
  call.q = RandomTensor({1, heads, length, dim}, 1).To(DType::kF32);
  call.k = RandomTensor({1, heads, length, dim}, 2).To(DType::kF32);
  call.v = RandomTensor({1, heads, length, dim}, 3).To(DType::kF32);
  call.terms.scale.scale = 0.2;
  Count(call, 0, 0);
  return call;
}

// A copy that may be modified.
Tensor Copy(const Tensor& t) { return t.To(DType::kF64).To(DType::kF32); }

// Random lengths, sizes, grouped heads, masks, caps and temperatures, for every
// subset of the supported terms.
TEST(ShortTest, RandomCallsEqualReference) {
  OnEveryTarget([] {
    for (uint64_t seed = 0; seed < 90; ++seed) {
      CallConfig config{.seed = 7000 + seed};
      const unsigned subsets[] = {0,         kRotate,
                                  kBias,     kRotate | kBias,
                                  kExtraDot, kExtraDot | kRotate | kBias};
      config.terms = subsets[seed % 6];
      config.bias_kind = static_cast<int>(seed / 6 % 3);
      config.first_position = seed % 3 == 0 ? 0 : 1000;
      CallMaker draw({.seed = seed});
      config.batch = draw.Draw(1, 3);
      config.kv_heads = draw.Flip() ? 2 : draw.Flip() ? 1 : 4;
      config.q_len = draw.Draw(1, draw.Flip() ? 5 : kReach);
      config.k_len = draw.Draw(1, draw.Flip() ? 5 : kReach);
      config.head_dim = 2 * draw.Draw(2, 20);
      config.value_dim = draw.Draw(1, 40);
      CallMaker maker(config);
      Call call = maker.Make();
      maker.AddOptions(call);
      call.q_seg.clear();
      call.k_seg.clear();
      const int64_t first = config.first_position;
      Count(call, first + draw.Draw(0, kReach - config.q_len),
            first + draw.Draw(0, kReach - config.k_len));
      call = AsFloat(call);
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      ASSERT_TRUE(GoesShort(call));
      ExpectForwardEqualsReference(call);
    }
  });
}

// Every encoding that lowers to supported terms, at lengths around those of
// vectors, blocks and panels, up to the longest.
TEST(ShortTest, EncodingsEqualReference) {
  int taken = 0;
  for (const EncodingInfo& info : Encodings()) {
    for (int64_t length : {3, 16, 33, 64, 256}) {
      const bool causal = length % 2 == 1;
      Call call = Plain(length, 64, 2);
      call.options.causal = causal;
      const auto encoding =
          info.example({.heads = 2, .head_dim = 64, .length = length});
      Lower(*encoding, call);
      if (!GoesShort(call)) continue;
      ++taken;
      SCOPED_TRACE(::testing::Message() << info.name << ", length " << length);
      OnEveryTarget([&call] { ExpectForwardEqualsReference(call); });
    }
  }
  // At least none, rope, mrope, xpos, alibi, t5, kerple, sandwich, fire, tupe
  // and swin.
  EXPECT_GE(taken, 11 * 5);
}

// Up to four keys with rows of whole vectors, for which Few is used, and five
// keys for comparison.
TEST(ShortTest, FewKeysEqualReference) {
  OnEveryTarget([] {
    for (const int64_t keys : {1, 2, 3, 4, 5}) {
      for (const int64_t queries : {1, 2, 3, 7}) {
        for (const int64_t value_dim : {16, 48}) {
          for (const bool biased : {false, true}) {
            SCOPED_TRACE(::testing::Message()
                         << keys << " keys, " << queries << " queries, "
                         << value_dim << " channels, bias " << biased);
            Call call;
            call.q = RandomTensor({2, 4, queries, 32}, 1);
            call.k = RandomTensor({2, 2, keys, 32}, 2);
            call.v = RandomTensor({2, 2, keys, value_dim}, 3);
            call.terms.scale.scale = 0.2;
            if (biased) {
              call.terms.bias = BiasRamp{{0.1, 0.2, 0.3, 0.4}, {1, 2, 3, 4}};
            }
            Count(call, 3, 0);
            call = AsFloat(call);
            ExpectForwardEqualsReference(call);
            // Logits of 1e9 need the general softmax, and NaN is confined to
            // its row.
            call.terms.scale.scale = 1e9;
            ExpectForwardEqualsReference(call);
            call.q = Copy(call.q);
            call.q.MutableData<float>()[5] = NAN;
            const auto out =
                Attention(call.q, call.k, call.v, call.terms, call.Options())
                    .out;
            EXPECT_TRUE(std::isnan(out.At(0, 0, 0, value_dim - 1)));
            EXPECT_TRUE(std::isfinite(out.At(0, 1, queries - 1, 0)));
          }
        }
      }
    }
  });
}

// Including windows and key lengths that leave no visible keys.
TEST(ShortTest, ShapeIsThatOfTheMask) {
  for (const int64_t q_first : {0, 5, 40}) {
    for (const int64_t keys : {0, 1, 9}) {
      for (const bool causal : {false, true}) {
        for (const int64_t reach : {-1, 0, 3}) {
          Call call = Plain(9);
          Count(call, q_first, 7);
          call.key_lengths = {keys};
          call.options.causal = causal;
          if (reach >= 0) call.options.window = Window{reach, reach};
        }
      }
    }
  }
}

// Positions need not be given, and a sequence may be shorter than its keys.
TEST(ShortTest, CountedPositionsEqualGivenOnes) {
  Call call = Plain(20);
  const Tensor q = RandomTensor({1, 1, 7, 32}, 4).To(DType::kF32);
  call.terms.bias = BiasRamp{{0.1}, {0.3}};
  call.options.causal = true;
  const auto counted =
      Attention(q, call.k, call.v, call.terms, call.options).out.ToVector();
  call.q = q;
  Count(call, 13, 0);
  EXPECT_EQ(counted,
            Attention(call.q, call.k, call.v, call.terms, call.Options())
                .out.ToVector());
}

TEST(ShortTest, NarrowTypesAreStorageOnly) {
  OnEveryTarget([] {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      for (int64_t length : {2, 50}) {
        Call call = Plain(length, 24);
        call.q = call.q.To(dtype);
        call.k = call.k.To(dtype);
        call.v = call.v.To(dtype);
        ASSERT_TRUE(GoesShort(call));
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
  });
}

// [B, L, H, D] in memory; and rows whose elements are not adjacent.
TEST(ShortTest, StridedViewsEqualContiguousTensors) {
  for (int64_t length : {4, 33}) {
    const Tensor q = RandomTensor({2, length, 3, 32}, 1).To(DType::kF32);
    const Tensor k = RandomTensor({2, length, 3, 32}, 2).To(DType::kF32);
    const Tensor v = RandomTensor({2, length, 3, 32}, 3).To(DType::kF32);
    for (const auto& [a, b] : {std::pair(1, 2), std::pair(2, 3)}) {
      const auto strided = Attention(q.Transposed(a, b), k.Transposed(a, b),
                                     v.Transposed(a, b), Terms());
      const auto plain =
          Attention(Copy(q.Transposed(a, b)), Copy(k.Transposed(a, b)),
                    Copy(v.Transposed(a, b)), Terms());
      EXPECT_EQ(strided.out.ToVector(), plain.out.ToVector());
    }
  }
}

TEST(ShortTest, BitsDoNotDependOnThreads) {
  for (int64_t heads : {1, 3, 40}) {
    Call call = Plain(150, 64, heads);
    call.options.causal = heads == 3;
    call.options.return_lse = true;
    ASSERT_TRUE(GoesShort(call));
    std::vector<double> one, one_lse;
    for (int threads : {1, 2, 3, 7}) {
      const AttentionResult result = RunDriver("short", call, threads);
      if (threads == 1) {
        one = result.out.ToVector();
        one_lse = result.lse.ToVector();
      }
      EXPECT_EQ(result.out.ToVector(), one) << threads;
      EXPECT_EQ(result.lse.ToVector(), one_lse) << threads;
    }
  }
}

TEST(ShortTest, NotANumberStaysInItsRow) {
  OnEveryTarget([] {
    for (int64_t length : {4, 40}) {
      const int64_t bad = length / 2, first = 3 * length / 4;
      Call call = Plain(length);
      call.q = Copy(call.q);
      call.k = Copy(call.k);
      call.v = Copy(call.v);
      call.q.MutableData<float>()[bad * 32 + 1] = NAN;
      // Visible from row `first` on.
      call.v.MutableData<float>()[first * 32 + 2] = INFINITY;
      call.options.causal = true;
      ASSERT_TRUE(GoesShort(call));
      const Tensor out =
          Attention(call.q, call.k, call.v, call.terms, call.Options()).out;
      for (int64_t i = 0; i < length; ++i) {
        for (int64_t d = 0; d < 32; ++d) {
          const double x = out.At(0, 0, i, d);
          if (i == bad) {
            EXPECT_TRUE(std::isnan(x)) << i;
          } else if (i < first || d != 2) {
            EXPECT_TRUE(std::isfinite(x)) << i << ", " << d;
          } else {
            EXPECT_EQ(x, INFINITY) << i;
          }
        }
      }
      // A NaN key affects the queries that see it, and no others.
      call = Plain(length);
      call.k = Copy(call.k);
      call.k.MutableData<float>()[first * 32] = NAN;
      call.options.causal = true;
      const Tensor spoilt =
          Attention(call.q, call.k, call.v, call.terms, call.Options()).out;
      for (int64_t i = 0; i < length; ++i) {
        EXPECT_EQ(std::isnan(spoilt.At(0, 0, i, 0)), i >= first) << i;
      }
    }
  });
}

TEST(ShortTest, NothingSeenIsZero) {
  OnEveryTarget([] {
    for (int64_t length : {2, 30}) {
      Call call = Plain(length);
      call.options.return_lse = true;
      // Queries before all keys; or no keys at all.
      Count(call, 0, 100);
      call.options.causal = true;
      for (int round = 0; round < 2; ++round) {
        ASSERT_TRUE(GoesShort(call));
        const auto result =
            Attention(call.q, call.k, call.v, call.terms, call.Options());
        for (double x : result.out.ToVector()) EXPECT_EQ(x, 0.0);
        for (double x : result.lse.ToVector()) EXPECT_EQ(x, -INFINITY);
        call.options.causal = false;
        call.key_lengths = {0};
      }
    }
  });
}

TEST(ShortTest, HugeLogitsDoNotOverflow) {
  OnEveryTarget([] {
    for (double scale : {1e4, 1e7}) {
      for (int64_t length : {3, 30}) {
        Call call = Plain(length, 8);
        call.terms.scale.scale = scale;
        call.options.return_lse = true;
        ASSERT_TRUE(GoesShort(call));
        const auto actual =
            Attention(call.q, call.k, call.v, call.terms, call.Options());
        const auto expected = reference::Attention(call.q, call.k, call.v,
                                                   call.terms, call.Options());
        for (double x : actual.out.ToVector()) EXPECT_TRUE(std::isfinite(x));
        EXPECT_LE(RelativeError(actual.lse, expected.lse), 8 * kEps);
      }
    }
  });
}

// The cosines cached by a thread are those of the current rotation.
TEST(ShortTest, KeptAnglesFollowTheRotation) {
  const auto rope = [](double base, double gain) {
    Rotation r;
    r.layout = PairLayout::kHalves;
    r.rotary_dim = 32;
    for (int p = 0; p < 16; ++p) r.theta.push_back(std::pow(base, -p / 16.0));
    r.gain = gain;
    return r;
  };
  Call call = Plain(20);
  for (int64_t first : {0, 5, 300, 2}) {
    for (double base : {1e4, 1e2}) {
      for (double gain : {1.0, 1.5}) {
        call.terms.rotate = rope(base, gain);
        Count(call, first, first);
        ASSERT_TRUE(GoesShort(call));
        ExpectForwardEqualsReference(call);
      }
    }
  }
}

TEST(ShortTest, LeavesOtherCallsAlone) {
  EXPECT_TRUE(GoesShort(Plain(256)));
  EXPECT_FALSE(GoesShort(Plain(257)));
  EXPECT_FALSE(GoesShort(Plain(8, 257)));
  // One query over many keys is decoded.
  Call call = Plain(256);
  call.q = RandomTensor({1, 1, 1, 32}, 1).To(DType::kF32);
  Count(call, 255, 0);
  EXPECT_FALSE(GoesShort(call));
  call = Plain(8);
  std::swap(call.k_pos[0], call.k_pos[1]);
  EXPECT_FALSE(GoesShort(call));
  call = Plain(8);
  call.q_seg = call.k_seg = {0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_FALSE(GoesShort(call));
  call = Plain(8);
  const BucketMap clip = BucketMap::Clip(-2, 2);
  call.terms.v_table = BucketTable{RandomTensor({1, 5, 32}, 4), clip};
  EXPECT_FALSE(GoesShort(call));
}

}  // namespace
}  // namespace locus::testing
