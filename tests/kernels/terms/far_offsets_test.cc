// Buckets saturate, so the maps of T5, Shaw and DeBERTa support every offset of
// two valid positions.
#include "kernels/compare.h"

namespace locus::testing {
namespace {

// Tokens at both ends of the range, in the middle, and a few steps from each.
std::vector<int64_t> FarPositions() {
  std::vector<int64_t> positions;
  for (int64_t at : {kLowestPosition, int64_t{-1} << 60, int64_t{-40},
                     int64_t{1} << 60, kHighestPosition - 6}) {
    for (int64_t step : {0, 1, 2, 6}) positions.push_back(at + step);
  }
  return positions;
}

struct Made {
  const char* name;
  Terms terms;
};

std::vector<Made> Saturating() {
  const auto rows = [](const BucketMap& map, uint64_t seed) {
    return BucketTable{RandomTensor({2, map.count, 16}, seed), map};
  };
  std::vector<Made> all;
  for (bool both : {false, true}) {
    const BucketMap map = BucketMap::T5(32, 128, both);
    all.push_back({"T5", {.scale = {.scale = 0.25}}});
    all.back().terms.bias = BiasTable{RandomTensor({2, map.count}, 1), map};
  }
  const BucketMap clip = BucketMap::Clip(-3, 5);
  all.push_back({"Shaw", {.scale = {.scale = 0.25}}});
  all.back().terms.q_table = rows(clip, 2);
  all.back().terms.v_table = rows(clip, 3);
  for (int64_t buckets : {0, 16, 17}) {
    const BucketMap map = BucketMap::Deberta(buckets, 40);
    all.push_back({"DeBERTa", {.scale = {.scale = 0.25}}});
    all.back().terms.q_table = rows(map, 4);
    all.back().terms.k_table = rows(map, 5);
  }
  return all;
}

TEST(FarOffsetsTest, SaturatedBucketsEqualReference) {
  OnEveryTarget([] {
    for (const Made& made : Saturating()) {
      for (bool causal : {false, true}) {
        for (int64_t queries : {1, 20}) {
          SCOPED_TRACE(::testing::Message() << made.name << ", causal "
                                            << causal << ", " << queries);
          Call call;
          call.k_pos = FarPositions();
          call.q_pos = FarPositions();
          call.q_pos.resize(static_cast<size_t>(queries));
          std::ranges::reverse(call.q_pos);
          const int64_t keys = std::ssize(call.k_pos);
          call.q = RandomTensor({1, 2, queries, 16}, 6);
          call.k = RandomTensor({1, 1, keys, 16}, 7);
          call.v = RandomTensor({1, 1, keys, 16}, 8);
          call.options.causal = causal;
          call.terms = made.terms;
          call = AsFloat(call);
          ExpectForwardEqualsReference(call);
          ExpectBackwardEqualsReference(call, 9);
          // Any window, whether or not it reaches that far.
          for (int64_t left : {int64_t{2}, int64_t{1} << 62,
                               std::numeric_limits<int64_t>::max()}) {
            call.options.window =
                Window{.left = left, .right = std::max<int64_t>(left, 3)};
            ExpectForwardEqualsReference(call);
          }
        }
      }
    }
  });
}

// Short calls at consecutive positions use a driver of their own.
TEST(FarOffsetsTest, ShortCallsSeeAsFar) {
  std::vector<Made> all = Saturating();
  all.push_back({"none", {.scale = {.scale = 0.25}}});
  for (const Made& made : all) {
    for (bool ahead : {false, true}) {
      SCOPED_TRACE(::testing::Message() << made.name << ", ahead " << ahead);
      Call call;
      for (int64_t i = 0; i < 3; ++i) {
        call.q_pos.push_back(kHighestPosition - 2 + i);
        call.k_pos.push_back(kLowestPosition + i);
      }
      if (ahead) std::swap(call.q_pos, call.k_pos);
      call.q = RandomTensor({1, 2, 3, 16}, 6);
      call.k = RandomTensor({1, 1, 3, 16}, 7);
      call.v = RandomTensor({1, 1, 3, 16}, 8);
      call.terms = made.terms;
      ExpectForwardEqualsReference(AsFloat(call));
    }
  }
}

TEST(FarOffsetsTest, RangeIsStated) {
  const Tensor x = RandomTensor({1, 1, 2, 4}, 1).To(DType::kF32);
  const std::vector<int64_t> beyond = {0, kHighestPosition + 1};
  EXPECT_EQ(
      ErrorOf([&] { Attention(x, x, x, Terms{}, {.q_positions = beyond}); }),
      "q_positions must lie in [-2305843009213693952, "
      "2305843009213693951], got 2305843009213693952");
}

}  // namespace
}  // namespace locus::testing
