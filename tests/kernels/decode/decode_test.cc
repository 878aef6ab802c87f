// Decoding, with few queries over many keys, against the reference.
#include "kernels/compare.h"
#include "locus/rotary.h"

namespace locus::testing {
namespace {

struct DecodeOptions {
  int threads = 1;
  bool keys_rotated = false;
};

AttentionResult Decoded(const Call& call, DecodeOptions how = {}) {
  return RunDriver("decode", call, how.threads, how.keys_rotated);
}

void ExpectDecodeEqualsReference(const Call& call) {
  ExpectDriversEqualReference(call, {"decode"});
}

std::vector<int64_t> Count(int64_t begin, int64_t end) {
  std::vector<int64_t> numbers;
  for (int64_t n = begin; n < end; ++n) numbers.push_back(n);
  return numbers;
}

// `queries` queries at the end of `keys` consecutive positions, as f32.
Call PlainCall(int64_t queries, int64_t keys, int64_t heads, int64_t kv_heads,
               int64_t dim) {
  Call call;
  call.q = RandomTensor({1, heads, queries, dim}, 1);
  call.k = RandomTensor({1, kv_heads, keys, dim}, 2);
  call.v = RandomTensor({1, kv_heads, keys, dim}, 3);
  call.q_pos = Count(keys - queries, keys);
  call.k_pos = Count(0, keys);
  call.terms.scale.scale = 1.0 / std::sqrt(static_cast<double>(dim));
  call.options.causal = true;
  return AsFloat(call);
}

// Scattered positions and every option.
TEST(DecodeTest, EverySubsetOfTermsEqualsReference) {
  OnEveryTarget([] {
    ForEverySubset(5000, [](CallConfig& config, CallMaker& draw) {
      config.q_len = draw.Draw(1, 4);
      config.k_len = draw.Draw(1, 70);
      config.head_dim = draw.Flip() ? 2 * draw.Draw(2, 20) : 32;
      config.value_dim = draw.Flip() ? draw.Draw(1, 40) : 32;
      config.kv_heads = draw.Flip() ? 2 : draw.Flip() ? 1 : 4;
      CallMaker maker(config);
      Call call = maker.Make();
      maker.AddOptions(call);
      ExpectDecodeEqualsReference(AsFloat(call));
    });
  });
}

// Consecutive positions, which use the SIMD paths, over several tiles.
TEST(DecodeTest, EveryEncodingEqualsReference) {
  OnEveryTarget([] {
    for (const EncodingInfo& info : Encodings()) {
      for (int64_t keys : {1, 17, 81, 987}) {
        const ExampleConfig example{.heads = 4, .head_dim = 32, .length = keys};
        const auto encoding = info.example(example);
        Call call = PlainCall(std::min<int64_t>(keys, 2), keys, 4, 2, 32);
        if (info.name == "mrope") {
          for (int64_t& p : call.q_pos) p = PackPosition(p, p, p);
          for (int64_t& p : call.k_pos) p = PackPosition(p, p, p);
        }
        Lower(*encoding, call);
        SCOPED_TRACE(::testing::Message()
                     << info.name << ", " << keys << " keys");
        ExpectDecodeEqualsReference(call);
      }
    }
  });
}

// Every number of rows, including more than one pass, and heads that are not
// whole vectors.
TEST(DecodeTest, AnyNumberOfRowsEqualsReference) {
  OnEveryTarget([] {
    for (int64_t group = 1; group <= 9; ++group) {
      for (int64_t queries : {1, 3, 5, 40}) {
        const int64_t dim = group % 2 == 0 ? 64 : 20;
        const Call call = PlainCall(queries, 300, 2 * group, 2, dim);
        SCOPED_TRACE(::testing::Message()
                     << group << " heads a group, " << queries << " queries");
        ExpectDecodeEqualsReference(call);
      }
    }
  });
}

// Rotations of every kind over runs that start at any position.
TEST(DecodeTest, RotationsOverRunsEqualReference) {
  OnEveryTarget([] {
    for (PairLayout layout : {PairLayout::kInterleaved, PairLayout::kHalves}) {
      for (int variant = 0; variant < 4; ++variant) {
        Call call = PlainCall(3, 700, 4, 2, 80);
        call.k_pos = Count(5, 405);
        for (int64_t p : Count(1000, 1300)) call.k_pos.push_back(p);
        call.q_pos = {1297, 1299, 1400};
        Rotation& r = call.terms.rotate.emplace();
        r.layout = layout;
        r.rotary_dim = variant == 1 ? 36 : 80;
        r.first_channel = variant == 1 ? 7 : 0;
        r.theta = RopeFrequencies(r.rotary_dim, 10000.0);
        r.gain = 1.1;
        if (variant == 2) {
          r.log_decay.assign(static_cast<size_t>(r.NumPairs()), -0.003);
        }
        if (variant == 3) r.angles = AngleMode::kFloat32;
        SCOPED_TRACE(::testing::Message() << "variant " << variant);
        ExpectDecodeEqualsReference(call);
      }
    }
  });
}

// With one span of angles per sequence, decays work that a table as long as the
// keys could not represent in float32.
TEST(DecodeTest, DecayCoversAnyRange) {
  Call call = PlainCall(1, 3000, 1, 1, 16);
  Rotation& r = call.terms.rotate.emplace();
  r.rotary_dim = 16;
  r.theta = RopeFrequencies(16, 10000.0);
  r.log_decay.assign(8, -0.1);
  ExpectDecodeEqualsReference(call);
}

TEST(DecodeTest, RotatedKeysAreTakenAsTheyAre) {
  Call call = PlainCall(2, 300, 4, 2, 32);
  Lower(Rope(32, PairLayout::kHalves), call);
  call.terms.q_table =
      BucketTable{RandomTensor({4, 9, 32}, 7), BucketMap::Clip(-4, 4)};
  const reference::Forward expected =
      reference::Attention(call.q, call.k, call.v, call.terms, call.Options());
  call.k = Rotate(call.k, *call.terms.rotate, call.k_pos);
  const AttentionResult actual = Decoded(call, {.keys_rotated = true});
  EXPECT_LE(RelativeError(actual.out, expected.out), ForwardTolerance(call));
}

// Two-dimensional windows and special tokens in every table.
TEST(DecodeTest, BucketsOfPairsEqualReference) {
  Call call = PlainCall(4, 36, 4, 2, 16);
  call.options.causal = false;
  call.q_pos = {0, 7, 20, 36};
  call.k_pos = Count(1, 37);
  call.k_pos.back() = 0;
  BucketMap map = BucketMap::Window2D(6, 6);
  map.grid->origin = 1;
  map = map.WithSpecial(0, /*both=*/true);
  call.terms.bias = BiasTable{RandomTensor({4, map.count}, 5), map};
  call.terms.q_table = BucketTable{RandomTensor({4, map.count, 16}, 6), map};
  call.terms.k_table = BucketTable{RandomTensor({1, map.count, 16}, 7), map};
  call.terms.v_table = BucketTable{RandomTensor({4, map.count, 16}, 8), map};
  ExpectDecodeEqualsReference(call);
}

TEST(DecodeTest, BitsDoNotDependOnThreads) {
  for (uint64_t seed : {uint64_t{1}, uint64_t{2}}) {
    CallConfig config{.q_len = 3,
                      .k_len = 2000,
                      .head_dim = 16,
                      .value_dim = 16,
                      .seed = seed};
    if (seed == 2) config.batch = config.heads = config.kv_heads = 1;
    const Call call = AsFloat(CallMaker(config).Make());
    const AttentionResult one = Decoded(call, {.threads = 1});
    for (int threads : {2, 3, 7}) {
      const AttentionResult many = Decoded(call, {.threads = threads});
      EXPECT_EQ(one.out.ToVector(), many.out.ToVector());
      EXPECT_EQ(one.lse.ToVector(), many.lse.ToVector());
    }
  }
}

TEST(DecodeTest, NarrowTypesAreStorageOnly) {
  OnEveryTarget([] {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      for (int64_t dim : {24, 64}) {
        Call call = PlainCall(2, 300, 6, 2, dim);
        // Queries remain f32, so that the output shows only the arithmetic.
        call.k = call.k.To(dtype);
        call.v = call.v.To(dtype);
        ExpectDecodeEqualsReference(call);
        Lower(Rope(dim, PairLayout::kInterleaved), call);
        ExpectDecodeEqualsReference(call);
        // Queries and output in the storage type: one more rounding.
        call.q = call.q.To(dtype);
        const AttentionResult actual = Decoded(call);
        const reference::Forward expected = reference::Attention(
            call.q, call.k, call.v, call.terms, call.Options());
        const double rounding = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
        EXPECT_EQ(actual.out.dtype(), dtype);
        EXPECT_LE(RelativeError(actual.out, expected.out),
                  rounding + ForwardTolerance(call));
      }
    }
  });
}

// Infinities, NaNs and subnormal numbers of narrow types keep their meaning.
TEST(DecodeTest, NarrowSpecialNumbersAreKept) {
  OnEveryTarget([] {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      // 32 and 37 channels: whole vectors or not, depending on the target.
      for (int64_t dim : {32, 37}) {
        Call call = PlainCall(1, 40, 1, 1, dim);
        std::vector<double> values(static_cast<size_t>(40 * dim), 0.0);
        const double tiny = dtype == DType::kBF16 ? 0x1p-130 : 0x1p-24;
        for (int64_t j = 0; j < 40; ++j)
          values[static_cast<size_t>(j * dim)] = tiny;
        values[3] = INFINITY;
        values[4] = -INFINITY;
        values[static_cast<size_t>(dim) - 1] = NAN;
        call.k = call.k.To(dtype);
        call.v = Tensor::From({1, 1, 40, dim}, values).To(dtype);
        const Tensor out = Decoded(call).out;
        if (dtype == DType::kF16) {
          EXPECT_NEAR(out.At(0, 0, 0, 0), tiny, 4 * kEps * tiny);
        }
        EXPECT_EQ(out.At(0, 0, 0, 1), 0.0);
        EXPECT_EQ(out.At(0, 0, 0, 3), INFINITY);
        EXPECT_EQ(out.At(0, 0, 0, 4), -INFINITY);
        EXPECT_TRUE(std::isnan(out.At(0, 0, 0, dim - 1)));
      }
    }
  });
}

TEST(DecodeTest, StridedViewsEqualContiguousTensors) {
  // [B, L, H, D] and [B, H, D, L] in memory, seen as [B, H, L, D].
  for (int axis : {1, 3}) {
    Call call = PlainCall(2, 200, 4, 2, 32);
    const Call plain = call;
    const auto view = [&](const Tensor& x) {
      const Tensor swapped = x.Transposed(axis, 2);
      return Tensor::From(swapped.shape(), swapped.ToVector())
          .To(DType::kF32)
          .Transposed(axis, 2);
    };
    call.q = view(call.q);
    call.k = view(call.k);
    call.v = view(call.v);
    EXPECT_EQ(Decoded(call).out.ToVector(), Decoded(plain).out.ToVector());
  }
}

// A single key and value repeated for all (stride 0), and keys in reverse
// order.
TEST(DecodeTest, RowsMayRepeatOrRunBackwards) {
  Call call = PlainCall(2, 200, 4, 2, 32);
  const Tensor k = call.k, v = call.v;
  const auto view = [](const Tensor& x, int64_t first, int64_t step) {
    std::vector<int64_t> strides = x.strides();
    strides[2] *= step;
    return Tensor::Borrow(x.dtype(), x.shape(), strides,
                          x.Data<float>() + first * x.strides()[2]);
  };
  for (const int64_t step : {0, -1}) {
    call.k = view(k, 199, step);
    call.v = view(v, 199, step);
    Call copy = call;
    copy.k = call.k.To(DType::kF64).To(DType::kF32);
    copy.v = call.v.To(DType::kF64).To(DType::kF32);
    OnEveryTarget([&] {
      EXPECT_EQ(Decoded(call).out.ToVector(), Decoded(copy).out.ToVector());
    });
  }
}

TEST(DecodeTest, MaskedRowsAreZero) {
  Call call = PlainCall(2, 600, 2, 1, 16);
  call.q_pos = {-5, 599};  // the first query comes before every key
  const AttentionResult result = Decoded(call);
  for (int64_t h = 0; h < 2; ++h) {
    EXPECT_EQ(result.lse.At(0, h, 0), -INFINITY);
    EXPECT_TRUE(std::isfinite(result.lse.At(0, h, 1)));
    for (int64_t d = 0; d < 16; ++d) EXPECT_EQ(result.out.At(0, h, 0, d), 0.0);
  }
  call.k = call.v = Tensor::Zeros(DType::kF32, {1, 1, 0, 16});
  call.k_pos.clear();
  const AttentionResult none = Decoded(call);
  for (double x : none.out.ToVector()) EXPECT_EQ(x, 0.0);
  for (double x : none.lse.ToVector()) EXPECT_EQ(x, -INFINITY);
}

TEST(DecodeTest, NotANumberStaysInItsRow) {
  OnEveryTarget([] {
    Call call = PlainCall(4, 600, 2, 1, 32);
    call.q = Tensor::From(call.q.shape(), call.q.ToVector()).To(DType::kF32);
    call.v = Tensor::From(call.v.shape(), call.v.ToVector()).To(DType::kF32);
    call.q.MutableData<float>()[1 * 32 + 3] = NAN;         // head 0, query 1
    call.v.MutableData<float>()[598 * 32 + 2] = INFINITY;  // seen by 2 and 3
    const AttentionResult result = Decoded(call);
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 4; ++i) {
        for (int64_t d = 0; d < 32; ++d) {
          const double x = result.out.At(0, h, i, d);
          if (h == 0 && i == 1) {
            EXPECT_TRUE(std::isnan(x)) << h << ", " << i;
          } else if (i >= 2 && d == 2) {
            EXPECT_EQ(x, INFINITY) << h << ", " << i;
          } else {
            EXPECT_TRUE(std::isfinite(x)) << h << ", " << i << ", " << d;
          }
        }
      }
    }
  });
}

TEST(DecodeTest, HugeLogitsDoNotOverflow) {
  for (double scale : {1e4, 1e7}) {
    Call call = PlainCall(2, 700, 2, 1, 16);
    call.terms.scale.scale = scale;
    AttentionOptions options = call.Options();
    const AttentionResult actual = Decoded(call);
    const reference::Forward expected =
        reference::Attention(call.q, call.k, call.v, call.terms, options);
    for (double x : actual.out.ToVector()) EXPECT_TRUE(std::isfinite(x));
    EXPECT_LE(RelativeError(actual.lse, expected.lse), 8 * kEps);
  }
}

TEST(DecodeTest, SoftCapHoldsFarOut) {
  OnEveryTarget([] {
    Call call = PlainCall(2, 300, 2, 1, 16);
    call.terms.scale.scale = 20.0;
    call.options.softcap = 30.0;
    ExpectDecodeEqualsReference(call);
  });
}

}  // namespace
}  // namespace locus::testing
