// Tables and biases over different buckets in one call.
#include "kernels/compare.h"

namespace locus::testing {
namespace {

Call PlainCall(int64_t length) {
  Call call;
  call.q = RandomTensor({1, 2, length, 8}, 1).To(DType::kF32);
  call.k = RandomTensor({1, 2, length, 8}, 2).To(DType::kF32);
  call.v = RandomTensor({1, 2, length, 8}, 3).To(DType::kF32);
  call.terms.scale.scale = 0.3;
  return call;
}

// Past the ends of the query table its rows repeat, while the bias continues.
TEST(TablesTest, BiasesReachPastTheQueryTable) {
  const BucketMap maps[] = {BucketMap::T5(20, 100, /*bidirectional=*/true),
                            BucketMap::Deberta(22, 110),
                            BucketMap::Clip(-40, 40)};
  const BucketMap of_bias[] = {BucketMap::T5(28, 105, /*bidirectional=*/true),
                               BucketMap::T5(28, 105, /*bidirectional=*/false),
                               BucketMap::Clip(-150, 150)};
  OnEveryTarget([&] {
    for (int64_t length : {81, 150}) {
      for (const BucketMap& map : maps) {
        Call call = PlainCall(length);
        call.terms.q_table =
            BucketTable{RandomTensor({2, map.count, 8}, 4), map};
        for (const BucketMap& bias : of_bias) {
          call.terms.bias = BiasTable{RandomTensor({2, bias.count}, 5), bias};
          ExpectForwardEqualsReference(call);
          ExpectBackwardEqualsReference(call, 6);
        }
        call.terms.bias = BiasRamp{{0.1, 0.2}, {0.3, 0.05}};
        ExpectForwardEqualsReference(call);
        ExpectBackwardEqualsReference(call, 7);
      }
    }
  });
}

// The buckets that occur are the same, but one table has many more.
TEST(TablesTest, TablesOfDifferentSizes) {
  const BucketMap many = BucketMap::T5(8000, 20000, /*bidirectional=*/false);
  const BucketMap one = BucketMap::Constant();
  OnEveryTarget([&] {
    Call call = PlainCall(1);
    // With a rotation, since a table of one bucket would be folded into the
    // keys.
    call.terms.rotate = Rotation{.rotary_dim = 4, .theta = {1.0, 0.5}};
    for (const auto& [q_map, k_map] :
         {std::pair(many, one), std::pair(one, many)}) {
      call.terms.q_table =
          BucketTable{RandomTensor({2, q_map.count, 8}, 4), q_map};
      call.terms.k_table =
          BucketTable{RandomTensor({2, k_map.count, 8}, 5), k_map};
      ExpectForwardEqualsReference(call);
      ExpectBackwardEqualsReference(call, 6);
    }
  });
}

}  // namespace
}  // namespace locus::testing
