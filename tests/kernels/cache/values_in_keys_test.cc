// Caches whose values are the first channels of their keys, as in multi-head
// latent attention.
#include "kernels/cache/calls.h"

namespace locus::testing {
namespace {

constexpr int64_t kKeyDim = 48, kValueDim = 32;

KvCacheConfig Latent(DType dtype, int64_t batch = 1) {
  return {.batch = batch,
          .kv_heads = 1,
          .head_dim = kKeyDim,
          .value_dim = kValueDim,
          .dtype = dtype,
          .q_heads = kQueryHeads,
          .values_in_keys = true};
}

Tensor Random(int64_t batch, int64_t heads, int64_t length, uint64_t seed) {
  return RandomTensor({batch, heads, length, kKeyDim}, seed).To(DType::kF32);
}

// The first channels of x, as a view.
Tensor Values(const Tensor& x) {
  std::vector<int64_t> shape = x.shape();
  shape[3] = kValueDim;
  return Tensor::Borrow(x.dtype(), std::move(shape), x.strides(), x.Raw());
}

// Only the tail rotates.
Rope TailRope(double base = 10000.0) {
  return Rope(kKeyDim, PairLayout::kInterleaved,
              {.base = base,
               .rotary_dim = kKeyDim - kValueDim,
               .place = RotaryPlace::kTrailing});
}

TEST(ValuesInKeysTest, EqualAttentionWithValuesApart) {
  OnEveryTarget([] {
    const Rope rope = TailRope();
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (int64_t queries : {1, 3, 60}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(dtype) << ", " << queries << " queries");
        const Tensor k = Random(2, 1, 300, 1).To(dtype).To(DType::kF32);
        const Tensor q = Random(2, kQueryHeads, queries, 2);
        KvCache cache(Latent(dtype, 2));
        KvCacheConfig two = Latent(dtype, 2);
        two.values_in_keys = false;
        KvCache expected(two);
        // The cache grows meanwhile.
        for (int64_t i = 0; i < 300; i += 50) {
          cache.Append(Part(k, i, i + 50), Tensor(), rope);
        }
        expected.Append(k, Values(k), rope);
        // The same numbers in the same order.
        EXPECT_EQ(cache.keys().ToVector(), expected.keys().ToVector());
        EXPECT_EQ(cache.values().ToVector(), expected.values().ToVector());
        EXPECT_EQ(cache.Decode(q, rope).out.ToVector(),
                  expected.Decode(q, rope).out.ToVector());
        if (dtype != DType::kF32) continue;
        EXPECT_LE(
            RelativeError(cache.Decode(q, rope).out,
                          Attention(q, k, Values(k).To(DType::kF32), rope,
                                    {.causal = true})
                              .out),
            2 * 4.0 * kEps * std::sqrt(static_cast<double>(kKeyDim) + 12.0));
      }
    }
  });
}

TEST(ValuesInKeysTest, ValuesAreInTheMemoryOfTheKeys) {
  const Tensor k = Random(1, 1, 10, 1);
  KvCache cache(Latent(DType::kI8));
  cache.Append(k, Tensor(), TailRope());
  EXPECT_EQ(cache.values().Raw(), cache.keys().Raw());
  EXPECT_EQ(cache.value_scales().Raw(), cache.key_scales().Raw());
  const KvCache fork = cache.Fork();
  EXPECT_EQ(fork.values().Raw(), fork.keys().Raw());
  EXPECT_NE(fork.keys().Raw(), cache.keys().Raw());
}

// Rows move once, including the values in them.
TEST(ValuesInKeysTest, Edits) {
  const Rope rope = TailRope(), other = TailRope(500.0);
  for (DType dtype : {DType::kF32, DType::kI8}) {
    SCOPED_TRACE(DTypeName(dtype));
    const Tensor k = Random(1, 1, 90, 1), q = Random(1, kQueryHeads, 1, 2);
    KvCache cache(Latent(dtype)), expected(Latent(dtype));
    cache.Append(k, Tensor(), rope);
    cache.Evict(0, 60);
    cache.Shift(-60);
    cache.Rerotate(other);
    expected.Append(Part(k, 60, 90), Tensor(), other);
    // Rotated twice; int8 is rounded twice more, by 1 in 254.
    const double tolerance = dtype == DType::kF32 ? 8 * kEps : 3e-2;
    EXPECT_LE(RelativeError(cache.Decode(q, other).out,
                            expected.Decode(q, other).out),
              tolerance);
    if (dtype == DType::kF32) {
      // The rotated channels come after the values.
      EXPECT_EQ(cache.values().ToVector(), expected.values().ToVector());
    }
  }
}

TEST(ValuesInKeysTest, Int8OnEveryTarget) {
  OnEveryTarget([] {
    const Tensor k = Random(1, 1, 300, 1);
    const Tensor q = Random(1, kQueryHeads, 1, 2);
    KvCache cache(Latent(DType::kI8));
    cache.Append(k, Tensor(), Terms());
    std::vector<float> stored;
    for (int64_t j = 0; j < 300; ++j) {
      for (int64_t d = 0; d < kKeyDim; ++d) {
        stored.push_back(static_cast<float>(cache.keys().At(0, 0, j, d)) *
                         static_cast<float>(cache.key_scales().At(0, 0, j, 0)));
      }
    }
    const Tensor keys = Tensor::From(k.shape(), std::move(stored));
    const reference::Forward expected =
        reference::Attention(q, keys, Values(keys), Terms(), {});
    // Queries and weights become int16.
    EXPECT_LE(RelativeError(cache.Decode(q, Terms()).out, expected.out),
              32 * 0x1p-16);
  });
}

TEST(ValuesInKeysTest, Refusals) {
  EXPECT_EQ(ErrorOf([] {
              KvCache({.head_dim = 8, .value_dim = 9, .values_in_keys = true});
            }),
            "values of 9 channels cannot be part of keys of 8");
  const Tensor k = Random(1, 1, 4, 1);
  KvCache cache(Latent(DType::kF32));
  EXPECT_EQ(ErrorOf([&] { cache.Append(k, k, Terms()); }),
            "the cache takes k [1, 1, n, 48], whose first 32 channels are the "
            "values, and no v, got f32 [1, 1, 4, 48], f32 [1, 1, 4, 48]");
  EXPECT_EQ(ErrorOf([&] { KvCache(Config()).Append(k, Tensor(), Terms()); }),
            "the cache takes k [1, 2, n, 16] and v [1, 2, n, 16], got f32 [1, "
            "1, 4, 48], none");
  const Rope whole(kKeyDim, PairLayout::kHalves);
  EXPECT_EQ(ErrorOf([&] { cache.Append(k, Tensor(), whole); }),
            "the values of this cache are the first 32 channels of its keys, "
            "but the rotation would rotate channels 0 .. 47");
  EXPECT_EQ(cache.size(), 0);
  cache.Append(k, Tensor(), TailRope());
  EXPECT_EQ(ErrorOf([&] { cache.Rerotate(whole); }),
            "the values of this cache are the first 32 channels of its keys, "
            "but the rotation would rotate channels 0 .. 47");
  EXPECT_EQ(cache.table_id(), TailRope().RotationFor(4).Id());
}

}  // namespace
}  // namespace locus::testing
