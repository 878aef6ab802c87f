// Rotated values: relative, with outputs rotated back, and absolute.
#include "kernels/compare.h"

namespace locus::testing {
namespace {

Rotation RotationOf(int64_t pairs, int64_t first, PairLayout layout) {
  Rotation r{.layout = layout, .rotary_dim = 2 * pairs, .first_channel = first};
  for (int64_t p = 0; p < pairs; ++p) {
    r.theta.push_back(std::pow(100.0, -double(p) / double(pairs)));
  }
  return r;
}

// Grouped heads, values wider than keys.
Call LongCall(int64_t queries, int64_t keys) {
  Call call;
  call.q = RandomTensor({1, 4, queries, 20}, 1);
  call.k = RandomTensor({1, 2, keys, 20}, 2);
  call.v = RandomTensor({1, 2, keys, 28}, 3);
  for (int64_t i = keys - queries; i < keys; ++i) call.q_pos.push_back(i);
  for (int64_t j = 0; j < keys; ++j) call.k_pos.push_back(j);
  call.terms.scale.scale = 0.2;
  call.terms.rotate_values =
      ValueRotation{RotationOf(9, 7, PairLayout::kHalves)};
  return AsFloat(call);
}

// With a different rotation of q and k, and with the same one, whose cosines
// are shared.
std::vector<Call> Rotated(const Call& call) {
  std::vector<Call> all(2, call);
  all[0].terms.rotate = RotationOf(10, 0, PairLayout::kInterleaved);
  all[1].terms.rotate = RotationOf(9, 0, PairLayout::kHalves);
  return all;
}

// The same with frequencies per key head.
std::vector<Call> RotatedPerHead(const Call& call) {
  std::vector<Call> all = Rotated(call);
  for (Call& each : all) {
    SetHeads(*each.terms.rotate, 2);
    SetHeads(each.terms.rotate_values->rotation, 2);
  }
  return all;
}

// Alone, and with all of these.
std::vector<Call> Variants(const Call& call) {
  std::vector<Call> all(2, call);
  all[1].terms.rotate_values->relative = false;
  for (const auto& more : {Rotated(call), RotatedPerHead(call)}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

TEST(ValueRotationTest, LongSequencesEqualReference) {
  OnEveryTarget([] {
    std::vector<Call> calls = Rotated(LongCall(987, 987));
    for (const Call& call : Variants(LongCall(150, 280))) {
      calls.push_back(call);
    }
    for (Call& call : calls) {
      call.options.causal = true;
      call.options.window = Window{.left = 300, .right = 0};
      ExpectForwardEqualsReference(call);
      ExpectBackwardEqualsReference(call, 5);
    }
  });
}

TEST(ValueRotationTest, FewQueriesEqualReference) {
  OnEveryTarget([] {
    for (const Call& call : Variants(LongCall(3, 700))) {
      ASSERT_EQ(DriverOf(call), "decode");
      ExpectForwardEqualsReference(call);
    }
  });
}

// Tv is rotated back with the values, R_m^-1 Tv.
TEST(ValueRotationTest, TablesOfValuesEqualReference) {
  for (Call& call : Variants(LongCall(150, 300))) {
    const BucketMap clip = BucketMap::Clip(-20, 40);
    call.terms.v_table =
        BucketTable{RandomTensor({4, clip.count, 28}, 5), clip};
    ExpectForwardEqualsReference(call);
    ExpectBackwardEqualsReference(call, 6);
  }
}

TEST(ValueRotationTest, NarrowTypesAreStorageOnly) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t queries : {2, 40}) {
      for (Call& call : Variants(LongCall(queries, 90))) {
        call.q = call.q.To(dtype);
        call.k = call.k.To(dtype);
        call.v = call.v.To(dtype);
        const auto expected = reference::Attention(call.q, call.k, call.v,
                                                   call.terms, call.Options());
        const double half_ulp = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
        EXPECT_LE(RelativeError(Attention(call.q, call.k, call.v, call.terms,
                                          call.Options())
                                    .out,
                                expected.out),
                  half_ulp + ForwardTolerance(call));
      }
    }
  }
}

// The relative form depends only on offsets; the absolute one on positions.
TEST(ValueRotationTest, RelativeValuesDoNotKnowTheirPosition) {
  for (const bool relative : {true, false}) {
    Call call = LongCall(200, 200);
    call.terms.rotate_values->relative = relative;
    const auto run = [&call] {
      return Attention(call.q, call.k, call.v, call.terms, call.Options()).out;
    };
    const Tensor here = run();
    for (int64_t& p : call.q_pos) p += 1000;
    for (int64_t& p : call.k_pos) p += 1000;
    const double moved = RelativeError(run(), here);
    if (relative) {
      EXPECT_LE(moved, 2 * ForwardTolerance(call));
    } else {
      EXPECT_GT(moved, 0.1);
    }
  }
}

// Values are cached unrotated and rotated when they are read.
TEST(ValueRotationTest, CachesEqualTheWholeCall) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (Call& call : Variants(LongCall(5, 120))) {
      call.k = call.k.To(dtype).To(DType::kF32);
      call.v = call.v.To(dtype).To(DType::kF32);
      call.options.causal = true;
      KvCache cache({.kv_heads = 2,
                     .head_dim = 20,
                     .value_dim = 28,
                     .dtype = dtype,
                     .q_heads = 4});
      cache.Append(call.k, call.v, call.terms);
      EXPECT_EQ(cache.values().ToVector(), call.v.ToVector());
      const auto expected = reference::Attention(call.q, call.k, call.v,
                                                 call.terms, call.Options());
      // Keys that are stored rotated are rounded to the storage type once more.
      const double stored = call.terms.rotate && dtype == DType::kBF16
                                ? 0x1p-6
                                : ForwardTolerance(call);
      EXPECT_LE(
          RelativeError(cache.Decode(call.q, call.terms).out, expected.out),
          stored);
    }
  }
}

TEST(ValueRotationTest, ShortCallsEqualReference) {
  OnEveryTarget([] {
    // Several rotations, whose cosines a thread caches.
    for (const int64_t queries : {1, 30, 60}) {
      for (Call& call : Variants(LongCall(queries, 60))) {
        ASSERT_EQ(DriverOf(call), "short");
        ExpectForwardEqualsReference(call);
        for (int64_t& p : call.q_pos) p += 100;
        for (int64_t& p : call.k_pos) p += 100;
        call.options.causal = true;
        ExpectForwardEqualsReference(call);
      }
    }
  });
}

TEST(ValueRotationTest, BitsDoNotDependOnThreads) {
  for (const Call& call : Variants(LongCall(300, 300))) {
    AttentionOptions options = call.Options();
    options.return_lse = true;
    const auto run = [&](int threads) {
      options.threads = threads;
      const AttentionResult result =
          Attention(call.q, call.k, call.v, call.terms, options);
      const AttentionGrads g = AttentionBackward(
          result.out, call.q, call.k, call.v, result, call.terms, options);
      return std::vector{result.out.ToVector(), g.d_q.ToVector(),
                         g.d_k.ToVector(), g.d_v.ToVector()};
    };
    const auto one = run(1);
    EXPECT_EQ(run(2), one);
    EXPECT_EQ(run(7), one);
  }
}

TEST(ValueRotationTest, RefusesWhatDoesNotPreserveNorms) {
  const auto error = [](auto change) {
    Call call = LongCall(40, 40);
    change(call.terms.rotate_values->rotation);
    const std::string fused = ErrorOf(
        [&] { Attention(call.q, call.k, call.v, call.terms, call.Options()); });
    EXPECT_EQ(fused, ErrorOf([&] {
                reference::Attention(call.q, call.k, call.v, call.terms,
                                     call.Options());
              }));
    return fused;
  };
  EXPECT_EQ(error([](Rotation&) {}), "");
  EXPECT_EQ(error([](Rotation& r) { r.gain = 1.1; }),
            "values are rotated without a gain, got 1.1");
  EXPECT_EQ(error([](Rotation& r) { r.log_decay.assign(9, -0.1); }),
            "values are rotated without a decay, got 9 decays");
  EXPECT_EQ(error([](Rotation& r) { r.trains = true; }),
            "the frequencies of a rotation of values do not train");
  EXPECT_EQ(error([](Rotation& r) { r.first_channel = 11; }),
            "18 rotary channels from 11 on do not fit a head of 28");
}

}  // namespace
}  // namespace locus::testing
